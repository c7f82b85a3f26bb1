"""Small recordings of the toy demonstrator."""

import toy_demos

from robopolicy.training.recording import RecordingConfig, record
from robopolicy.training.worker import EnvironmentSpec

TASK = "toy"
ABOUT = {
    "task": TASK,
    "format": 1,
    "renderer": "none",
    "environment": {"engine": "none"},
    "recording": {"seed": 0},
}


def spec(**settings):
    return EnvironmentSpec(toy_demos.ID, settings, TASK)


def recorded(out, workers=2, **config):
    return record(RecordingConfig(**{"episodes": 5, **config}), spec(), out, ABOUT, workers)
