"""robopolicy plan"""

from __future__ import annotations

import json as json_format
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robopolicy.envs.physics import ENGINES
from robopolicy.envs.registry import check_name
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.runs import load, shipped_policy
from robopolicy.naming import one_of

if TYPE_CHECKING:
    from robopolicy.plan.pairs import Pairs
    from robopolicy.plan.search import Choice, Front
    from robopolicy.policies.policy import Policy

SHIPPED = "angular_hybrid(m=8, n=8)"  # of the policy that a plan is for by default
FRAMES = 16
MOST_FRAMES = 256
# Of --norm: the kernel of shorter tokens is one, whatever estimates it, and of longer ones beyond e^100.
SHORTEST, LONGEST = 0.1, 10.0
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Find the attention that a budget of FLOPs buys: every mechanism, at every patch and width of heads.

    Errors are predicted for the queries and keys of a trained policy, prices are counted. Chosen are the most
    tokens whose attention is as exact as --error asks for, and of these the most exact.

    For example:
        robopolicy plan --task stepping-stones --budget 671046
        robopolicy plan --task bimanual-sweep --budget 195000000 --tokens 400 --verify 4
        robopolicy plan --budget 500000 --norm 1.5
    """

    budget: int
    """FLOPs that a policy step may take."""
    task: Annotated[str, tyro.conf.arg(aliases=("--env",))] = "stepping-stones"
    """stepping-stones, bimanual-sweep or module:Name-v0."""
    policy: str | None = None
    """Run whose queries, keys and settings the plan is for; default: the angular hybrid that ships."""
    norm: float | None = None
    """Length of queries and keys that point in random directions, to plan for in place of recorded ones."""
    tokens: int | None = None
    """Only plans with so many tokens, those of all images together."""
    error: float | None = None
    """Largest error that the choice may have; default: that of angular_hybrid(m=8, n=8) in the policy."""
    verify: int = 0
    """Also measure the errors of the front, on so many frames of other episodes."""
    engine: str | None = None
    """Physics engine that frames are recorded with, bullet or mujoco. Default: bullet where it is
    installed."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Plan and print."""
        trained = self._checked()
        from robopolicy.cli.progress import CountingProgress
        from robopolicy.plan.resolutions import head_dims, resolutions
        from robopolicy.plan.search import Search, check_budget, choose, head_dim_of

        offered = list(resolutions(trained.config))
        counts = sorted({r.tokens for r in offered})
        if self.tokens is not None and self.tokens not in counts:
            allowed = ", ".join(map(str, counts))
            raise ValueError(f"tokens is {self.tokens}: a patch that fits the image makes {allowed}")
        offered = [r for r in offered if self.tokens in (None, r.tokens)]
        check_budget(self.budget, offered)
        widths = head_dims(trained.config)
        with CountingProgress("planning", 1 + len(widths) + len(offered), "steps") as progress:
            progress.begin()
            pairs = self._pairs(trained)
            progress.advance()
            search = Search(pairs, widths, progress.advance)
            fronts = []
            for resolution in offered:
                fronts.append(search.front(resolution))
                progress.advance()
        own = head_dim_of(trained.config)
        references = [search.reference(front.resolution) for front in fronts]
        most = self.error
        if most is None:
            most = next(
                reference.error
                for front, reference in zip(fronts, references, strict=True)
                if front.resolution.head_dim == own
            )
        front, choice = choose(fronts, self.budget, most, own)
        told = {
            "task": self.task,
            "budget": self.budget,
            "policy": self.policy or shipped_policy(self.task, SHIPPED),
            "pairs": {"recorded_frames": FRAMES if self.norm is None else 0, **pairs.summary()},
            "error_allowed": most,
            "resolutions": [self._resolution(f, r, most) for f, r in zip(fronts, references, strict=True)],
            "choice": _row(front, choice),
            "front": [_row(front, c) for c in front.choices],
        }
        if self.verify:
            self._verify(trained, told)
        print(json_format.dumps(told) if self.json else _table(told))

    def _checked(self) -> Policy:
        """The run to plan for. Raises ValueError or FileNotFoundError for what cannot be planned."""
        check_name(self.task)
        if self.budget < 1:
            raise ValueError(f"budget is {self.budget}: it must be 1 or more FLOPs a step")
        if not 0 <= self.verify <= MOST_FRAMES:
            raise ValueError(f"verify is {self.verify}: it must be 0 to {MOST_FRAMES} frames")
        if self.error is not None and not 0 <= self.error < math.inf:
            raise ValueError(f"error is {self.error}: it must be 0 or more")
        if self.norm is not None and not SHORTEST <= self.norm <= LONGEST:
            raise ValueError(f"norm is {self.norm}: it must be from {SHORTEST:g} to {LONGEST:g}")
        if self.engine is not None:
            one_of("engine", self.engine, ENGINES)
        if self.norm is not None and self.verify:
            raise ValueError(
                f"verify is {self.verify}: with --norm there are no recorded frames, so leave one out"
            )
        name = self.policy or shipped_policy(self.task, SHIPPED)
        trained = load(name)
        if trained.run.get("task") != self.task:
            raise ValueError(f"task is {self.task!r}: {name!r} was trained on {trained.run.get('task')!r}")
        if not getattr(trained.config, "sees", True):
            raise ValueError(f"policy is {name!r}: it is given no image, and attends to nothing")
        from robopolicy.plan.search import head_dim_of

        if head_dim_of(trained.config) < 2:
            raise ValueError(
                f"policy is {name!r}: its queries and keys are 1 wide, and a plan needs 2 or more"
            )
        return trained

    def _pairs(self, trained: Policy) -> Pairs:
        from robopolicy.experiments.recorded_heads import recorded_heads
        from robopolicy.plan.pairs import random_directions, sample_pairs
        from robopolicy.plan.search import head_dim_of

        if self.norm is not None:
            return random_directions(self.norm, head_dim_of(trained.config))
        return sample_pairs(
            recorded_heads(trained, self.task, frames=FRAMES, seed=FIRST_SEED, engine=self.engine)
        )

    def _resolution(self, front: Front, reference: Choice, most: float) -> Row:
        """What one resolution offers: the most exact within the budget, and whether softmax wins."""
        within = [c for c in front.choices if c.flops <= self.budget]
        features = [c for c in front.choices if c is not front.exact]
        return {
            **_place(front),
            "without_attention": front.rest,
            "softmax": front.exact.flops,
            "reference": {"attention": reference.spec, "flops": reference.flops, "error": reference.error},
            # Nothing that costs less is as exact as asked for.
            "softmax_wins": not any(c.error <= most for c in features),
            "best": _row(front, within[-1]) if within else None,
        }

    def _verify(self, trained: Policy, told: Row) -> None:
        """Add measured errors to the rows of the front."""
        from robopolicy.experiments.recorded_heads import recorded_heads
        from robopolicy.plan.measure import measured_error
        from robopolicy.plan.search import EXACT

        seed = FIRST_SEED + 1000  # episodes that the prediction has not seen
        heads = recorded_heads(trained, self.task, frames=self.verify, seed=seed, engine=self.engine)
        for row in told["front"]:
            exact = row["attention"] == EXACT
            row["measured"] = 0.0 if exact else measured_error(row["attention"], heads, row["head_dim"])


