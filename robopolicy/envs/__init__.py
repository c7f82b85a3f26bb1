"""The simulated tasks as gymnasium environments, and the contract of every task: names, units, outcomes.

Importing this room registers the tasks with gymnasium. An engine loads when an environment is made.
"""

import gymnasium

gymnasium.register(
    id="robopolicy/SteppingStones-v0",
    entry_point="robopolicy.envs.quadruped.stepping_stones:SteppingStones",
)
gymnasium.register(
    id="robopolicy/BimanualSweep-v0",
    entry_point="robopolicy.envs.sweep.bimanual_sweep:BimanualSweep",
)
