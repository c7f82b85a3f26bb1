"""Demonstrations in memory, and a policy and a training for them."""

import numpy as np

from robopolicy.policies.vision_performer_config import ImageInput, VectorInput, VisionPerformerConfig
from robopolicy.training.bc import BCConfig

IMAGE, ACTIONS, POSES = 24, 12, 14
POLICY = VisionPerformerConfig(
    "positive(m=4)", (ImageInput("image", IMAGE, IMAGE),), (VectorInput("poses", POSES),), ACTIONS,
    patch=12, width=8, depth=1, heads=2, mlp=8, encoding=16, hidden=16, samples=32,
    head="squared_error",
)  # fmt: skip
CONFIG = BCConfig(
    steps=12, batch=8, warmup=2, learning_rate=1e-2, mirror=False, jitter=0.0, validation=0.2,
    validate_every=4, checkpoint_every=4,
)  # fmt: skip


class ToyFrames:
    """In place of Frames: the brighter half shows the sign of the first action, `poses` the second action."""

    def __init__(self, episodes=6, steps=20, seed=0):
        rng = np.random.default_rng(seed)
        frames = episodes * steps
        self.episode = np.repeat(np.arange(episodes), steps)
        self.vectors = {"poses": rng.uniform(-1, 1, (frames, POSES)).astype(np.float32)}
        self.left = rng.random(frames) < 0.5
        self.action = np.zeros((frames, ACTIONS), np.float32)
        self.action[:, 0] = np.where(self.left, 0.8, -0.8)
        self.action[:, 1] = 0.9 * self.vectors["poses"][:, 0]

    def images(self, indices):
        out = np.full((len(indices), IMAGE, IMAGE, 3), 40, np.uint8)
        for image, index in zip(out, indices, strict=True):
            half = np.s_[:, : IMAGE // 2] if self.left[index] else np.s_[:, IMAGE // 2 :]
            image[half] = 200
        return {"image": out}
