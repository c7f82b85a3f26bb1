"""Small runs of the trainer, on returns that are a formula and on the toy environment."""

import numpy as np
import toy

from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.es import ESConfig, train
from robopolicy.training.evaluate import Evaluations
from robopolicy.training.metrics import read
from robopolicy.training.pool import LocalPool
from robopolicy.training.rollout import Episode
from robopolicy.training.worker import EnvironmentSpec

START = np.ones(5, np.float32)
FEATURES = {"draws/front": np.arange(3, dtype=np.float32)}
TIMES = ("seconds", "wall_seconds", "episodes_per_second", "share_in_episodes")


class Quadratic:
    """Returns that fall with the distance to a point which the seed moves a little, in two environments."""

    def __init__(self, broken: int = 0, slope: float = 1.0) -> None:
        self.labels = ("easy", "real")
        self.workers = 1
        self._broken, self._slope = broken, slope

    def evaluate(self, population, seeds, environment=-1, on_episode=None, normaliser=None):
        rows = []
        for index, parameters in enumerate(population):
            row = []
            for seed in seeds:
                target = np.random.default_rng(seed).normal(size=parameters.size) * 0.01
                total = -self._slope * float(np.sum((parameters - target) ** 2))
                total = float("nan") if index < self._broken and len(population) > 1 else total
                row.append(
                    Episode(total, 7, {"distance": environment % 2, "success": False, "cause": "x"}, 0.0, {})
                )
                if on_episode is not None:
                    on_episode()
            rows.append(row)
        return Evaluations(rows)

    def close(self):
        pass


def config(**changed):
    settings = {"generations": 6, "population": 8, "advance_at": (-3.0,), "evaluate_every": 4, "seed": 5}
    return ESConfig(**{**settings, **changed})


def run(
    path,
    evaluator=None,
    *,
    resume=False,
    initial=START,
    features=FEATURES,
    on_record=None,
    normalised=None,
    on_first=lambda info: None,
    **changed,
):
    folder = RunFolder(path)
    if not resume:
        folder.create({})
    train(
        config(**changed),
        run=folder,
        initial=initial,
        features=features,
        evaluator=evaluator or Quadratic(),
        normalised=normalised,
        resume=resume,
        on_generation=on_record,
        on_first=on_first,
    )
    return folder


def log(folder):
    return [{k: v for k, v in r.items() if k not in TIMES} for r in read(folder.metrics_path)]


def trained_on_the_toy(path, workers, *, graph=None, watched=(), **settings):
    environments = [EnvironmentSpec(toy.ID, {}, "toy")]
    made = LocalPool(environments, graph or toy.policy_graph(), workers, watched=watched)
    settings = {"generations": 3, "episodes": (2,), "advance_at": (), **settings}
    try:
        return run(path, made, initial=np.zeros(toy.PARAMETERS, np.float32), **settings)
    finally:
        made.close()
