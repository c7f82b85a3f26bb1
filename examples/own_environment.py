"""An environment of one's own, learnt by the Implicit Attention Policy with an evolution strategy.

    python examples/own_environment.py

The policy wants two depth images and a vector, and gives four numbers, one a leg. Here both images show level
ground with a trench across it: feet are to go back (-1) from a far one, and on (1) past a near one.

Expected: "held-out reward", 0.00 before as no foot moves, and above 0.80 after 10 generations.
"""

import tempfile
from pathlib import Path

import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box, Dict

from robopolicy.export.onnx import worker_graph
from robopolicy.policies import base, catalogue, iap
from robopolicy.training import checkpoint, es, pool, worker

IMAGE, CAMERAS, LEVEL = (8, 8), ("front_depth", "belly_depth"), np.ones((8, 8), np.float32)


class Trenches(gymnasium.Env):
    observation_space = Dict({**dict.fromkeys(CAMERAS, Box(0, 9, IMAGE)), "proprioception": Box(-1, 1, (1,))})
    action_space = Box(-1, 1, (4,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        image, self.side = LEVEL.copy(), self.np_random.choice([-1, 1])
        image[self.np_random.integers(3) + (5 if self.side > 0 else 0)] += 0.3  # the first row is far
        self.seen = {**dict.fromkeys(CAMERAS, image), "proprioception": np.zeros(1, np.float32)}
        return self.seen, {}

    def step(self, action):
        seen = {name: value.copy() for name, value in self.seen.items()}
        return seen, float(np.mean(action * self.side)), True, False, {}


if __name__ == "own_environment":  # as workers, processes of their own, import it
    gymnasium.register(id="Trenches-v0", entry_point=Trenches)
if __name__ == "__main__":
    own = {"proprioception": ("felt",), "leg_inputs": ("felt",), "image": IMAGE, "columns": (0, 8)}
    config = iap.IAPConfig("angular_hybrid(m=8, n=8)", **own)
    policy = iap.iap(config, dict.fromkeys(CAMERAS, LEVEL))
    start, draw = jax.random.split(jax.random.key(0))
    features, told = policy.init_features(draw), []
    spec = worker.EnvironmentSpec("own_environment:Trenches-v0", {}, "trenches")
    workers = pool.LocalPool([spec], worker_graph(config, features), workers=2)
    given = {"initial": base.flatten(policy.init(start)), "features": catalogue.by_path(features)}
    with tempfile.TemporaryDirectory() as scratch:
        (run := checkpoint.RunFolder(Path(scratch))).create({})
        search = es.ESConfig(generations=10, population=32, episodes=(16,), held_out=100)
        es.train(search, run=run, evaluator=workers, on_generation=told.append, **given)
    workers.close()
    before, after = (told[index]["held_out/return"] for index in (0, -1))
    print(f"held-out reward: {before:.2f} before, {after:.2f} after")
