"""Vision policies for robots with linear-time random-feature attention, with FLOP counts.

    walker = robopolicy.load("stepping-stones-angular-8x8")
    env = robopolicy.make("stepping-stones")
    robopolicy.evaluate(walker, env, seeds=range(9000, 9020)).success_rate

Each name below is imported at its first use, so `import robopolicy` imports neither JAX, an engine nor
gymnasium. The tasks are registered with gymnasium once both packages are imported, in either order.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robopolicy.costs.flops import flops
    from robopolicy.envs.registry import make
    from robopolicy.experiments.default_policies import new_policy
    from robopolicy.experiments.environments import Environment
    from robopolicy.experiments.evaluation import Evaluation, evaluate
    from robopolicy.experiments.evaluators import EvaluatorConfig
    from robopolicy.experiments.exporting import export
    from robopolicy.experiments.films import film
    from robopolicy.experiments.hooks import Hooks
    from robopolicy.experiments.runs import load
    from robopolicy.experiments.starting import Run
    from robopolicy.experiments.train_bc import train_bc
    from robopolicy.experiments.train_es import train_es
    from robopolicy.policies.policy import Policy
    from robopolicy.training.bc import BCConfig
    from robopolicy.training.es import ESConfig

__version__ = "0.1.0"

__all__ = [
    "BCConfig",
    "ESConfig",
    "Environment",
    "Evaluation",
    "EvaluatorConfig",
    "Hooks",
    "Policy",
    "Run",
    "evaluate",
    "export",
    "film",
    "flops",
    "load",
    "make",
    "new_policy",
    "train_bc",
    "train_es",
]

_MODULES = {
    "BCConfig": "training.bc",
    "ESConfig": "training.es",
    "Environment": "experiments.environments",
    "Evaluation": "experiments.evaluation",
    "EvaluatorConfig": "experiments.evaluators",
    "Hooks": "experiments.hooks",
    "Policy": "policies.policy",
    "Run": "experiments.starting",
    "evaluate": "experiments.evaluation",
    "export": "experiments.exporting",
    "film": "experiments.films",
    "flops": "costs.flops",
    "load": "experiments.runs",
    "make": "envs.registry",
    "new_policy": "experiments.default_policies",
    "train_bc": "experiments.train_bc",
    "train_es": "experiments.train_es",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'robopolicy' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"robopolicy.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


class _Registration:
    """A module finder that registers the tasks after the first import of gymnasium."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                import robopolicy.envs  # noqa: F401

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if sys.modules.get("gymnasium"):
    import robopolicy.envs as _envs  # noqa: F401
else:
    sys.meta_path.insert(0, _Registration())
