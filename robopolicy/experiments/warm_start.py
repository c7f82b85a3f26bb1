"""The policy whose weights a training begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from robopolicy.experiments.runs import identity, load
from robopolicy.experiments.starting import Start, check_same
from robopolicy.experiments.trainings import TRAINED, own_settings
from robopolicy.policies.catalogue import PolicyConfig, describe
from robopolicy.policies.policy import Policy


class First(NamedTuple):
    """A policy to begin with, and what the run's config.json says of it: its identity and its training."""

    policy: Policy
    origin: dict[str, Any]


def first_policy(init: str | Path | None, config: PolicyConfig, start: Start) -> First | None:
    """The policy of the run, or the shipped policy, `init`; None for None.

    A run that is resumed from a checkpoint needs no `init` any more: its checkpoint holds the features.

    Raises ValueError for a policy of another kind than `config`, or that names the first setting of `config`
    which it does not have, for another `init` than the run to resume began with, and what `load` raises.
    """
    stored = start.folder.config().get("init") if start.resume else None
    stored = stored if isinstance(stored, dict) else {}
    name = None if init is None else str(init)
    if start.resume and stored.get("run") != name:
        raise ValueError(f"init is {name!r}: the run to resume has {stored.get('run')!r}")
    if init is None:
        return None
    if start.resume and start.resume_from != 0 and start.folder.generations():
        return First(load(start.folder.path, start.resume_from), stored)
    policy = load(init)
    theirs, ours = describe(policy.config), describe(config)
    if theirs["kind"] != ours["kind"]:
        kinds = f"{theirs['kind']!r}, and not {ours['kind']!r}"
        raise ValueError(f"init is {name!r}: its policy is of the kind {kinds}")
    check_same(f"the policy of init {name!r}", ("policy",), {"policy": theirs}, {"policy": ours})
    origin = identity(policy, str(init))
    if start.resume:
        if origin != {part: stored.get(part) for part in origin}:
            raise ValueError(f"init is {name!r}: it has changed since the run began")
        return First(policy, stored)
    return First(policy, {**origin, TRAINED: own_settings(policy.run)})
