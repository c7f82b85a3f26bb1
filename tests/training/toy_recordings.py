"""Small recordings of the toy demonstrator."""

import hashlib

import toy_demos

from robopolicy.training.demonstration import RecordingConfig
from robopolicy.training.recording import record
from robopolicy.training.worker import EnvironmentSpec

TASK = "toy"
OUTCOMES = ("fraction_in_bowls", "spilled")
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
    settings = RecordingConfig(**{"episodes": 5, "outcomes": OUTCOMES, **config})
    return record(settings, spec(), out, ABOUT, workers)


def digest(dataset):
    """A hash of what the dataset holds."""
    return hashlib.sha256((dataset / "data" / "main_data.hdf5").read_bytes()).hexdigest()
