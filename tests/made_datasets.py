"""Datasets that nobody has recorded."""

import json

import h5py
import numpy as np


def black_frames(path, seed=None):
    """Two episodes of black images, with the columns of the sweep.

    Without a seed, poses and actions are zeros.
    """
    rng = np.random.default_rng(seed)
    (path / "data").mkdir(parents=True)
    about = {"task": "bimanual-sweep", "format": 1, "environment": {}, "recording": {}, "renderer": "none"}
    (path / "data" / "metadata.json").write_text(json.dumps({"total_episodes": 2, "robopolicy": about}))
    with h5py.File(path / "data" / "main_data.hdf5", "w") as file:
        for number in range(2):
            scale = 0.0 if seed is None else 0.5
            episode = file.create_group(f"episode_{number}")
            episode.attrs["total_steps"] = 4
            episode["observations/image"] = np.zeros((5, 48, 48, 3), np.uint8)
            episode["observations/poses"] = (scale * rng.uniform(-1, 1, (5, 14))).astype(np.float32)
            episode["actions"] = (scale * rng.uniform(-1, 1, (4, 12))).astype(np.float32)
            episode["rewards"] = np.zeros(4, np.float32)
            episode["terminations"] = np.arange(4) == 3
            episode["truncations"] = np.zeros(4, bool)
    return path
