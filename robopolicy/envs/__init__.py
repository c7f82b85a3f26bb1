"""The simulated tasks. Importing this registers them with gymnasium; an engine loads when a task is made."""

import gymnasium

gymnasium.register(
    id="robopolicy/SteppingStones-v0",
    entry_point="robopolicy.envs.quadruped.stepping_stones:SteppingStones",
)
gymnasium.register(
    id="robopolicy/BimanualSweep-v0",
    entry_point="robopolicy.envs.sweep.bimanual_sweep:BimanualSweep",
)
