"""What a budget of FLOPs buys a policy with a memory of attention: errors of reads, FLOPs, bytes of state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from robopolicy.attention import canonical
from robopolicy.attention.catalogue import MECHANISMS
from robopolicy.costs.memory import state_bytes
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.flop_table import price
from robopolicy.plan.reads import COVARIANCES, Window, measured, predicted
from robopolicy.plan.search import EXACT
from robopolicy.policies.base import unflatten
from robopolicy.policies.catalogue import blank_policy
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.policy import Policy
from robopolicy.training.rollout import Playing

Row = dict[str, Any]
SIZES = (32, 64, 128, 256)
# Mechanisms whose reads have no formula here, by sizes that a policy can afford.
MEASURED = {
    "generalized_exponential": ("m=64",),
    "complex_exponential": ("m=64, A=0.9+0.5j",),
    "poisson": ("m=128",),
    "geometric": ("m=128",),
    "poisson_positive": ("m=128",),
    "geometric_positive": ("m=128",),
    "angular_hybrid": ("m=8, n=8", "m=16, n=8", "m=32, n=8"),
    "gaussian_hybrid": ("m=8, n=8", "m=16, n=8"),
    "clustered_hybrid": ("m=64, query_clusters=2, key_clusters=2",),
    "gaussian_mixture_hybrid": ("m=8, n=8, query_clusters=2, key_clusters=2",),
}
APART = 20  # steps between two windows
NO_FORMULA = "no formula of the covariances of its estimates here: --verify measures its error"
TOO_LARGE = (
    "no prediction: the weights of a read err too much for the first order; --verify measures its error"
)


def specs() -> Iterator[tuple[str, str, int]]:
    """Canonical specs of all mechanisms that can be a memory, with their names and their m, 0 if unknown.

    Those with a formula have independent vectors, as the formula assumes. A mechanism that a user has added
    has its example.
    """
    for name in MECHANISMS:
        if name in COVARIANCES:
            for m in SIZES:
                yield canonical(f"{name}(m={m}, coupling=iid)"), name, m
        elif name in MEASURED:
            for counts in MEASURED[name]:
                yield canonical(f"{name}({counts})"), name, 0
        else:
            yield canonical(MECHANISMS[name].example), name, 0


def memory_plan(
    trained: Policy,
    environment: Environment,
    budget: int,
    verify: int,
    frames: int,
    seeds: tuple[int, int],
    on_begin: Callable[[int], None],
    on_step: Callable[[], None],
) -> Row:
    """The mechanisms within `budget`, and exact softmax, for the memory of `trained`, cheapest first.

    Args:
      trained: a policy whose attention is a memory.
      environment: where it plays.
      budget: FLOPs of a policy step.
      verify: frames of other episodes on which all errors are measured.
      frames: frames on which errors are predicted.
      seeds: the first of the recorded episodes, and of those to verify.
      on_begin: called with the number of steps once the budget is checked.
      on_step: called after each step.

    Returns rows as JSON, and those `beyond` the budget without errors. Raises ValueError, in one line, for a
    budget that buys nothing.
    """
    config = trained.config
    assert isinstance(config, IAPConfig)
    offered = [*specs(), (EXACT, EXACT, 0)]
    prices = [price(replace(config, attention=spec)) for spec, _, _ in offered]
    # Without a formula or frames to verify, no error can become known.
    known = [
        flops for (spec, _, m), flops in zip(offered, prices, strict=True) if m or verify or spec == EXACT
    ]
    if min(known) > budget:
        raise _nothing_known(budget, prices)
    on_begin(1 + len(offered))
    rows, beyond = [], list[Row]()
    windows = recorded_windows(trained, environment, frames, seeds[0])
    checked = recorded_windows(trained, environment, verify, seeds[1]) if verify else []
    on_step()
    each = {}
    for (spec, name, m), flops in zip(offered, prices, strict=True):
        state = state_bytes(blank_policy(replace(config, attention=spec)))
        row: Row = {"attention": spec, "flops": flops, "state_bytes": state}
        if flops <= budget or spec == EXACT:
            if spec == EXACT:
                row |= {"error": 0.0, "measured": 0.0, "note": None}
            else:
                if m and name not in each:
                    each[name] = predicted(name, windows)
                error = each[name].of(m) if m else None
                note = None if error is not None else TOO_LARGE if m else NO_FORMULA
                found = measured(spec, checked) if verify else None
                row |= {"error": error, "measured": found, "note": note}
            rows.append(row)
        else:
            beyond.append(row)
        on_step()
    within = [row for row in rows if row["flops"] <= budget and error_of(row) < math.inf]
    if not within:
        raise _nothing_known(budget, prices)
    rows.sort(key=lambda row: row["flops"])
    return {
        "budget": budget,
        "policy": trained.name,
        "memory": {
            "updates": config.memory_steps,
            "tokens": windows[0].k.shape[1],
            "reads": len(windows[0].q),
            "recorded_frames": frames,
            "deviation": float(np.std([window.v for window in windows])),
        },
        "rows": rows,
        "beyond": sorted(beyond, key=lambda row: row["flops"]),
        "choice": min(within, key=error_of),  # of those whose error is known
        "controls": [{"policy": c.label, "flops": price(c)} for c in config.controls()],
    }


def _nothing_known(budget: int, prices: Sequence[int]) -> ValueError:
    unknown = sum(flops <= budget for flops in prices)
    measuring = f"; --verify measures the errors of the {unknown} that it buys" if unknown else ""
    return ValueError(
        f"budget is {budget}: it buys no memory whose error is known; a step takes {min(prices)} at least"
        f"{measuring}"
    )


def error_of(row: Row) -> float:
    """The predicted error of a row, or the measured one where there is none; infinite without either."""
    known = [row[name] for name in ("error", "measured") if row[name] is not None]
    return float(known[0]) if known else math.inf


def recorded_windows(trained: Policy, environment: Environment, count: int, seed: int) -> list[Window]:
    """`count` windows of episodes that the policy plays, from `seed` on, each with as many updates as softmax
    keeps.

    The first one of an episode is at the step that fills the memory. Raises ValueError, in one line, for an
    episode that ends before it.
    """
    config = trained.config
    assert isinstance(config, IAPConfig)
    level = {name: np.asarray(image) for name, image in trained.features["level"].items()}
    exact = replace(Policy.create(replace(config, attention=EXACT), level), parameters=trained.parameters)
    tree = unflatten(trained.functions)(trained.parameters)
    act, keep = jax.jit(trained.functions.act), jax.jit(exact.functions.act)
    ask = jax.jit(exact.functions.asked)
    windows: list[Window] = []
    with closing(environment.showing(trained.functions.observation_shapes).make()) as env:
        while len(windows) < count:
            playing, state, kept = Playing(env, seed), trained.init_state(), exact.init_state()
            steps, episode = 0, None
            while episode is None and len(windows) < count:
                seen = {n: playing.observation[n] for n in trained.functions.observation_shapes}
                action, state = act(tree, trained.features, seen, state)
                _, kept = keep(tree, exact.features, seen, kept)
                steps += 1
                beyond = steps - config.memory_steps
                if beyond >= 0 and beyond % APART == 0:
                    windows += _windows(config, kept, ask(tree, exact.features, seen, kept))
                _, episode = playing.step(np.asarray(action))
            if steps < config.memory_steps:
                raise ValueError(f"policy is {trained.name!r}: its episodes end before its memory is full")
            seed += 1
    return windows[:count]


def _windows(config: IAPConfig, kept: Any, asked: Any) -> list[Window]:
    """The windows of the state of a policy with exact softmax, one for each reader with a memory."""
    result = []
    for reader, question in asked.items():
        k, v, weights = (np.asarray(part, np.float64) for part in kept[reader])
        updates = config.memory_steps
        is_written = (weights.reshape(updates, -1)[-1]) > -1.0
        k, v = k.reshape(updates, -1, k.shape[-1])[:, is_written], v.reshape(updates, -1, v.shape[-1])
        queries, least = np.asarray(question["queries"], np.float64), float(question["least"])
        result.append(Window(queries, k, v[:, is_written, 0], config.memory_decay, least))
    return result
