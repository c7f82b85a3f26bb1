"""How a training plays its episodes: by a pool of processes, on a cluster, or in lock step."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from robopolicy.bundles.onnx import worker_graph
from robopolicy.naming import one_of
from robopolicy.policies.base import unflatten, with_normaliser
from robopolicy.policies.policy import Policy
from robopolicy.settings import check_types
from robopolicy.training.capacity import check_fits, check_workers
from robopolicy.training.evaluate import DEADLINE, Evaluator
from robopolicy.training.lockstep import LockStep
from robopolicy.training.pool import LocalPool
from robopolicy.training.worker import EnvironmentSpec

EVALUATORS = ("local", "ray", "vector")
LONGEST_DEADLINE = 1e6  # s; the limit of the operating system
PLACE = 2_000_000  # bytes of an environment, at least


@dataclass(frozen=True)
class EvaluatorConfig:
    """How episodes are played.

    Attributes:
      evaluator: local (a pool of processes), ray (a cluster), or vector (in lock step, with one policy call
        for all environments: for an accelerator).
      workers: number of rollout processes. Results do not depend on it.
      deadline: time after which an episode counts as hung and is played again, s.
      address: Ray cluster, "auto" or host:port; None starts one on this machine.
      places: number of environments in lock step, for `vector`.

    Raises ValueError for a value of the wrong type.
    """

    evaluator: str = "local"
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    deadline: float = DEADLINE
    address: str | None = None
    places: int = 64

    def __post_init__(self) -> None:
        check_types("EvaluatorConfig:", vars(self), EvaluatorConfig)

    def check(self) -> None:
        """Raise ValueError for values that cannot work, and for a cluster that does not answer."""
        one_of("evaluator", self.evaluator, EVALUATORS)
        if self.places < 1:
            raise ValueError(f"places is {self.places}: it must be 1 or more")
        check_fits(f"places is {self.places}", self.places * PLACE, "so many environments")
        if self.evaluator != "ray" or self.address is None:  # on this machine
            check_workers(self.workers)
        elif self.workers < 1:
            raise ValueError(f"workers is {self.workers}: it must be 1 or more")
        if not 0 < self.deadline <= LONGEST_DEADLINE:
            raise ValueError(
                f"deadline is {self.deadline}: it must be a number of seconds above 0, "
                f"and at most {LONGEST_DEADLINE:.0f}"
            )
        if self.evaluator == "ray":
            from robopolicy.training.ray_pool import check_cluster

            check_cluster(self.address)
        elif self.address is not None:
            raise ValueError(f"address is {self.address!r}: only the evaluator ray takes one")

    def make(self, environments: list[EnvironmentSpec], policy: Policy, episodes: int) -> Evaluator:
        """The evaluator for a policy, with at most one worker for each of `episodes` episodes at a time."""
        if self.evaluator == "vector":
            return self._lock_step(environments, policy, episodes)
        model = worker_graph(policy.config, policy.features)
        workers = min(self.workers, episodes)
        arguments = (environments, model, workers, self.deadline, policy.functions.normalised)
        if self.evaluator == "ray":
            from robopolicy.training.ray_pool import RayPool

            return RayPool(*arguments, address=self.address)
        return LocalPool(*arguments)

    def _lock_step(self, environments: list[EnvironmentSpec], policy: Policy, episodes: int) -> Evaluator:
        functions, features = policy.functions, policy.features
        inverse = unflatten(functions)

        def act(vector: Any, observation: Any, normaliser: Any = None) -> Any:
            frozen = with_normaliser(functions, features, normaliser)
            return functions.act(inverse(vector), frozen, observation)

        places = min(self.places, episodes)
        workers = min(self.workers, places)
        return LockStep(environments, act, workers, places, self.deadline, functions.normalised)
