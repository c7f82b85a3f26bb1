"""The policy whose weights a training begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robopolicy.experiments.runs import identity, load
from robopolicy.experiments.starting import Start, check_same
from robopolicy.experiments.trainings import FORMER_HEAD, TRAINED, trained_settings
from robopolicy.policies.base import flatten, unflatten
from robopolicy.policies.catalogue import by_path, describe, from_path, functions_of
from robopolicy.policies.policy import Policy
from robopolicy.policies.vision_performer_config import VisionPerformerConfig
from robopolicy.training.descent import Keys

OF_HEADS = ("head", "hidden", "samples", "iterations")  # settings that may differ with the head


class First(NamedTuple):
    """A policy to begin with, and what the run's config.json says of it: its identity and its training."""

    policy: Policy
    origin: dict[str, Any]

    @property
    def words(self) -> str:
        """What is not taken, to be read after other words; "" if all is."""
        return f"; without the head of init, {self.origin[FORMER_HEAD]}" if FORMER_HEAD in self.origin else ""

    def seen(self, seed: int, validation: float) -> str:
        """A warning, to be read after other words, if its training set aside other episodes of the same data.

        The settings are those on which the choice depends.
        """
        trained = (self.origin.get(TRAINED) or {}).get("bc")
        if not validation or trained is None:
            return ""
        if (trained.get("seed"), trained.get("validation")) == (seed, validation):
            return ""
        return "; init may have learned from these, since its training set other episodes aside"


def first_policy(
    init: str | Path | None, config: VisionPerformerConfig, start: Start, seed: int
) -> First | None:
    """The policy of the run, or the shipped policy, `init`; None for None.

    If `config` has another head, that of a training with `seed` is drawn in place of the policy's.

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
    other_head = theirs["head"] != ours["head"]
    whose, may_change = f"the policy of init {name!r}", OF_HEADS if other_head else ()
    check_same(whose, ("policy",), {"policy": theirs}, {"policy": ours}, may_change)
    origin = identity(policy, str(init))
    if other_head:
        origin |= {FORMER_HEAD: theirs["head"]}
        policy = _with_head_of(config, policy, seed)
    if start.resume:
        if origin != {part: stored.get(part) for part in origin}:
            raise ValueError(f"init is {name!r}: it has changed since the run began")
        return First(policy, stored)
    return First(policy, {**origin, TRAINED: trained_settings(policy.run)})


def _with_head_of(config: VisionPerformerConfig, policy: Policy, seed: int) -> Policy:
    """The encoder of `policy`, with a head of `config` as a training with `seed` draws it."""
    functions, keys = functions_of(config, policy.features["statistics"]), Keys.of(seed)
    drawn, searches = functions.init(keys.parameters), functions.init_features(keys.features)["search"]
    trained = by_path(unflatten(policy.functions)(policy.parameters))
    encoder = {path: array for path, array in trained.items() if not path.startswith("head/")}
    heads = {path: array for path, array in by_path(drawn).items() if path.startswith("head/")}
    parameters = np.asarray(flatten(from_path(drawn, encoder | heads)))
    return Policy(config, parameters, {**policy.features, "search": searches}, policy.name, policy.run)
