"""What `contents` tells, in lines for people."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any

Told = dict[str, Any]

WIDTH = 100  # characters of a fact


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _facts(facts: Sequence[tuple[str, Any]]) -> list[str]:
    """What is known, under each other; what is not known is left out."""
    lines = []
    for title, value in facts:
        if value not in (None, ""):
            first, *rest = textwrap.wrap(str(value), WIDTH, break_long_words=False, break_on_hyphens=False)
            lines += [f"  {title:<14}{first}", *(f"{'':16}{line}" for line in rest)]
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows under `head`: what they are called on the left, the rest on the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  "
        + "  ".join(
            [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (head, *rows)
    ]


def _settings(settings: Any) -> str:
    if not isinstance(settings, dict):
        return ""
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value not in (None, []))


def _run(told: Told) -> list[str]:
    config, unit = told["config"], {"es": "generation", "bc": "step"}[told["trainer"]]
    why = f" ({told['why']})" if told["why"] else ""
    policy = dict(config["policy"])
    versions, git = config.get("versions"), config.get("git")
    made = (
        [f"robopolicy {versions['robopolicy']}"]
        if isinstance(versions, dict) and "robopolicy" in versions
        else []
    )
    made += [f"commit {str(git['commit'])[:12]}"] if isinstance(git, dict) and "commit" in git else []
    sizes = told["checkpoints"]
    lines = [f"run {told['path']}: {told['status']} at {unit} {told['done']} of {told['total']}{why}"]
    lines += _facts(
        [
            ("task", config.get("task")),
            ("attention", policy.pop("attention", None)),
            ("policy", _settings({k: v for k, v in policy.items() if not _is_structure(v)})),
            ("trainer", f"{told['trainer']}: {_settings(config[told['trainer']])}"),
            ("made with", ", ".join(made)),
            ("written", time.strftime("%Y-%m-%d %H:%M", time.localtime(told["written"]))),
            ("best", "" if told["best"] is None else f"{told['measure']} {told['best']:.4g}"),
            ("FLOPs a step", f"{told['flops']:,}"),
            ("size", _bytes(told["bytes"])),
            ("checkpoints", ", ".join(f"{n} ({_bytes(size)})" for n, size in sizes.items()) or "none yet"),
        ]
    )
    if told["metrics"]:
        columns = ("first", "last", "least", "most")
        rows = [[name, *(f"{seen[c]:.5g}" for c in columns)] for name, seen in told["metrics"].items()]
        lines += ["", f"log: {told['records']} records", *_table(("", *columns), rows)]
    if "parameters" in told:
        rows = [[name, str(p["shape"]), f"{p['rms']:.3g}"] for name, p in told["parameters"].items()]
        title = f"parameters of {told['checkpoint']}: {told['parameter_count']:,}"
        lines += ["", title, *_table(("", "shape", "rms"), rows)]
        rows = [[name, str(shape)] for name, shape in told["features"].items()]
        lines += ["", "features, which nothing trains", *_table(("", "shape"), rows)]
    return lines


def _bundle(told: Told) -> list[str]:
    flops = told["flops"].get("total") if isinstance(told["flops"], dict) else None
    lines = [f"bundle {told['path']}: all {len(told['files']) + 1} files are as SHA256SUMS lists them"]
    lines += _facts(
        [
            ("task", told["task"]),
            ("attention", told["attention"]),
            ("parameters", told["parameters"]),
            ("FLOPs a step", f"{flops:,}" if type(flops) is int else None),
            (
                "period",
                f"{1e3 * told['control_period']:g} ms, a command within {1e3 * told['deadline']:g} ms",
            ),
            ("golden", f"{told['observations']} observations"),
            ("needs", _settings(told["requires"])),
            ("size", _bytes(told["bytes"])),
            ("files", ", ".join(f"{name} ({_bytes(size)})" for name, size in told["files"].items())),
        ]
    )
    for part in ("inputs", "outputs"):
        rows = [row for name, value in told[part].items() for row in _entries(name, value)]
        lines += ["", part, *_table(("", "type", "unit", "low", "high"), rows)]
    return lines


def _entries(name: str, value: Told) -> list[list[str]]:
    """An image in one row; a vector in one and another for each of its numbers."""
    kind = f"{value['dtype']}{value['shape']}"
    if not value["entries"]:
        return [[name, kind, value["units"][0], f"{value['low']:g}", f"{value['high']:g}"]]
    each = zip(value["entries"], value["units"], value["low"], value["high"], strict=True)
    return [
        [name, kind, "", "", ""],
        *([f"  {e}", "", u, f"{low:g}", f"{high:g}"] for e, u, low, high in each),
    ]


def _dataset(told: Told) -> list[str]:
    lengths, scores = told["lengths"], told["scores"]
    went = None if scores is None else f"{told['success_rate']:.1%}, mean score {told['score_mean']:.1%}"
    lines = [f"dataset {told['path']}: {told['episodes']} episodes, {told['steps']:,} steps"]
    lines += _facts(
        [
            ("task", told["task"]),
            ("lengths", f"{min(lengths)} to {max(lengths)} steps, mean {told['steps'] / len(lengths):.1f}"),
            ("success", went),
            ("returns", f"{min(told['returns']):.2f} to {max(told['returns']):.2f}"),
            ("environment", _settings(told["environment"])),
            ("recording", _settings(told["recording"])),
            ("renderer", told["renderer"]),
            ("size", _bytes(told["bytes"])),
        ]
    )
    columns = {**told["observations"], "actions": told["actions"]}
    images = {name: seen for name, seen in columns.items() if seen["dtype"] == "uint8"}
    lines += ["", *(f"{name:<8} uint8{seen['shape']}, from 0 to 255" for name, seen in images.items())]
    for name, seen in ((name, seen) for name, seen in columns.items() if name not in images):
        lines.append(f"{name:<8} {seen['dtype']}{seen['shape']}, over all steps")
        lines += [
            f"  {end:<6} " + " ".join(f"{number:+.2f}" for number in seen[end]) for end in ("low", "high")
        ]
    return lines


def _episode(told: Told) -> list[str]:
    lines = [
        f"episode {told['episode']} of {told['path']}: {told['steps']} steps, return {told['return']:.2f}"
    ]
    facts = [("seed", told["seed"]), ("score", told["score"])]
    facts += [(name, told.get(name)) for name in ("video", "sheet")]
    lines += _facts(facts)
    seen = told["actions"]
    lines.append(f"  actions {seen['dtype']}{seen['shape']}")
    lines += [
        f"    {end:<6} " + " ".join(f"{number:+.2f}" for number in seen[end]) for end in ("low", "high")
    ]
    return lines


WORDS: dict[str, Callable[[Told], list[str]]] = {
    "run": _run,
    "bundle": _bundle,
    "dataset": _dataset,
    "episode": _episode,
}


def _is_structure(value: Any) -> bool:
    """Whether a setting is names, or parts with settings of their own, which a line has no room for."""
    return isinstance(value, list) and any(isinstance(part, str | dict | list) for part in value)
