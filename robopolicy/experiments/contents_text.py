"""The result of `contents` as lines of text."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any

from robopolicy.experiments.contents import Contents
from robopolicy.experiments.tables import aligned
from robopolicy.naming import counted

WIDTH = 100  # characters of a fact


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _sizes(files: dict[str, int]) -> str:
    return ", ".join(f"{name} ({_bytes(size)})" for name, size in files.items())


def _facts(*facts: tuple[str, Any]) -> list[str]:
    """A line for each fact; None and "" have no line."""
    lines = []
    for title, value in facts:
        if value not in (None, ""):
            first, *rest = textwrap.wrap(str(value), WIDTH, break_long_words=False, break_on_hyphens=False)
            lines += [f"  {title:<14}{first}", *(f"{'':16}{line}" for line in rest)]
    return lines


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["", title, *(f"  {line}" for line in aligned([["", *head], *rows]))]


def _settings(settings: Any) -> str:
    if not isinstance(settings, dict):
        return ""
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value not in (None, []))


def _limits(column: Contents, indent: str) -> list[str]:
    return [
        f"{indent}{end:<6} {' '.join(f'{number:+.2f}' for number in column[end])}" for end in ("low", "high")
    ]


def _run(run: Contents) -> list[str]:
    config, unit = run["config"], {"es": "generation", "bc": "step"}[run["trainer"]]
    why = f" ({run['why']})" if run["why"] else ""
    policy = dict(config["policy"])
    versions, git = config.get("versions"), config.get("git")
    code = []
    if isinstance(versions, dict) and "robopolicy" in versions:
        code.append(f"robopolicy {versions['robopolicy']}")
    if isinstance(git, dict) and "commit" in git:
        code.append(f"commit {str(git['commit'])[:12]}")
    lines = [f"run {run['path']}: {run['status']} at {unit} {run['done']} of {run['total']}{why}"]
    lines += _facts(
        ("task", config.get("task")),
        ("attention", policy.pop("attention", None)),
        ("policy", _settings({k: v for k, v in policy.items() if not _is_structure(v)})),
        ("trainer", f"{run['trainer']}: {_settings(config[run['trainer']] | run['limits'])}"),
        ("made with", ", ".join(code)),
        ("written", run["written"] and time.strftime("%Y-%m-%d %H:%M", time.localtime(run["written"]))),
        ("best", "" if run["best"] is None else f"{run['measure']} {run['best']:.4g}"),
        ("FLOPs a step", f"{run['flops']:,}"),
        ("size", _bytes(run["bytes"])),
        ("checkpoints", _sizes(run["checkpoints"]) or "none yet"),
    )
    if run["metrics"]:
        columns = ("first", "last", "least", "most")
        rows = [[name, *(f"{ends[c]:.5g}" for c in columns)] for name, ends in run["metrics"].items()]
        lines += _table(f"log: {run['records']} records", columns, rows)
    if "parameters" in run:
        rows = [[name, str(p["shape"]), f"{p['rms']:.3g}"] for name, p in run["parameters"].items()]
        title = f"parameters of {run['checkpoint']}: {run['parameter_count']:,}"
        lines += _table(title, ("shape", "rms"), rows)
        rows = [[name, str(shape)] for name, shape in run["features"].items()]
        lines += _table("features, which nothing trains", ("shape",), rows)
    return lines


def _bundle(bundle: Contents) -> list[str]:
    flops = bundle["flops"].get("total") if isinstance(bundle["flops"], dict) else None
    period, deadline = 1e3 * bundle["control_period"], 1e3 * bundle["deadline"]
    lines = [f"bundle {bundle['path']}: all {len(bundle['files']) + 1} files are as SHA256SUMS lists them"]
    lines += _facts(
        ("task", bundle["task"]),
        ("attention", bundle["attention"]),
        ("parameters", bundle["parameters"]),
        ("FLOPs a step", f"{flops:,}" if type(flops) is int else None),
        ("period", f"{period:g} ms, a command within {deadline:g} ms"),
        ("golden", f"{bundle['observations']} observations"),
        ("needs", _settings(bundle["requires"])),
        ("size", _bytes(bundle["bytes"])),
        ("files", _sizes(bundle["files"])),
    )
    for part in ("inputs", "outputs"):
        rows = [row for name, value in bundle[part].items() for row in _entries(name, value)]
        lines += _table(part, ("type", "unit", "low", "high"), rows)
    return lines


def _entries(name: str, value: Contents) -> list[list[str]]:
    """One row for an image; for a vector one row, and another for each of its numbers."""
    kind = f"{value['dtype']}{value['shape']}"
    if not value["entries"]:
        return [[name, kind, value["units"][0], f"{value['low']:g}", f"{value['high']:g}"]]
    numbers = zip(value["entries"], value["units"], value["low"], value["high"], strict=True)
    rows = [[f"  {entry}", "", unit, f"{low:g}", f"{high:g}"] for entry, unit, low, high in numbers]
    return [[name, kind, "", "", ""], *rows]


def _dataset(dataset: Contents) -> list[str]:
    lengths, returns = dataset["lengths"], dataset["returns"]
    success, score = dataset["success_rate"], dataset["score_mean"]
    mean = dataset["steps"] / len(lengths)
    lines = [
        f"dataset {dataset['path']}: {counted(dataset['episodes'], 'episodes')}, {dataset['steps']:,} steps"
    ]
    lines += _facts(
        ("task", dataset["task"]),
        ("lengths", f"{min(lengths)} to {max(lengths)} steps, mean {mean:.1f}"),
        ("success", None if success is None else f"{success:.1%}"),
        ("mean score", None if score is None else f"{score:.4g}"),
        ("returns", returns and f"{min(returns):.2f} to {max(returns):.2f}"),
        ("environment", _settings(dataset["environment"])),
        ("recording", _settings(dataset["recording"])),
        ("renderer", dataset["renderer"]),
        ("size", _bytes(dataset["bytes"])),
    )
    columns = {**dataset["observations"], "actions": dataset["actions"]}
    images = {name: column for name, column in columns.items() if column["dtype"] == "uint8"}
    wide = max(map(len, columns))
    lines += ["", *(f"{name:<{wide}} uint8{image['shape']}, from 0 to 255" for name, image in images.items())]
    for name, column in columns.items():
        if name not in images:
            lines.append(f"{name:<{wide}} {column['dtype']}{column['shape']}, over all steps")
            lines += _limits(column, "  ")
    return lines


def _episode(episode: Contents) -> list[str]:
    number, actions = episode["episode"], episode["actions"]
    score = None if episode["score"] is None else f"{episode['score']:.4g}"
    earned = "" if episode["return"] is None else f", return {episode['return']:.2f}"
    return [
        f"episode {number} of {episode['path']}: {counted(episode['steps'], 'steps')}{earned}",
        *_facts(("seed", episode["seed"]), ("score", score)),
        *_facts(*((name, episode.get(name)) for name in ("video", "sheet"))),
        f"  actions {actions['dtype']}{actions['shape']}",
        *_limits(actions, "    "),
    ]


FORMATTERS: dict[str, Callable[[Contents], list[str]]] = {
    "run": _run,
    "bundle": _bundle,
    "dataset": _dataset,
    "episode": _episode,
}


def _is_structure(value: Any) -> bool:
    """Whether a setting is a list of names or of parts with settings, which are too long for a line."""
    return isinstance(value, list) and any(isinstance(part, str | dict | list) for part in value)
