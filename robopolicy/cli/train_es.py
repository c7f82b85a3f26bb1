"""robopolicy train es"""

from __future__ import annotations

import json as json_format
import os
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.evaluators import Players
from robopolicy.cli.provenance import git_revision, versions
from robopolicy.cli.resumed import refuse_changes
from robopolicy.cli.tasks import (
    ADVANCE_AT,
    CURRICULUM,
    EPISODES,
    Rollouts,
    check_task,
    distinct,
    level_depth,
    policy_config,
)
from robopolicy.envs.physics import default_engine
from robopolicy.settings import check_types

POLICY = ("variant", "patch", "head_dim", "keep", "normalise")  # settings of the policy besides its mechanism


@dataclass(frozen=True)
class TrainES:
    """Train a policy by evolution strategies.

    For example:
        robopolicy train es --attention "angular_hybrid(m=8, n=8)" --out runs/first --generations 40

    Ctrl-C or SIGTERM stops after the generation in progress; --resume goes on to the same bits as if it had
    not.
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
    """Mean return of three generations at which to go on to the next preset; default: 3.85 from painted."""
    variant: str = "mask"
    """What the policy does with its attention: mask, rank or trans."""
    patch: int = 2
    """Side of a token, in pixels."""
    head_dim: int = 8
    """Width of queries and keys."""
    keep: float = 0.5
    """Share of the tokens that mask and rank keep."""
    normalise: bool = False
    """Normalise proprioception by statistics that all workers share."""
    generations: int = 80
    """Generations in all, those before a --resume included."""
    population: int = 24
    """Candidates a generation."""
    episodes: tuple[int, ...] = ()
    """Episodes a candidate: one number for all presets, or one for each. Default: 1 on painted and 3 on
    paper, or 1 where --preset is given."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    evaluate_every: int = 5
    """Generations between two evaluations of the policy on held-out terrain."""
    held_out: int = 20
    """Episodes of such an evaluation."""
    stage_limit: int = 30
    """Generations after which the curriculum goes on in any case; 0 for never."""
    stop_at: float | None = None
    """Held-out return that ends the run."""
    stop_after: int = 0
    """Evaluations on the last preset without a new best that end the run; 0 for never."""
    episode_budget: int = 0
    """Training episodes after which the run ends; 0 for never."""
    seconds_budget: float = 0.0
    """Wall time after which the run ends, over all its resumed parts; 0 for never."""
    strategy: str = "snes"
    """Evolution strategy; docs/evolution-strategies.md lists them."""
    sigma: float = 0.3
    """Standard deviation of candidates around the mean."""
    learning_rate: float = 0.06
    """Step size of the mean."""
    decay: float = 1.0
    """What both are multiplied by after every generation."""
    elite: float = 0.5
    """Share of the directions that a random search (ars, robotics_ars) learns from."""
    shaping: str = "default"
    """What returns are turned into: raw, ranks, standardized or normalized; default: the strategy's own."""
    weight_decay: float = 0.0
    """What a candidate's mean squared parameter costs it, in units of return."""
    evaluator: str = "local"
    """Where episodes are played: local (a pool of processes), ray (a cluster), or vector (in lock step, with
    one policy call for all of them: for an accelerator)."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Rollout processes; the result does not depend on their number."""
    address: str | None = None
    """Ray cluster to play on, "auto" or host:port; default: one that is started here."""
    places: int = 64
    """Environments in lock step, for --evaluator vector."""
    deadline: float = 600.0
    """Seconds after which an episode counts as hung and is played again."""
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    seed: int = 0
    """Fixes every bit of the run."""
    keep_every: int = 0
    """Generations between two checkpoints that are kept for good, besides the last three; 0 for none."""
    wandb: str | None = None
    """Weights & Biases project to log to, too."""
    resume: bool = False
    """Go on with the run in --out, with its settings where none are given."""
    json: Annotated[bool, tyro.conf.arg(help="Print the last generation as JSON on stdout.")] = False

    def begun(self) -> TrainES:
        """The settings that the run in `out` was begun with, those of its curriculum left out.

        Raises FileNotFoundError where there is no run, ValueError where its config is not one of a run.
        """
        from robopolicy.policies.iap import IAPConfig
        from robopolicy.training.checkpoint import RunFolder
        from robopolicy.training.es import ESConfig

        folder = RunFolder(self.out)
        stored = folder.config()
        try:
            environment, policy, es = (stored[part] for part in ("environment", "policy", "es"))
            parts = ((stored, TrainES), (environment, Rollouts), (policy, IAPConfig), (es, ESConfig))
            for part, declared in parts:
                check_types(f"{str(folder.config_path)!r}:", part, declared)
            settings = {name: environment[name] for name in ("engine", "episode_seconds")}
            settings |= {name: policy[name] for name in ("attention", *POLICY)}
            settings |= {name: es[name] for name in es.keys() & _of_search()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"out is {str(self.out)!r}: its config.json is none of a run ({error!r})"
            ) from error
        # Not resumed, since a flag that is on would have to be called --no-resume.
        begun = TrainES(self.out, **settings)
        return replace(begun, task=stored.get("task", self.task))

    def run(self) -> None:
        """Train. Everything that can be refused is refused before the folder is made."""
        check_task(self.task)
        from robopolicy.training.checkpoint import RunFolder
        from robopolicy.training.es import ESConfig

        folder = RunFolder(self.out)
        before = folder.config() if self.resume else {"environment": {}, "es": {}}
        presets = distinct(self.preset or tuple(before["environment"].get("presets", CURRICULUM)))
        advance_at = self.advance_at or tuple(
            before["es"].get("advance_at", ADVANCE_AT if presets == CURRICULUM else ())
        )
        if len(advance_at) != len(presets) - 1:
            raise ValueError(
                f"advance_at is given {len(advance_at)} times: {len(presets)} presets need {len(presets) - 1}"
            )
        episodes = self.episodes or tuple(
            before["es"].get("episodes", EPISODES if presets == CURRICULUM else (1,))
        )
        config = ESConfig(
            advance_at=advance_at, episodes=episodes, **{name: getattr(self, name) for name in _of_search()}
        )
        rollouts = Rollouts(self.engine, presets, self.episode_seconds)
        policy = policy_config(self.attention, **{name: getattr(self, name) for name in POLICY})
        for preset in presets[1:]:
            level_depth(Rollouts(self.engine, (preset,), self.episode_seconds))
        level = level_depth(rollouts)
        settings = self._settings(config, policy, rollouts)
        if self.resume:
            from robopolicy.training.es import MAY_CHANGE

            refuse_changes(before, settings, ("task", "environment", "policy", "es"), MAY_CHANGE)
        players = Players(self.evaluator, self.workers, self.deadline, self.address, self.places)
        players.check()
        if self.wandb is not None:
            from robopolicy.training.wandb_sink import check_installed

            check_installed(self.wandb)
        if not self.resume:
            folder.create(settings)
        record = self._train(config, policy, level, rollouts, folder, players)
        if self.json:
            print(json_format.dumps(record))

    def _settings(self, config: Any, policy: Any, rollouts: Rollouts) -> dict[str, Any]:
        from robopolicy.flops import count_step
        from robopolicy.policies.catalogue import describe, untold

        settings = {
            "task": self.task,
            "environment": asdict(rollouts),
            "policy": describe(policy),
            "flops": count_step(untold(policy)).total,
            "es": asdict(config),
            "versions": versions(),
            "git": git_revision(),
        }
        plain: dict[str, Any] = json_format.loads(json_format.dumps(settings))
        return plain

    def _train(
        self, config: Any, policy_config: Any, level: Any, rollouts: Rollouts, folder: Any, players: Players
    ) -> Any:
        import jax
        import numpy as np

        from robopolicy.cli.progress import TrainingProgress
        from robopolicy.cli.tasks import ID
        from robopolicy.policies.base import flatten
        from robopolicy.policies.catalogue import by_path
        from robopolicy.policies.iap import iap
        from robopolicy.training.es import train
        from robopolicy.training.wandb_sink import WandbSink
        from robopolicy.training.worker import EnvironmentSpec

        policy = iap(policy_config, level)
        start, draw = jax.random.split(jax.random.key(self.seed))
        initial = np.asarray(flatten(policy.init(start)))
        features = policy.init_features(draw)
        presets = rollouts.presets
        environments = [EnvironmentSpec(ID, rollouts.settings(p), p) for p in presets]
        title = f"{self.attention} on {self.task}"
        with TrainingProgress(config, title, f"{presets[-1]} terrain") as progress:
            progress.say(f"{initial.size} parameters; compiling the policy for the rollout workers")
            with closing(players.make(environments, policy_config, policy, features)) as evaluator:
                sinks = [] if self.wandb is None else [WandbSink(self.wandb, folder.path, folder.config())]
                record = train(
                    config,
                    run=folder,
                    initial=initial,
                    features=by_path(features),
                    evaluator=evaluator,
                    normalised={name: policy.observation_shapes[name][0] for name in policy.normalised},
                    resume=self.resume,
                    on_generation=progress.generation,
                    on_episode=progress.episode,
                    sinks=sinks,
                )
            progress.done(record)
            return record


def _of_search() -> set[str]:
    """The settings that a search has under the same names, those of the curriculum left out."""
    from robopolicy.training.es import ESConfig

    return {f.name for f in fields(ESConfig)} & {f.name for f in fields(TrainES)} - {"advance_at", "episodes"}
