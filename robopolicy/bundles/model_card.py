"""The metadata that a model hub reads at the top of a README: YAML, as in Hugging Face's model cards.

A license is missing on purpose: only the owner of a policy can give one. So are datasets, since the hub wants
ids there and not folders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from robopolicy.settings import is_finite

LIBRARY, PIPELINE = "robopolicy", "robotics"
WAYS = {"bc": "imitation-learning", "es": "evolution-strategies"}  # by the part of a run's config
MEASURES = "_mean"  # ends the names of numbers that an evaluation measures
ALSO = "success_rate"


def front_matter(
    name: str, task: str, run: Mapping[str, Any], evaluation: Mapping[str, Any], *tags: str
) -> str:
    """The metadata of a policy as the first lines of a README.

    Args:
      name: of the policy.
      task: of the policy.
      run: the config of its run; {} without one.
      evaluation: results on unseen episodes, by engine.
      tags: further tags, such as the format of its files.
    """
    ways = [way for part, way in WAYS.items() if part in run]
    card: dict[str, Any] = {
        "library_name": LIBRARY,
        "pipeline_tag": PIPELINE,
        "tags": [PIPELINE, *ways, task, *tags],
    }
    results = [_result(task, engine, one) for engine, one in sorted(evaluation.items())]
    results = [result for result in results if result["metrics"]]
    if results:
        card["metrics"] = sorted({metric["type"] for result in results for metric in result["metrics"]})
        card["model-index"] = [{"name": name, "results": results}]
    # JSON is YAML, and needs no quoting rules of its own.
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in card.items()]
    return "\n".join(["---", *lines, "---"])


def reach(policy: Mapping[str, Any]) -> str:
    """A sentence on the frames and actions of a step, if they are several; "" for other policies."""
    parts = []
    if policy.get("history", 1) > 1:
        parts.append(f"reads the last {policy['history']} frames of each image")
    if policy.get("chunk", 1) > 1:
        parts.append(f"chooses {policy['chunk']} actions at once")
    return f" It {' and '.join(parts)}." if parts else ""


def _result(task: str, engine: str, evaluation: Mapping[str, Any]) -> dict[str, Any]:
    where = ", ".join(filter(None, (task, evaluation.get("preset"), engine)))
    numbers = {
        key.removesuffix(MEASURES): value
        for key, value in evaluation.items()
        if (key.endswith(MEASURES) or key == ALSO) and is_finite(value)
    }
    return {
        "task": {"type": PIPELINE, "name": task},
        "dataset": {"type": task, "name": where},
        "metrics": [{"type": key, "name": key.replace("_", " "), "value": v} for key, v in numbers.items()],
    }
