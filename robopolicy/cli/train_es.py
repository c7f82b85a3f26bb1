"""robopolicy train es"""

from __future__ import annotations

import json as json_format
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.tasks import (
    ADVANCE_AT,
    CURRICULUM,
    Rollouts,
    check_task,
    distinct,
    level_depth,
    policy_config,
)
from robopolicy.envs.physics import default_engine


@dataclass(frozen=True)
class TrainES:
    """Train a policy by evolution strategies.

    Example: robopolicy train es --attention "angular_hybrid(m=8, n=8)" --out runs/first --generations 40

    Ctrl-C stops after the generation in progress; --resume goes on to the same bits as if it had not.
    """

    out: Path
    """Folder to keep the run in; it must not exist, or be that of a run to --resume."""
    task: str = "stepping-stones"
    """Task to learn."""
    attention: str = "angular_hybrid(m=8, n=8)"
    """Attention mechanism, such as softmax or "positive_antithetic(m=256)"."""
    preset: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Terrain to learn on; repeatable, for a curriculum. Default: painted, then paper."""
    advance_at: tyro.conf.UseAppendAction[tuple[float, ...]] = ()
    """Mean return of three generations at which to go on to the next preset; default: 3.2 from painted."""
    variant: str = "mask"
    """What the policy does with its attention: mask, rank or trans."""
    patch: int = 1
    """Side of a token, in pixels."""
    generations: int = 100
    """Generations in all, those before a --resume included."""
    population: int = 48
    """Candidates a generation."""
    episodes: int = 1
    """Episodes a candidate."""
    evaluate_every: int = 10
    """Generations between two evaluations of the policy on ten held-out terrains."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Rollout processes; the result does not depend on their number."""
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    strategy: str = "open_es"
    """Evolution strategy: open_es, pgpe, snes, sep_cma_es, cma_es, evojax_pgpe or evojax_cma_es."""
    sigma: float = 0.1
    """Standard deviation of candidates around the mean."""
    learning_rate: float = 0.06
    """Step size of the mean."""
    evaluator: str = "local"
    """Where episodes are played: local."""
    seed: int = 0
    """Fixes every bit of the run."""
    resume: bool = False
    """Go on with the run in --out."""
    json: Annotated[bool, tyro.conf.arg(help="Print the last generation as JSON on stdout.")] = False

    def run(self) -> None:
        """Train. Everything that can be refused is refused before the folder is made."""
        check_task(self.task)
        if self.evaluator != "local":
            raise ValueError(f"evaluator is {self.evaluator!r}: it must be one of local")
        if self.workers < 1:
            raise ValueError(f"workers is {self.workers}: it must be 1 or more")
        from robopolicy.training.checkpoint import RunFolder
        from robopolicy.training.es import ESConfig

        presets = distinct(self.preset or CURRICULUM)
        advance_at = self.advance_at or (ADVANCE_AT if presets == CURRICULUM else ())
        if len(advance_at) != len(presets) - 1:
            raise ValueError(
                f"advance_at is given {len(advance_at)} times: {len(presets)} presets need {len(presets) - 1}"
            )
        config = ESConfig(
            generations=self.generations,
            population=self.population,
            episodes=self.episodes,
            advance_at=advance_at,
            evaluate_every=self.evaluate_every,
            strategy=self.strategy,
            sigma=self.sigma,
            learning_rate=self.learning_rate,
            seed=self.seed,
        )
        rollouts = Rollouts(self.engine, presets, self.episode_seconds)
        policy = policy_config(self.attention, variant=self.variant, patch=self.patch)
        for preset in presets[1:]:
            level_depth(Rollouts(self.engine, (preset,), self.episode_seconds))
        level = level_depth(rollouts)
        folder = RunFolder(self.out)
        settings = self._settings(config, policy, rollouts)
        if self.resume:
            _refuse_changes(folder.config(), settings)
        else:
            folder.create(settings)
        record = self._train(config, policy, level, rollouts, folder)
        if self.json:
            print(json_format.dumps(record))

    def _settings(self, config: Any, policy: Any, rollouts: Rollouts) -> dict[str, Any]:
        from robopolicy.policies.catalogue import describe

        made_by = {name: version(name) for name in ("robopolicy", "jax", "evosax", "evojax", "numpy")}
        settings = {
            "task": self.task,
            "environment": asdict(rollouts),
            "policy": describe(policy),
            "es": asdict(config),
            "versions": {"python": platform.python_version(), **made_by},
        }
        plain: dict[str, Any] = json_format.loads(json_format.dumps(settings))
        return plain

    def _train(self, config: Any, policy_config: Any, level: Any, rollouts: Rollouts, folder: Any) -> Any:
        import tempfile

        import jax
        import numpy as np

        from robopolicy.cli.progress import TrainingProgress
        from robopolicy.cli.tasks import ID
        from robopolicy.export.onnx import export_policy
        from robopolicy.policies.base import flatten
        from robopolicy.policies.catalogue import by_path
        from robopolicy.policies.iap import iap
        from robopolicy.training.es import train
        from robopolicy.training.evaluate import LocalPool
        from robopolicy.training.worker import EnvironmentSpec

        policy = iap(policy_config, level)
        start, draw = jax.random.split(jax.random.key(config.seed + 2**31))
        initial = np.asarray(flatten(policy.init(start)))
        features = policy.init_features(draw)
        presets = rollouts.presets
        environments = [EnvironmentSpec(ID, rollouts.settings(p), p) for p in presets]
        title = f"{self.attention} on {self.task}"
        with TrainingProgress(config, title, f"{presets[-1]} terrain") as progress:
            progress.say(f"{initial.size} parameters; compiling the policy for the rollout workers")
            with tempfile.TemporaryDirectory() as scratch:
                export_policy(policy_config, features, Path(scratch) / "policy.onnx")
                model = (Path(scratch) / "policy.onnx").read_bytes()
            pool = LocalPool(environments, model, self.workers)
            try:
                return train(
                    config,
                    run=folder,
                    initial=initial,
                    features=by_path(features),
                    evaluator=pool,
                    resume=self.resume,
                    on_generation=progress.generation,
                    on_episode=progress.episode,
                )
            finally:
                pool.close()


def _refuse_changes(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise ValueError naming the first setting in which a resumed run differs from what it was."""
    for part in ("task", "environment", "policy", "es"):
        old, new = before.get(part), now[part]
        if not isinstance(old, dict) or not isinstance(new, dict):
            old, new = {part: old}, {part: new}
        for name in sorted(old.keys() | new.keys()):
            if name != "generations" and old.get(name) != new.get(name):
                raise ValueError(f"{name} is {new.get(name)!r}: the run to resume has {old.get(name)!r}")
