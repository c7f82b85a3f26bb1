"""The evaluators by the names that commands know them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from robopolicy.naming import one_of

if TYPE_CHECKING:
    from robopolicy.policies.base import Policy
    from robopolicy.policies.catalogue import PolicyConfig
    from robopolicy.training.evaluate import Evaluator
    from robopolicy.training.worker import EnvironmentSpec

EVALUATORS = ("local", "ray", "vector")
LONGEST_DEADLINE = 1e6  # s; what the operating system waits for at once has a limit


class Players(NamedTuple):
    """Who plays the episodes: an evaluator's name, and what it is made with."""

    evaluator: str
    workers: int
    deadline: float
    address: str | None
    places: int

    def check(self) -> None:
        """Raise ValueError for what can be refused at once, a cluster that nobody answers from included."""
        one_of("evaluator", self.evaluator, EVALUATORS)
        for name in ("workers", "places"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 1 or more")
        if not 0 < self.deadline <= LONGEST_DEADLINE:
            raise ValueError(
                f"deadline is {self.deadline}: it must be a number of seconds above 0, "
                f"and at most {LONGEST_DEADLINE:.0f}"
            )
        if self.evaluator == "ray":
            from robopolicy.training.ray_pool import connect

            connect(self.address, self.workers)
        elif self.address is not None:
            raise ValueError(f"address is {self.address!r}: only the evaluator ray takes one")

    def make(
        self, environments: list[EnvironmentSpec], config: PolicyConfig, policy: Policy, features: Any
    ) -> Evaluator:
        """The evaluator for a policy whose parameters it is given with every candidate."""
        if self.evaluator == "vector":
            return self._lock_step(environments, policy, features)
        from robopolicy.export.onnx import worker_graph

        model = worker_graph(config, features)
        given = (environments, model, self.workers, self.deadline, policy.normalised)
        if self.evaluator == "ray":
            from robopolicy.training.ray_pool import RayPool

            return RayPool(*given)
        from robopolicy.training.pool import LocalPool

        return LocalPool(*given)

    def _lock_step(self, environments: list[EnvironmentSpec], policy: Policy, features: Any) -> Evaluator:
        from robopolicy.policies.base import split
        from robopolicy.training.lockstep import LockStep

        def act(vector: Any, observation: Any) -> Any:
            parameters, frozen = split(policy, features, vector)
            return policy.act(parameters, frozen, observation)

        return LockStep(environments, act, self.workers, self.places, self.deadline, policy.normalised)
