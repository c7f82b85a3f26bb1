"""A RUN as commands take it: a run folder, or the name of a policy that ships with the package.

RUN@best is the policy that did best on held-out seeds, RUN@40 that after generation 40.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from robopolicy.cli.tasks import TASKS
from robopolicy.naming import one_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from robopolicy.policies.base import Policy
    from robopolicy.policies.catalogue import PolicyConfig

BASELINES = ("oracle", "blind", "random")


class Trained(NamedTuple):
    """A policy as a run left it: its config, its pure functions, flat parameters [P], features, metadata."""

    config: PolicyConfig
    policy: Policy
    parameters: NDArray[np.float32]
    features: Any
    run: dict[str, Any]


def find_run(name: str) -> tuple[Path, str]:
    """The folder of a run, and which of its policies is meant. Raises FileNotFoundError for no run."""
    if Path(name).is_dir():
        return Path(name), "last"
    name, _, which = name.partition("@")
    if Path(name).is_dir():
        return Path(name), which or "last"
    shipped = Path(str(files("robopolicy.assets"))) / "policies"
    if (shipped / name).is_dir():
        return shipped / name, which or "last"
    have = sorted(entry.name for entry in shipped.iterdir()) if shipped.is_dir() else []
    others = f" or a shipped policy ({', '.join(have)})" if have else ""
    raise FileNotFoundError(f"run is {name!r}: it must be a run folder{others}")


def task_of(name: str, run: Any, kind: str = "run") -> str:
    """The task that a run or a bundle is for; raises ValueError where it tells none that there is."""
    return one_of(f"task of the {kind} {name!r}", run.get("task"), TASKS)


def load_run(name: str) -> Trained:
    """Load the policy of a run. Raises FileNotFoundError or ValueError with one clear line."""
    from robopolicy.policies.base import parameter_count
    from robopolicy.policies.catalogue import policy_of, restore
    from robopolicy.training.checkpoint import CheckpointError, RunFolder, load_policy

    folder, which = find_run(name)
    settings = RunFolder(folder).config()
    if "policy" not in settings:
        raise CheckpointError(f"{str(folder / 'config.json')!r} describes no policy: this is no run")
    config = restore(settings["policy"])
    parameters, arrays = load_policy(folder, which)
    policy, features = policy_of(config, arrays)
    if parameters.shape != (parameter_count(policy),):
        raise CheckpointError(
            f"the checkpoint has {list(parameters.shape)} parameters: the policy in config.json has "
            f"[{parameter_count(policy)}]"
        )
    return Trained(config, policy, parameters, features, settings)
