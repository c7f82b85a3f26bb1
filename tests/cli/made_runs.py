"""Runs that nobody has trained: config, log and checkpoint, with settings of choice."""

import json
from dataclasses import asdict

import numpy as np

from robopolicy.experiments.default_policies import new_policy
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluation import Evaluation
from robopolicy.policies.catalogue import by_path, describe
from robopolicy.policies.controls import from_label
from robopolicy.training.checkpoint import FEATURES, MEAN, RunFolder
from robopolicy.training.es import ESConfig
from robopolicy.training.rollout import Episode

PAPER = {"engine": "mujoco", "presets": ["paper"], "episode_seconds": None}


def made_run(path, attention="softmax", seed=0, *, done=2, variant="mask", environment=PAPER, **search):
    """A run of `done` generations at `path`; `search` are settings of `ESConfig`. Returns its name."""
    config = ESConfig(**{"generations": 2, "episodes": (1,), "seed": seed, **search})
    spec, encoder = from_label(attention)
    given = {"seed": seed, "patch": 8, "variant": variant, **encoder}
    policy = new_policy(Environment("stepping-stones", "mujoco"), spec, **given)
    settings = {"task": "stepping-stones", "environment": environment, "policy": describe(policy.config)}
    write(RunFolder(path), settings | {"es": asdict(config)}, policy, done)
    return str(path)


def write(folder, settings, policy, done):
    """Write a run with its records up to generation `done`, and with its checkpoint there."""
    if not folder.config_path.is_file():
        folder.create(settings)
    records = [record(number, settings["es"]["seed"]) for number in range(done + 1)]
    folder.metrics_path.write_text("".join(json.dumps(one) + "\n" for one in records))
    features = {FEATURES + path: np.asarray(array) for path, array in by_path(policy.features).items()}
    folder.save(done, {MEAN: policy.parameters, **features})


def record(number, seed):
    """The record of a generation; returns rise by 1 in each."""
    held_out = {"generation": number, "held_out/return": number + 0.1 * seed, "held_out/success": 0.0}
    played = {"return_mean": float(number), "episodes": 2, "steps": 100, "wall_seconds": 1.0}
    return held_out | (played | {"environment": "paper"} if number else {})


def evaluation(name, environment, seeds, level):
    """An evaluation whose returns are `level`, and a little more on each further seed."""
    ending = {"success": False, "cause": "time", "distance": 1.0}
    episodes = tuple(Episode(level + 0.01 * place, 7, ending, 0.0, {}) for place, _ in enumerate(seeds))
    return Evaluation(name, environment, tuple(seeds), episodes, ("distance",), None)
