"""How a training plays its episodes: by processes, on a cluster, in lock step, or on devices of JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from robopolicy.bundles.c_source.tensors import UnsupportedError
from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.bundles.onnx import worker_graph
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.registry import task_class
from robopolicy.experiments.environments import Environment
from robopolicy.naming import one_of
from robopolicy.policies.policy import Policy
from robopolicy.runtime.compiled import CGraph
from robopolicy.runtime.compiler import CompilerError, compiler, library
from robopolicy.runtime.policy import ONNX, RUNTIMES, C
from robopolicy.settings import check_types
from robopolicy.training.batch_pool import BatchPool
from robopolicy.training.capacity import check_fits, check_workers, cores
from robopolicy.training.device import DeviceEvaluator, Sizes, devices_of
from robopolicy.training.es import ESConfig, most_episodes
from robopolicy.training.evaluate import DEADLINE, Evaluator
from robopolicy.training.lockstep import LockStep
from robopolicy.training.pool import LocalPool
from robopolicy.training.strategies import COMPILED
from robopolicy.training.worker import EnvironmentSpec
from robopolicy.training.worlds import Worlds

DEVICE = "device"
IN_PROCESSES = ("local", "ray")
EVALUATORS = ("local", "ray", "vector", DEVICE)
DEVICES = ("cpu", "gpu", "tpu")
IN_LOCK_STEP = 64  # environments of `vector`
DEVICE_ENGINE = "jax"
ON_CPU, ON_ACCELERATOR = 12, 8192  # environments that a device of `device` advances at once
MOST_ON_CPU = (
    1024  # XLA's threads have blocked each other for ever at 4,096; more than some hundred gain nothing
)
LONGEST_DEADLINE = 1e6  # s; the limit of the operating system
PLACE = 2_000_000  # bytes of an environment, at least


@dataclass(frozen=True)
class EvaluatorConfig:
    """How episodes are played.

    Attributes:
      evaluator: local (a pool of processes), ray (a cluster), vector (in lock step, with one policy call
        for all environments), or device (simulation, policy and search as one program on the devices of JAX,
        for tasks with the engine jax).
      workers: number of rollout processes, or of accelerators. Results do not depend on it where `places` is
        given; without, several accelerators divide the episodes, which may round differently.
      deadline: time after which an episode counts as hung and is played again, s. With the engine jax, it
        covers the episodes that a process plays at once, and their compilation; with `vector`, one step of a
        process's environments.
      address: Ray cluster, "auto" or host:port; None starts one on this machine.
      places: number of environments in lock step: of `vector` in all, of `device` on each device, which
        bounds its memory, of `local` with the engine jax in each process. Default: 64 for `vector`, 8192 on
        an accelerator, 12 on a CPU. Refused where processes play one episode at a time.
      device: platform of `device`: cpu, gpu or tpu. Default: the one that JAX prefers.
      policy_runtime: what runs the policy in the processes of `local` and `ray` with another engine than jax:
        onnx, or c, which needs a C compiler on every machine. The two round differently. Default: c where
        this machine's compiler compiles the policy, else onnx, and onnx on a cluster at an `address`. Refused
        for `vector` and `device`, where JAX runs the policy.

    Raises ValueError for a value of the wrong type.
    """

    evaluator: str = "local"
    workers: int = field(default_factory=cores)
    deadline: float = DEADLINE
    address: str | None = None
    places: int | None = None
    device: str | None = None
    policy_runtime: str | None = None

    def __post_init__(self) -> None:
        check_types("EvaluatorConfig:", vars(self), EvaluatorConfig)

    def check(self) -> None:
        """Raise ValueError for values that cannot work, and for a cluster that does not answer."""
        one_of("evaluator", self.evaluator, EVALUATORS)
        self._check_runtime()
        if self.places is not None and self.places < 1:
            raise ValueError(f"places is {self.places}: it must be 1 or more")
        if self.evaluator == "vector":
            check_fits(f"places is {self._in_lock_step}", self._in_lock_step * PLACE, "so many environments")
        if self.device is not None:
            one_of("device", self.device, DEVICES)
            if self.evaluator != DEVICE:
                raise ValueError(f"device is {self.device!r}: only the evaluator device takes one")
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

    def _check_runtime(self) -> None:
        if self.policy_runtime is not None:
            one_of("policy_runtime", self.policy_runtime, RUNTIMES)
            if self.evaluator not in IN_PROCESSES:
                runtime, kind = self.policy_runtime, self.evaluator
                raise ValueError(f"policy_runtime is {runtime!r}: evaluator {kind} runs policies with JAX")
        if self.policy_runtime == C:
            try:
                compiler()
            except CompilerError as error:
                raise ValueError(f"policy_runtime is 'c': {error}") from error

    def that_rounds_alike(self, variants: Sequence[Environment]) -> dict[str, Any]:
        """The settings with which a continued run has the same bits.

        A cluster plays as a pool does, except with the engine jax, whose pool plays many episodes at once.
        """
        is_pool = self.evaluator == "ray" and not all(map(is_batched, variants))
        kind = "local" if is_pool else self.evaluator
        settings = {"evaluator": kind, "places": self.places}
        if self._runs_graphs(variants):
            settings["policy_runtime"] = self.policy_runtime
        return settings

    def continuing(self, whose: str, config: Mapping[str, Any]) -> EvaluatorConfig:
        """The evaluator with the `places` and the `policy_runtime` of a run or grid, unless it has its own.

        `whose` names the run or grid, in words, and `config` has its settings. Raises ValueError, in one
        line, if it has another evaluator.
        """
        stored = stored_evaluator(whose, config)
        kind = stored.get("evaluator", self.evaluator)
        if self.evaluator != kind and (self.evaluator, kind) != ("ray", "local"):
            raise ValueError(f"evaluator is {self.evaluator!r}: {whose} has {kind!r}")
        runtime = stored.get("policy_runtime", ONNX) if self.evaluator in IN_PROCESSES else None
        return replace(
            self,
            places=stored.get("places") if self.places is None else self.places,
            policy_runtime=self.policy_runtime or runtime,
        )

    def settled(self, variants: Sequence[Environment], policy: Policy) -> tuple[EvaluatorConfig, str]:
        """The evaluator with a `policy_runtime` if its processes need one, and in words why it is not c.

        It compiles the policy. A run settles this once, before its processes start, and records it.
        """
        if self.policy_runtime is not None or not self._runs_graphs(variants):
            return self, ""
        runtime, why = ONNX, "machines of a cluster may lack a C compiler"
        if self.evaluator != "ray" or self.address is None:
            try:
                compiler()
                library(c_graph(worker_graph(policy.config, policy.features)).sources)
                runtime, why = C, ""
            except (CompilerError, UnsupportedError) as error:
                why = str(error)
        return replace(self, policy_runtime=runtime), why

    def engine_for(self, environment: Environment) -> str | None:
        """The engine of a training whose engine is not told; None for the task's default."""
        has_worlds = _batch(environment.task) is not None and environment.robot in (None, LAIKAGO.name)
        return DEVICE_ENGINE if has_worlds and self.evaluator in ("local", DEVICE) else None

    def make(self, environments: list[EnvironmentSpec], policy: Policy, episodes: int) -> Evaluator:
        """The evaluator for a policy, with at most one worker for each of `episodes` episodes at a time.

        Without a `policy_runtime`, onnxruntime runs the policy.
        """
        if self.evaluator == "vector":
            return self._lock_step(environments, policy, episodes)
        graph = worker_graph(policy.config, policy.features)
        model = self._compiled(graph) if self.policy_runtime == C else graph
        workers = min(self.workers, episodes)
        arguments = (environments, model, workers, self.deadline, policy.functions.normalised)
        if self.evaluator == "ray":
            from robopolicy.training.ray_pool import RayPool

            return RayPool(*arguments, address=self.address)
        return LocalPool(*arguments)

    def _compiled(self, model: bytes) -> CGraph:
        """The graph as C, compiled once before the processes of this machine need it."""
        try:
            graph = c_graph(model)
        except UnsupportedError as error:
            raise ValueError(f"policy_runtime is 'c': {error}; use onnx") from error
        library(graph.sources)
        return graph

    def for_search(
        self, variants: Sequence[Environment], policy: Policy, search: ESConfig
    ) -> Evaluator | DeviceEvaluator:
        """The evaluator of a search on `variants`, in the order of a curriculum; see `check_search`."""
        if self.evaluator == DEVICE:
            return self._on_devices(variants, policy, search)
        if self._is_batched(variants):
            worlds = {variant.spec().label: batch_of(variant) for variant in variants}
            most = most_episodes(search)
            places = min(self.places or ON_CPU, most)
            workers = min(self.workers, -(-most // places))
            return BatchPool(worlds, policy, workers, places, self.deadline)
        specs = [variant.showing(policy.functions.observation_shapes).spec() for variant in variants]
        return self.make(specs, policy, most_episodes(search))

    def check_search(self, variants: Sequence[Environment], search: ESConfig) -> None:
        """Raise ValueError, in one line, for a search on `variants` that the evaluator cannot play."""
        is_on_cpu = self._is_batched(variants)
        if is_on_cpu:
            if self.policy_runtime == C:
                raise ValueError("policy_runtime is 'c': with the engine jax, JAX runs the policy")
            for variant in variants:
                batch_of(variant)()  # raises ValueError for a preset that the program does not have
        elif self.places is not None and self.evaluator in IN_PROCESSES:
            raise ValueError(
                f"places is {self.places}: the processes of {self.evaluator} play one episode at a time "
                "unless it is local and the engine jax; leave it out"
            )
        if self.evaluator == DEVICE:
            if search.strategy not in COMPILED:
                raise ValueError(
                    f"strategy is {search.strategy!r}: the evaluator device compiles it, which works for "
                    f"{', '.join(COMPILED)}"
                )
            is_on_cpu = devices_of(self.device, self.workers)[0].platform == "cpu"
            for variant in variants:
                batch_of(variant)()
        if is_on_cpu and self.places is not None and self.places > MOST_ON_CPU:
            raise ValueError(f"places is {self.places}: on a CPU it must be from 1 to {MOST_ON_CPU}")

    def _runs_graphs(self, variants: Sequence[Environment]) -> bool:
        """Whether processes play one environment each, without JAX."""
        return self.evaluator in IN_PROCESSES and not self._is_batched(variants)

    def _is_batched(self, variants: Sequence[Environment]) -> bool:
        """Whether processes of this machine play the environments of a chunk at once."""
        return self.evaluator == "local" and all(map(is_batched, variants))

    def _on_devices(
        self, variants: Sequence[Environment], policy: Policy, search: ESConfig
    ) -> DeviceEvaluator:
        devices = devices_of(self.device, self.workers)
        if devices[0].platform == "cpu":
            devices = devices[:1]  # XLA's threads wait for each other for ever where devices share cores
        worlds = {variant.spec().label: batch_of(variant)() for variant in variants}
        last = len(variants) - 1
        sizes = []
        for stage in range(len(variants)):
            each, held_out = search.episodes_on(stage), search.held_out if stage == last else 1
            tasks = max(search.population * each, held_out)
            sizes.append(Sizes(search.population, each, max(each, held_out), tasks))
        places = self.places or (ON_CPU if devices[0].platform == "cpu" else ON_ACCELERATOR)
        most = max(size.tasks for size in sizes)
        # Without a number, each device has its share at once; with one, it is that of the chunks.
        places = min(places, most if self.places else -(-most // len(devices)))
        watched, strategy = policy.functions.normalised, search.make_strategy()
        playing = DeviceEvaluator(
            worlds, policy.flat_act, policy.init_state(), strategy, sizes, places, devices, watched
        )
        playing.prepare(policy.parameters.size)
        return playing

    def _lock_step(self, environments: list[EnvironmentSpec], policy: Policy, episodes: int) -> Evaluator:
        places = min(self._in_lock_step, episodes)
        workers = min(self.workers, places)
        watched, first_state = policy.functions.normalised, policy.init_state()
        return LockStep(environments, policy.flat_act, first_state, workers, places, self.deadline, watched)

    @property
    def _in_lock_step(self) -> int:
        return IN_LOCK_STEP if self.places is None else self.places


def stored_evaluator(whose: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The evaluator in the settings of a run or grid, empty for older ones; `whose` names it, in words."""
    stored = config.get("evaluator", {})
    if not isinstance(stored, Mapping):
        raise ValueError(f"evaluator is {stored!r} in {whose}: its config.json is damaged")
    return stored


def _batch(task: str) -> Callable[..., Worlds] | None:
    """The `batch` of a task's own class: a subclass may differ from what it would inherit."""
    kind = task_class(task)
    return kind.batch if "batch" in vars(kind) else None


def is_batched(environment: Environment) -> bool:
    """Whether the environment's engine plays many worlds in one JAX program."""
    return environment.engine == DEVICE_ENGINE and _batch(environment.task) is not None


def batch_of(environment: Environment) -> Callable[[], Worlds]:
    """A function, which can be pickled, that makes the environment as a JAX program for many worlds.

    Raises ValueError, in one line, for a task that has none, for another engine than jax, and for settings
    that the program does not have.
    """
    batch = _batch(environment.task)
    if batch is None:
        raise ValueError(f"evaluator is 'device': {environment.task} is no JAX program; local plays it")
    if environment.engine != DEVICE_ENGINE:
        raise ValueError(f"engine is {environment.engine!r}: the evaluator device has {DEVICE_ENGINE!r}")
    environment.spec()  # raises for wrappers
    settings = {n: value for n, value in environment.settings.items() if n not in ("engine", "renderer")}
    known = ("preset", "episode_seconds", "config", "cameras", "drift", "robot")
    for name, value in settings.items():
        if name not in known:
            raise ValueError(f"{name} is {value!r}: many worlds in one program have {', '.join(known)} alone")
    return partial(batch, **settings)
