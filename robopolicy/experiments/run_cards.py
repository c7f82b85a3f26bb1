"""The README of a run, with metadata for a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robopolicy.bundles.model_card import front_matter, reach
from robopolicy.experiments.trainings import FORMER_HEAD
from robopolicy.writing import write_atomically

CARD = "README.md"


def write_card(folder: Path, config: dict[str, Any]) -> None:
    """Write the README of a run with this `config`, whatever it had."""
    name, task, policy = folder.resolve().name, str(config["task"]), config["policy"]
    versions = config.get("versions", {})
    first = config.get("init")
    first = first if isinstance(first, dict) else {}
    origin, taken = first.get("run"), "the encoder's weights" if FORMER_HEAD in first else "the weights"
    lines = [
        front_matter(name, task, config, {}),
        f"# {name}",
        f"A run of robopolicy {versions.get('robopolicy', '')}: a policy of the kind {policy['kind']}, with "
        f"the attention `{policy['attention']}`, for the task {task}. `config.json` has all settings, and "
        "`metrics.jsonl` the log."
        + reach(policy)
        + (f" It began with {taken} of `{origin}`." if origin else ""),
        f'```python\nimport robopolicy\n\npolicy = robopolicy.load("{name}")  # the path of this folder\n```',
        "    robopolicy evaluate RUN               # plays unseen episodes\n"
        "    robopolicy export RUN --out bundle    # writes what a robot runs",
    ]
    write_atomically(folder / CARD, "\n\n".join(lines) + "\n")
