"""robopolicy train es"""

from __future__ import annotations

import json as json_format
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

import tyro

from robopolicy.cli.progress import TrainingProgress
from robopolicy.cli.resumed import command_to_resume
from robopolicy.envs.registry import TASKS, check_name, task_class
from robopolicy.experiments.default_policies import IAP, check_kind, new_policy
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.experiments.train_es import PARTS, Variants, curriculum_of, train_es
from robopolicy.policies.catalogue import restore
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.settings import check_types
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.es import ESConfig

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
    task: Annotated[str, tyro.conf.arg(aliases=("--env",))] = next(iter(TASKS))
    """Task to learn."""
    attention: str = "angular_hybrid(m=8, n=8)"
    """Attention mechanism, such as softmax or "positive_antithetic(m=256)"."""
    preset: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Terrain to learn on; repeatable, for a curriculum. Default: painted, then paper."""
    advance_at: tyro.conf.UseAppendAction[tuple[float, ...]] = ()
    """Mean return of three generations at which to go on to the next preset; default: 3.85 from painted."""
    variant: str = "mask"
    """What the policy does with its attention: mask, rank or trans."""
    patch: int | None = None
    """Side of a token, in pixels; default: 2 on stepping stones, and what fits the images elsewhere."""
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
    engine: str | None = None
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    seed: int = 0
    """Fixes every bit of the run."""
    keep_every: int = 0
    """Generations between two checkpoints that are kept for good, besides the last three; 0 for none."""
    wandb: str | None = None
    """Weights & Biases project to log to, too."""
    resume: bool = False
    """Go on with the run in --out, with its settings where none are given."""
    resume_from: int | None = None
    """Go on after this generation's checkpoint, or from the beginning with 0; what the run has beyond it
    moves to its folder set-aside-N."""
    json: Annotated[bool, tyro.conf.arg(help="Print the last generation as JSON on stdout.")] = False

    def begun(self) -> TrainES:
        """The settings that the run in `out` was begun with, those of its curriculum left out.

        Raises FileNotFoundError where there is no run, ValueError where its config is not one of a run.
        """
        folder = RunFolder(self.out)
        stored = folder.config()
        wrong = f"out is {str(self.out)!r}: its config.json is none of a run"
        for name in PARTS[1:]:
            if not isinstance(stored.get(name), dict):
                raise ValueError(f"{wrong}: it has no settings of {name}")
        where = f"{str(folder.config_path)!r}:"
        for part, declared in (
            (stored, TrainES),
            (stored["environment"], Variants),
            (stored["es"], ESConfig),
        ):
            check_types(where, part, declared)
        try:
            policy = restore(stored["policy"])
        except ValueError as error:
            raise ValueError(f"{where} {error}") from error
        if not isinstance(policy, IAPConfig):
            raise ValueError(f"{wrong} of evolution strategies")
        environment, es = stored["environment"], stored["es"]
        try:
            settings = {name: environment[name] for name in ("engine", "episode_seconds")}
        except KeyError as error:
            raise ValueError(f"{wrong}: it does not tell {error}") from error
        settings |= {name: getattr(policy, name) for name in ("attention", *POLICY)}
        settings |= {name: es[name] for name in es.keys() & _of_search()}
        # Not resumed, since a flag that is on would have to be called --no-resume.
        begun = TrainES(self.out, **settings)
        return replace(begun, task=stored.get("task", self.task))

    def run(self) -> None:
        """Train. Everything that can be refused is refused before the folder is made."""
        check_kind(check_name(self.task), IAP)
        before = RunFolder(self.out).config() if self.resume else {"environment": {}, "es": {}}
        curriculum = curriculum_of(self.task)
        presets = self.preset or tuple(before["environment"].get("presets", curriculum.presets))
        if len(set(presets)) < len(presets):
            raise ValueError(f"preset is given as {', '.join(presets)}: each may be named once")
        usual = presets == curriculum.presets
        advance_at = self.advance_at or tuple(
            before["es"].get("advance_at", curriculum.advance_at if usual else ())
        )
        if len(advance_at) != max(len(presets) - 1, 0):
            raise ValueError(
                f"advance_at is given {len(advance_at)} times: {len(presets)} presets need {len(presets) - 1}"
            )
        episodes = self.episodes or tuple(
            before["es"].get("episodes", curriculum.episodes if usual else (1,))
        )
        config = ESConfig(
            advance_at=advance_at, episodes=episodes, **{name: getattr(self, name) for name in _of_search()}
        )
        environment = Environment.of(
            Environment(self.task, self.engine, next(iter(presets), None), self.episode_seconds)
        )
        settings = {name: getattr(self, name) for name in POLICY if getattr(self, name) is not None}
        policy = new_policy(environment, self.attention, seed=self.seed, **settings)
        evaluator = EvaluatorConfig(self.evaluator, self.workers, self.deadline, self.address, self.places)
        outcomes = task_class(self.task).outcomes
        goal = f"{presets[-1]} terrain" if presets else self.task
        with TrainingProgress(config, f"{self.attention} on {self.task}", goal, outcomes) as progress:
            run = train_es(
                policy,
                environment,
                config,
                out=self.out,
                presets=presets,
                evaluator=evaluator,
                resume=self.resume,
                resume_from=self.resume_from,
                wandb=self.wandb,
                hooks=progress.hooks(),
            )
            progress.done(run.record, command_to_resume(self, "es"))
        if self.json:
            print(json_format.dumps(run.record))


def _of_search() -> set[str]:
    """The settings that a search has under the same names, those of the curriculum left out."""
    return {f.name for f in fields(ESConfig)} & {f.name for f in fields(TrainES)} - {"advance_at", "episodes"}
