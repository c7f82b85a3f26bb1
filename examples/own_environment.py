"""An environment of one's own, learnt by the Implicit Attention Policy with an evolution strategy.

    python examples/own_environment.py

The policy sees a depth image of level ground with a trench across it, relative to one without, and moves four
feet: they are to go back (-1) from a far trench, and on (1) past a near one.

Expected: "held-out reward", 0.00 before as no foot moves, and above 0.80 after 15 generations.
"""

import tempfile
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

import robopolicy
from robopolicy.envs.task import Quantity, Task
from robopolicy.experiments.hooks import Hooks
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.iap_parts import Camera, Output, Reader, View

IMAGE, FEET, LEVEL = (8, 8), ("a", "b", "c", "d"), np.ones((8, 8), np.float32)


class Trenches(Task):
    rate, vectors = 10, {}
    observation_space = Dict({"depth": Box(0, 9, IMAGE)})
    action_space = Box(-1, 1, (len(FEET),))
    actions = tuple(Quantity(f"foot_{foot}", "m", -0.15, 0.15, "how far it goes on") for foot in FEET)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.image, self.side = LEVEL.copy(), self.np_random.choice([-1, 1])
        self.image[self.np_random.integers(3) + (5 if self.side > 0 else 0)] += 0.3  # the first row is far
        return self.step(np.zeros(4))[0], {}

    def step(self, action):
        seen = {"depth": self.image.copy()}
        return seen, float(np.mean(action * self.side)), True, False, {"success": True, "cause": "time"}


if __name__ == "own_environment":  # as workers, processes of their own, import it
    gymnasium.register(id="Trenches-v0", entry_point=Trenches)
if __name__ == "__main__":
    camera = Camera("depth", *IMAGE, scale=0.2, reference=True)
    reader = Reader("feet", (Output(FEET),), (View("depth"),))
    config = IAPConfig("angular_hybrid(m=8, n=8)", (camera,), (), (reader,), FEET)
    policy, records = robopolicy.Policy.create(config, {"depth": LEVEL}), []
    search = robopolicy.ESConfig(generations=15, population=32, episodes=(16,), held_out=100)
    with tempfile.TemporaryDirectory() as folder:
        given = {"out": Path(folder) / "run", "workers": 2, "hooks": Hooks(on_record=records.append)}
        robopolicy.train_es(policy, "own_environment:Trenches-v0", search, **given)
    before, after = (records[index]["held_out/return"] for index in (0, -1))
    print(f"held-out reward: {before:.2f} before, {after:.2f} after")
