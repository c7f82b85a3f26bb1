"""The stepping stones and a vision policy in EvoJAX's own trainer.

    python examples/evojax_trainer.py

Expected: a line "[TEST]" at the end, whose avg is above 2.4 after 30 generations of 5 s on the painted
course, which is 4 m long; it is 1.3 before them.
"""

import argparse
import tempfile

from evojax import Trainer
from evojax.algo import PGPE

import robopolicy
from robopolicy.envs.batched.stones import SteppingStonesBatch
from robopolicy.training.evojax_task import WorldsNetwork, WorldsTask

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--generations", type=int, default=30)
generations = parser.parse_args().generations


policy = robopolicy.new_policy("stepping-stones", "angular_hybrid(m=8, n=8)", seed=0)
batch = SteppingStonesBatch("painted", episode_seconds=5.0)
solver = PGPE(
    pop_size=24,
    param_size=policy.parameters.size,
    init_params=policy.parameters,
    optimizer="adam",
    center_learning_rate=0.05,
    init_stdev=0.3,
    seed=0,
)
trainer = Trainer(
    policy=WorldsNetwork(policy, "proprioception"),
    solver=solver,
    train_task=WorldsTask(batch, range(1000), "proprioception"),
    test_task=WorldsTask(batch, range(8000, 8020), "proprioception", test=True),
    max_iter=generations,
    log_interval=1,
    test_interval=generations,
    n_repeats=1,
    n_evaluations=8,
    log_dir=tempfile.mkdtemp(),
)
trainer.run()