def _place(front: Front) -> Row:
    r = front.resolution
    return {"tokens": r.tokens, "patch": r.patch, "keep": r.keep, "head_dim": r.head_dim}


def _row(front: Front, choice: Choice) -> Row:
    return {"attention": choice.spec, "flops": choice.flops, "error": choice.error, **_place(front)}


def _table(told: Row) -> str:
    pairs, choice = told["pairs"], told["choice"]
    frames = pairs["recorded_frames"]
    seen = f"of {told['policy']} on {frames} frames" if frames else "in random directions"
    text = [
        f"{told['task']}, {told['budget']:,} FLOPs a step",
        f"queries and keys {seen}: {pairs['query_length']:.2f} and {pairs['key_length']:.2f} long, "
        f"{pairs['angle_mean']:.0f} +- {pairs['angle_std']:.0f} degrees apart",
        "",
    ]
    heads = ["tokens", "patch", "kept", "head", "no attention", "softmax", "angular hybrid", "error"]
    lines = [[*heads, "FLOPs", "error", "most exact within the budget"]]
    for r in told["resolutions"]:
        best, reference = r["best"], r["reference"]
        kept = "all" if r["keep"] is None else f"{r['keep']:.0%}"
        found = ["", "", "nothing"]
        if best is not None:
            found = [f"{best['flops']:,}", f"{best['error']:.3g}", best["attention"]]
        prices = [f"{n:,}" for n in (r["without_attention"], r["softmax"], reference["flops"])]
        place = [f"{r['tokens']:,}", str(r["patch"]), kept, str(r["head_dim"])]
        lines.append([*place, *prices, f"{reference['error']:.3g}", *found])
    text += _aligned(lines)
    text += ["", f"the front with {_placed(choice)}"]
    rows = [row for row in told["front"] if row["flops"] <= told["budget"] or row is told["front"][-1]]
    measured = ["measured"] if "measured" in rows[0] else []
    lines = [["FLOPs", "error", *measured, "attention"]]
    for row in rows:
        errors = [f"{row[name]:.3g}" for name in ("error", *measured)]
        mark = "" if row["flops"] <= told["budget"] else " (beyond the budget)"
        lines.append([f"{row['flops']:,}", *errors, row["attention"] + mark])
    text += [*_aligned(lines), ""]
    won = [r for r in told["resolutions"] if r["softmax_wins"]]
    if won:
        text.append(
            f"exact softmax wins, as nothing cheaper has an error of {told['error_allowed']:.3g} or less: "
            + "; ".join(_placed(r) for r in won)
        )
    text.append(
        f"choice: {choice['attention']} with {_placed(choice)}, "
        f"{choice['flops']:,} FLOPs, error {choice['error']:.3g}"
    )
    if choice["error"] > told["error_allowed"]:
        text.append(f"nothing within the budget has an error of {told['error_allowed']:.3g} or less")
    return "\n".join(text)


def _placed(row: Row) -> str:
    kept = "" if row["keep"] is None else f", {row['keep']:.0%} of them kept"
    return f"{row['tokens']:,} tokens (patch {row['patch']}){kept}, heads {row['head_dim']} wide"


def _aligned(lines: list[list[str]]) -> list[str]:
    """Columns to the right, the last to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [[c.rjust(w) for c, w in zip(line[:-1], widths[:-1], strict=True)] for line in lines]
    return ["  ".join([*cells, line[-1]]).rstrip() for cells, line in zip(padded, lines, strict=True)]
