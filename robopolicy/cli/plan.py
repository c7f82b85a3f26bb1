"""robopolicy plan"""

from __future__ import annotations

import json as json_format
from dataclasses import asdict, dataclass

from robopolicy.cli.options import Json, PlannedEngine, PlannedTask
from robopolicy.cli.progress import CountingProgress
from robopolicy.experiments.planning import Row, plan
from robopolicy.experiments.tables import aligned


@dataclass(frozen=True)
class Plan:
    """Find the attention that a budget of FLOPs buys, over all mechanisms, patches and widths of heads.

    Errors are predicted on the queries and keys of a trained policy; FLOPs are counted. The choice has the
    most tokens whose attention is as exact as --error, and among these the least error. For a policy with a
    memory, errors are those of its reads, and each mechanism has the bytes of its state.

    For example:
        robopolicy plan --task stepping-stones --budget 671046
        robopolicy plan --task bimanual-sweep --budget 195000000 --tokens 400 --verify 4
        robopolicy plan --budget 500000 --norm 1.5
        robopolicy plan --budget 1500000 --policy stepping-stones-memory
    """

    budget: int
    """FLOPs of a policy step."""
    task: PlannedTask = None
    policy: str | None = None
    """Run whose queries, keys and settings the plan is for. Default: the angular hybrid that ships
    for the task, or for the stepping stones."""
    norm: float | None = None
    """Length of queries and keys in random directions, to plan for instead of recorded ones."""
    tokens: int | None = None
    """Number of tokens of all images together. Default: any."""
    error: float | None = None
    """Largest error of the choice. Default: that of angular_hybrid(m=8, n=8) in the policy."""
    verify: int = 0
    """Frames of other episodes on which the errors of the printed mechanisms are measured."""
    engine: PlannedEngine = None
    json: Json = False

    def run(self) -> None:
        """Plan and print."""
        settings = {name: value for name, value in asdict(self).items() if name != "json"}
        with CountingProgress("planning", None, "steps") as progress:
            result = plan(**settings, on_begin=progress.begin, on_step=progress.advance)
        if self.json:
            print(json_format.dumps(result))
        else:
            print(_table_of_reads(result) if "memory" in result else _table(result))


def _table(result: Row) -> str:
    pairs, choice = result["pairs"], result["choice"]
    frames = pairs["recorded_frames"]
    source = f"of {result['policy']} on {frames} frames" if frames else "in random directions"
    text = [
        f"{result['task']}, {result['budget']:,} FLOPs a step",
        f"queries and keys {source}: {pairs['query_length']:.2f} and {pairs['key_length']:.2f} long, "
        f"{pairs['angle_mean']:.0f} +- {pairs['angle_std']:.0f} degrees apart",
        "",
    ]
    titles = ["tokens", "patch", "kept", "head", "besides attention", "softmax", "angular hybrid", "error"]
    lines = [[*titles, "FLOPs", "error", "most exact within the budget"]]
    for row in result["resolutions"]:
        best, reference = row["best"], row["reference"]
        kept = "all" if row["keep"] is None else f"{row['keep']:.0%}"
        last = ["", "", "nothing"]
        if best is not None:
            last = [f"{best['flops']:,}", f"{best['error']:.3g}", best["attention"]]
        prices = [f"{n:,}" for n in (row["without_attention"], row["softmax"], reference["flops"])]
        first = [f"{row['tokens']:,}", str(row["patch"]), kept, str(row["head_dim"])]
        lines.append([*first, *prices, f"{reference['error']:.3g}", *last])
    text += [*aligned(lines, [-1]), "", f"the front with {_resolution(choice)}"]
    within = result["budget"]
    rows = [row for row in result["front"] if row["flops"] <= within or row is result["front"][-1]]
    errors = ["error", "measured"] if "measured" in rows[0] else ["error"]
    lines = [["FLOPs", *errors, "attention"]]
    for row in rows:
        attention = row["attention"] + _beyond(row["flops"], within)
        lines.append([f"{row['flops']:,}", *(f"{row[name]:.3g}" for name in errors), attention])
    text += [*aligned(lines, [-1]), ""]
    won = [
        _resolution(row) + _beyond(row["softmax"], within)
        for row in result["resolutions"]
        if row["softmax_wins"]
    ]
    allowed = f"an error of {result['error_allowed']:.3g} or less"
    if won:
        text.append(f"exact softmax wins, as nothing cheaper has {allowed}: {'; '.join(won)}")
    text.append(
        f"choice: {choice['attention']} with {_resolution(choice)}, "
        f"{choice['flops']:,} FLOPs, error {choice['error']:.3g}"
    )
    if choice["error"] > result["error_allowed"]:
        text.append(f"nothing within the budget has {allowed}")
    controls = ", ".join(f"{control['policy']} {control['flops']:,}" for control in result["controls"])
    text.append(f"FLOPs of controls without attention, to train and compare: {controls}")
    return "\n".join(text)


def _beyond(flops: int, budget: int) -> str:
    """The mark of what the budget does not allow."""
    return "" if flops <= budget else " (beyond the budget)"


def _resolution(row: Row) -> str:
    kept = "" if row["keep"] is None else f", {row['keep']:.0%} of them kept"
    return f"{row['tokens']:,} tokens (patch {row['patch']}){kept}, heads {row['head_dim']} wide"


def _table_of_reads(result: Row) -> str:
    memory, choice = result["memory"], result["choice"]
    text = [
        f"{result['task']}, {result['budget']:,} FLOPs a step: a memory of {memory['updates']} steps of "
        f"{memory['tokens']} tokens, {memory['reads']} reads a step",
        f"errors of reads of {result['policy']} on {memory['recorded_frames']} frames, against exact softmax "
        f"over the same steps; what is written has a standard deviation of {memory['deviation']:.2f}",
        "",
    ]
    lines = [["FLOPs", "bytes of state", "predicted", "measured", "attention"]]
    notes = dict.fromkeys(row["note"] for row in result["rows"] if row["note"])
    marks = {note: "*" * (number + 1) for number, note in enumerate(notes)}
    for row in result["rows"]:
        errors = ["" if row[name] is None else f"{row[name]:.3g}" for name in ("error", "measured")]
        errors[0] = errors[0] or marks[row["note"]]
        numbers = [f"{row['flops']:,}", f"{row['state_bytes']:,}"]
        attention = row["attention"] + _beyond(row["flops"], result["budget"])
        lines.append([*numbers, *errors, attention])
    text += [*aligned(lines, [-1]), *(f"{mark} {note}" for note, mark in marks.items()), ""]
    more = ", ".join(f"{row['attention']} {row['flops']:,}" for row in result["beyond"])
    text += [f"beyond the budget: {more}", ""] if more else []
    found = choice["measured"] if choice["error"] is None else choice["error"]
    costs = f"{choice['flops']:,} FLOPs, {choice['state_bytes']:,} bytes"
    text.append(f"choice: {choice['attention']}, {costs}, error {found:.3g}")
    controls = ", ".join(f"{control['policy']} {control['flops']:,}" for control in result["controls"])
    text.append(f"FLOPs of controls without attention, to train and compare: {controls}")
    return "\n".join(text)
