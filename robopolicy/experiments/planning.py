"""The attention that a budget of FLOPs buys a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from robopolicy.envs.physics import ENGINES
from robopolicy.envs.registry import TASKS, check_name
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.flop_table import price
from robopolicy.experiments.memory_plan import memory_plan
from robopolicy.experiments.recorded_heads import recorded_heads
from robopolicy.experiments.runs import load, shipped_policy, task_of, trained_on
from robopolicy.naming import one_of
from robopolicy.plan.measure import measured_error
from robopolicy.plan.pairs import random_directions, sample_pairs
from robopolicy.plan.resolutions import head_dims, resolutions
from robopolicy.plan.search import EXACT, Choice, Front, Search, check_budget, choose, head_dim_of
from robopolicy.policies.policy import Policy
from robopolicy.settings import check_count, check_number

SHIPPED = "angular_hybrid(m=8, n=8)"  # mechanism of the shipped policy that a plan is for by default
FRAMES, MOST_FRAMES = 16, 256
WINDOWS = 2  # frames of a memory's plan, with all that was written before each
UNSEEN = FIRST_SEED + 1000  # first seed of the frames that verify a prediction
# Length of queries and keys: with shorter ones every kernel is close to 1, with longer ones it exceeds e^100.
SHORTEST, LONGEST = 0.1, 10.0
Row = dict[str, Any]


def plan(
    budget: int,
    *,
    task: str | None = None,
    policy: str | None = None,
    norm: float | None = None,
    tokens: int | None = None,
    error: float | None = None,
    verify: int = 0,
    engine: str | None = None,
    on_begin: Callable[[int], None] = lambda steps: None,
    on_step: Callable[[], None] = lambda: None,
) -> Row:
    """Find the mechanism, token size and head width for a budget.

    Errors are predicted on queries and keys of a trained policy; FLOPs are counted. The choice has the most
    tokens whose attention is as exact as `error`, and among these the least error.

    Args:
      budget: FLOPs of a policy step.
      task: name of the task; default: that of the policy.
      policy: run whose queries, keys and settings the plan is for; default: the shipped angular hybrid of
        the task, or of the stepping stones.
      norm: length of queries and keys in random directions, to plan for instead of recorded ones.
      tokens: number of tokens of all images together; default: any.
      error: largest error of the choice; default: that of `angular_hybrid(m=8, n=8)` in the policy.
      verify: frames of other episodes on which errors of the front are measured.
      engine: physics engine that records frames; refused with `norm`.
      on_begin: called with the number of steps once the input is checked.
      on_step: called after each step.

    For a policy with a memory, errors are those of reads, and `memory_plan` is the plan: it has the policy's
    own tokens and widths, so that `tokens`, `error` and `norm` are refused.

    Returns the plan as JSON, with the FLOPs of controls: the error of an attention does not say what it
    contributes to a policy. Raises ValueError or FileNotFoundError, in one line, for bad input.
    """
    check_count("budget", budget, 1, 10**18)
    check_count("verify", verify, 0, MOST_FRAMES)
    if error is not None:
        check_number("error", error, 0.0)
    if norm is not None:
        check_number("norm", norm, SHORTEST, LONGEST)
        if verify:
            raise ValueError(f"verify is {verify}: with norm there are no recorded frames, so leave one out")
    if engine is not None:
        one_of("engine", engine, ENGINES)
        if norm is not None:
            raise ValueError(f"engine is {engine!r}: with norm no frames are recorded, so leave one out")
    if task is not None:
        check_name(task)
    name = policy or shipped_policy(task or next(iter(TASKS)), SHIPPED)
    trained = _trained(name, task)
    task = task_of(name, trained.run)
    environment = Environment.of(replace(trained_on(trained), engine=engine))
    if getattr(trained.config, "variant", None) == "memory":
        for argument, value in (("tokens", tokens), ("error", error), ("norm", norm)):
            if value is not None:
                raise ValueError(
                    f"{argument} is {value}: {name!r} has a memory, and its plan takes no {argument}"
                )
        seeds = (FIRST_SEED, UNSEEN)
        found = memory_plan(trained, environment, budget, verify, WINDOWS, seeds, on_begin, on_step)
        return {"task": task, **found}
    offered = list(resolutions(trained.config))
    counts = sorted({resolution.tokens for resolution in offered})
    if tokens is not None and tokens not in counts:
        allowed = ", ".join(map(str, counts))
        raise ValueError(f"tokens is {tokens}: a patch that fits the image makes {allowed}")
    offered = [resolution for resolution in offered if tokens in (None, resolution.tokens)]
    check_budget(budget, offered)
    widths, own = head_dims(trained.config), head_dim_of(trained.config)
    on_begin(1 + len(widths) + len(offered))
    if norm is None:
        heads = recorded_heads(trained, environment, frames=FRAMES, seed=FIRST_SEED)
        pairs = sample_pairs(heads)
    else:
        pairs = random_directions(norm, own)
    on_step()
    search = Search(pairs, widths, on_step)
    fronts = []
    for resolution in offered:
        fronts.append(search.front(resolution))
        on_step()
    references = [search.reference(front.resolution) for front in fronts]
    if error is None:
        error = next(
            reference.error
            for front, reference in zip(fronts, references, strict=True)
            if front.resolution.head_dim == own
        )
    front, choice = choose(fronts, budget, error, own)
    rows = [_row(front, each) for each in front.choices]
    if verify:
        heads = recorded_heads(trained, environment, frames=verify, seed=UNSEEN)
        for row in rows:
            exact = row["attention"] == EXACT
            row["measured"] = 0.0 if exact else measured_error(row["attention"], heads, row["head_dim"])
    return {
        "task": task,
        "budget": budget,
        "policy": name,
        "pairs": {"recorded_frames": FRAMES if norm is None else 0, **pairs.summary()},
        "error_allowed": error,
        "resolutions": [_offer(f, r, budget, error) for f, r in zip(fronts, references, strict=True)],
        "choice": _row(front, choice),
        "controls": [{"policy": c.label, "flops": price(c)} for c in trained.config.controls()],
        "front": rows,
    }


def _trained(name: str, task: str | None) -> Policy:
    """The policy to plan for; raises ValueError for one of another task or without attention."""
    trained = load(name)
    if task not in (None, trained.run.get("task")):
        raise ValueError(f"task is {task!r}: {name!r} was trained on {trained.run.get('task')!r}")
    if not getattr(trained.config, "attends", True):
        raise ValueError(f"policy is {name!r}: it has no attention")
    if head_dim_of(trained.config) < 2:
        raise ValueError(f"policy is {name!r}: its queries and keys are 1 wide, and a plan needs 2 or more")
    return trained


def _offer(front: Front, reference: Choice, budget: int, error: float) -> Row:
    """The costs of one resolution, its most exact choice within the budget, and whether softmax wins."""
    within = [choice for choice in front.choices if choice.flops <= budget]
    estimates = [choice for choice in front.choices if choice is not front.exact]
    return {
        **_resolution(front),
        "without_attention": front.rest,
        "softmax": front.exact.flops,
        "reference": {"attention": reference.spec, "flops": reference.flops, "error": reference.error},
        "softmax_wins": not any(choice.error <= error for choice in estimates),  # nothing cheaper is as exact
        "best": _row(front, within[-1]) if within else None,
    }


def _resolution(front: Front) -> Row:
    r = front.resolution
    return {"tokens": r.tokens, "patch": r.patch, "keep": r.keep, "head_dim": r.head_dim}


def _row(front: Front, choice: Choice) -> Row:
    return {"attention": choice.spec, "flops": choice.flops, "error": choice.error, **_resolution(front)}
