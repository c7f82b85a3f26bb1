"""The evaluator whose environments are JAX programs: a whole generation is one compiled call.

Episodes advance in chunks of a fixed size, one chunk after another on each device. A chunk is the unit that
is compiled, and every device draws the population and updates the search by itself, so results do not depend
on the number of devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec
from numpy.typing import NDArray

from robopolicy.training.capacity import machine_memory
from robopolicy.training.evaluate import Evaluations
from robopolicy.training.rollout import Episode
from robopolicy.training.strategies import with_finite
from robopolicy.training.strategy import Strategy
from robopolicy.training.worlds import Played, Worlds, episodes_of, player

AXIS = "devices"
REPEATED, SPLIT = Spec(), Spec(AXIS)


class Sizes(NamedTuple):
    """What a program is compiled for: `candidates` in a population, `episodes` of each in a generation.

    seeds, tasks: the largest number of different seeds, and of episodes, in one call.
    """

    candidates: int
    episodes: int
    seeds: int
    tasks: int


class Call(NamedTuple):
    """A call of a program: `candidates` play each of `seeds` with a `normaliser` [2K].

    `keys` are those to ask and to tell the strategy of `state`. It draws the population [N, P] where that is
    None.
    """

    population: NDArray[np.float32] | None
    seeds: Sequence[int]
    normaliser: NDArray[np.float32] | None
    keys: tuple[Array, Array]
    state: Any
    candidates: int


class _Inputs(NamedTuple):
    """Arguments of a program; `rows` and `columns` [D, C, B] say which candidate plays which course."""

    ask_key: Array
    tell_key: Array
    state: Any
    given: Any
    is_given: Any
    normaliser: Any
    courses: Any
    rows: Any
    columns: Any
    chunks: Any


class _Program:
    """One environment: its compiled generation."""

    def __init__(
        self,
        worlds: Worlds,
        play: Callable[..., Played],
        strategy: Strategy,
        sizes: Sizes,
        places: int,
        mesh: Mesh,
    ) -> None:
        self._worlds, self._play, self._strategy, self._mesh = worlds, play, strategy, mesh
        self.sizes, self._places = sizes, places
        self._devices = mesh.devices.size
        self._chunks = -(-sizes.tasks // (places * self._devices))
        self._compiled: Any = None

    def __call__(self, call: Call) -> tuple[Any, Any, Played]:
        """Population, the state after it, and the episodes of each candidate with the seeds in turn."""
        inputs = self._inputs(call)
        if self._compiled is None:
            self._compiled = self._compile(inputs)
        drawn, told, played = self._compiled(inputs)
        count = call.candidates * len(call.seeds)
        flat = jax.tree.map(
            lambda part: np.asarray(part).swapaxes(0, 1).reshape(-1, *part.shape[3:])[:count], played
        )
        return np.asarray(drawn), told, flat

    def prepare(self, parameters: int, watched: Sequence[str]) -> None:
        """Compile for policies of so many parameters; raises ValueError if the memory does not suffice."""
        key = jax.random.key(0)
        _, seen = jax.eval_shape(self._worlds.reset, self._worlds.courses([0]))
        normaliser = np.zeros(2 * sum(seen[name].shape[1] for name in watched), np.float32)
        state = self._strategy.init(key, jnp.zeros(parameters))
        self._compiled = self._compile(self._inputs(Call(None, [0], normaliser, (key, key), state, 1)))

    def _inputs(self, call: Call) -> _Inputs:
        seeds, count = call.seeds, call.candidates * len(call.seeds)
        sizes, padding = self.sizes, self.sizes.seeds - len(seeds)
        given = np.zeros((sizes.candidates, self._strategy.mean(call.state).size), np.float32)
        if call.population is not None:
            given[: len(call.population)] = call.population
        numbers = np.minimum(np.arange(self._chunks * self._devices * self._places), count - 1)
        rows, columns = (
            # Chunk c of all is chunk c // D of device c % D.
            part.astype(np.int32).reshape(self._chunks, self._devices, self._places).swapaxes(0, 1)
            for part in np.divmod(numbers, len(seeds))
        )
        return _Inputs(
            *call.keys,
            call.state,
            given,
            np.bool_(call.population is not None),
            np.zeros(0, np.float32) if call.normaliser is None else call.normaliser,
            self._worlds.courses([*seeds, *[seeds[0]] * padding]),
            rows,
            columns,
            np.int32(-(-count // (self._places * self._devices))),
        )

    def _compile(self, inputs: _Inputs) -> Any:
        repeated = jax.tree.map(lambda _: REPEATED, inputs)
        specs = repeated._replace(rows=SPLIT, columns=SPLIT)
        on_devices = jax.shard_map(
            self._on_a_device,
            mesh=self._mesh,
            in_specs=(specs,),
            out_specs=(REPEATED, REPEATED, SPLIT),
            check_vma=False,
        )
        places = jax.tree.map(partial(NamedSharding, self._mesh), specs)
        # Some accelerators round factors of products to ten bits by default.
        with jax.default_matmul_precision("highest"):
            compiled = jax.jit(on_devices, in_shardings=(places,)).lower(inputs).compile()
        self._check_memory(compiled)
        return compiled

    def _check_memory(self, compiled: Any) -> None:
        """Raise ValueError if the program does not fit in the memory of a device."""
        plan = compiled.memory_analysis()
        if plan is None:  # the platform does not tell
            return
        needed = plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes
        have = min(_free_memory(device, self._devices) for device in self._mesh.devices.flat)
        if needed > have:
            most = max(1, int(self._places * have / needed))
            raise ValueError(
                f"places is {self._places}: so many environments at once need {needed / 1e9:,.1f} GB, and "
                f"the device has {have / 1e9:,.1f}: at most about {most} fit"
            )

    def _on_a_device(self, inputs: _Inputs) -> tuple[Array, Any, Played]:
        """A generation, of which the device plays its own chunks [1, C, B]."""
        sizes, strategy = self.sizes, self._strategy
        asked, state = strategy.ask(inputs.ask_key, inputs.state)
        population = jnp.where(inputs.is_given, inputs.given, asked.astype(jnp.float32))
        # Compiled by themselves, parts round alike whatever the number of chunks and devices.
        population, asked, state = lax.optimization_barrier((population, asked, state))
        played = self._chunks_of(population, inputs)
        total = lax.all_gather(played.total, AXIS)  # [D, C, B]
        in_turn = jnp.swapaxes(total, 0, 1).ravel()[: sizes.candidates * sizes.episodes]
        in_turn, asked, state = lax.optimization_barrier((in_turn, asked, state))
        returns = with_finite(in_turn.reshape(sizes.candidates, sizes.episodes).mean(axis=1))
        told = strategy.tell(inputs.tell_key, asked, returns, state)
        return population, told, jax.tree.map(lambda leaf: leaf[None], played)

    def _chunks_of(self, population: Array, inputs: _Inputs) -> Played:
        """The episodes [C, B] of the chunks that are in use."""

        def play(index: Array) -> Played:
            chosen = jax.tree.map(lambda leaf: leaf[inputs.columns[0, index]], inputs.courses)
            return self._play(population[inputs.rows[0, index]], chosen, inputs.normaliser)

        blank = jax.tree.map(
            lambda leaf: jnp.zeros((self._chunks, *leaf.shape), leaf.dtype),
            jax.eval_shape(play, jnp.array(0)),
        )

        def next_chunk(index: Array, results: Played) -> Played:
            return jax.tree.map(lambda all_, one: all_.at[index].set(one), results, play(index))

        return lax.fori_loop(0, inputs.chunks, next_chunk, blank)


def _free_memory(device: Any, devices: int) -> int:
    """Bytes that one of so many devices has left; CPUs share the memory of the machine."""
    statistics = device.memory_stats()
    if statistics is None:
        return machine_memory() // devices
    return int(statistics["bytes_limit"] - statistics["bytes_in_use"])


def devices_of(platform: str | None, most: int) -> list[Any]:
    """At most `most` devices of `platform` (cpu, gpu, tpu), by default of the one that JAX prefers.

    Raises ValueError for a platform that JAX does not find.
    """
    try:
        return jax.devices(platform)[:most]
    except RuntimeError as error:
        raise ValueError(f"device is {platform!r}: JAX finds {jax.default_backend()} here") from error


class DeviceEvaluator:
    """Plays populations on the devices of JAX. Its methods are those of `evaluate.Evaluator`."""

    def __init__(
        self,
        worlds: Mapping[str, Worlds],
        act: Callable[..., tuple[Array, Any]],
        first_state: Any,
        strategy: Strategy,
        sizes: Sequence[Sizes],
        places: int,
        devices: Sequence[Any],
        watched: tuple[str, ...] = (),
    ) -> None:
        """Without `prepare`, the first call for each environment compiles it.

        Args:
          worlds: the environments by label, in the order of a curriculum; the last one is the target.
          act: pure function (parameters [P], observation, state) -> action [A], next state; if observations
            are `watched`, it takes a normaliser [2K], too.
          first_state: the state in which every episode begins, a pytree of arrays; `()` without one.
          strategy: the evolution strategy, compiled together with the episodes.
          sizes: what each environment's program is compiled for.
          places: environments that a device advances at the same time, which bounds its memory.
          devices: devices of JAX that share the episodes.
          watched: vector observations whose moments are part of each Episode.
        """
        self.labels, self._devices = tuple(worlds), tuple(devices)
        mesh = Mesh(np.array(self._devices), (AXIS,))
        self._worlds, self._strategy, self._watched = tuple(worlds.values()), strategy, watched
        self._programs = [
            _Program(one, player(one, act, first_state, watched, bool(watched)), strategy, size, places, mesh)
            for one, size in zip(self._worlds, sizes, strict=True)
        ]

    @property
    def workers(self) -> int:
        """The number of devices."""
        return len(self._devices)

    def prepare(self, parameters: int) -> None:
        """Compile all programs for policies of so many parameters.

        Raises ValueError, in one line, for more places than the memory of a device has room for.
        """
        for program in self._programs:
            program.prepare(parameters, self._watched)

    def generation(
        self,
        keys: tuple[Array, Array],
        state: Any,
        seeds: Sequence[int],
        environment: int,
        on_episode: Callable[[], None] | None,
        normaliser: NDArray[np.float32] | None,
    ) -> tuple[Any, Any, Evaluations]:
        """Ask the strategy with `keys[0]`, play all candidates with all `seeds`, tell it with `keys[1]`.

        Returns the population [N, P], the new state, and the episodes. A return that is not finite counts as
        the lowest finite one.
        """
        program, began = self._programs[environment], time.monotonic()
        count = program.sizes.candidates
        drawn, state, played = program(Call(None, seeds, normaliser, keys, state, count))
        return drawn, state, self._evaluations(environment, played, len(seeds), began, on_episode)

    def evaluate(
        self,
        population: NDArray[np.float32],
        seeds: Sequence[int],
        environment: int = -1,
        on_episode: Callable[[], None] | None = None,
        normaliser: NDArray[np.float32] | None = None,
    ) -> Evaluations:
        """See `evaluate.Evaluator.evaluate`."""
        population = np.asarray(population, np.float32)
        environment %= len(self._programs)
        program = self._programs[environment]
        key = jax.random.key(0)
        state = self._strategy.init(key, jnp.zeros(population.shape[1]))
        each = min(len(seeds), program.sizes.seeds)
        most = min(program.sizes.candidates, program.sizes.tasks // each)
        rows: list[list[Episode]] = []
        for first in range(0, len(population), most):
            some = population[first : first + most]
            block: list[list[Episode]] = [[] for _ in some]
            for begin in range(0, len(seeds), each):
                share, began = seeds[begin : begin + each], time.monotonic()
                _, _, played = program(Call(some, share, normaliser, (key, key), state, len(some)))
                results = self._evaluations(environment, played, len(share), began, on_episode)
                for row, more in zip(block, results.episodes, strict=True):
                    row.extend(more)
            rows.extend(block)
        return Evaluations(rows)

    def _evaluations(
        self, environment: int, played: Played, each: int, began: float, on_episode: Callable[[], None] | None
    ) -> Evaluations:
        seconds = (time.monotonic() - began) * self.workers
        episodes = episodes_of(played, self._worlds[environment].causes, seconds)
        if on_episode is not None:
            for _ in episodes:
                on_episode()
        return Evaluations([episodes[first : first + each] for first in range(0, len(episodes), each)])

    def close(self) -> None:
        """Release the compiled programs."""
        self._programs = []
