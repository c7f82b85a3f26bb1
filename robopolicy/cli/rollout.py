"""robopolicy rollout"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.evaluate import FIRST_SEED
from robopolicy.cli.tasks import STONES, TASKS, check_task, make_task
from robopolicy.envs.physics import default_engine

LEGS = ("FR", "FL", "RR", "RL")


@dataclass(frozen=True)
class Rollout:
    """Film an episode.

    On stepping stones: the robot, both camera images, and in red the pixels that the attention masked out. Of
    the bimanual sweep: what its camera sees.

    Example: robopolicy rollout runs/first --video walk.mp4
    """

    policy: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN|oracle|blind|random")]]
    """A run folder, the name of a shipped policy, or a baseline."""
    video: Path
    """The mp4 to write."""
    task: str = STONES
    """Task to play, stepping-stones or bimanual-sweep."""
    seed: int = FIRST_SEED
    """Seed of the episode."""
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    preset: str = "paper"
    """Variant of the task."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    size: tuple[int, int] = (960, 540)
    """Width and height of the picture, both even."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Play and film."""
        check_task(self.task, tuple(TASKS))
        if min(self.size) < 240 or any(side % 2 for side in self.size):
            raise ValueError(f"size is {self.size}: both sides must be even, and 240 or more")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must be 0 or more")
        from robopolicy.cli.players import observed, player
        from robopolicy.viz.video import open_video

        act_for, trained = player(self.policy, self.task)
        seen = observed(self.task, trained)
        pictures = {"render_mode": "rgb_array", "render_size": self.size}
        env = make_task(self.task, self.engine, self.preset, self.episode_seconds, **seen, **pictures)
        try:
            with open_video(self.video, env.metadata["render_fps"]) as video:
                film = self._film_stones if self.task == STONES else self._film_sweep
                episode = film(env, act_for(env, self.seed), trained, video)
        finally:
            env.close()
        result = {
            "video": str(self.video),
            "policy": self.policy,
            "task": self.task,
            "seed": self.seed,
            "return": episode.total,
            **{outcome.name: episode.info[outcome.name] for outcome in TASKS[self.task].outcomes},
            "success": episode.info["success"],
            "cause": episode.info["cause"],
            "frames": episode.steps,
        }
        print(json_format.dumps(result) if self.json else _words(result))

    def _film_stones(self, env: Any, act: Any, trained: Any, video: Any) -> Any:
        import jax
        import numpy as np

        from robopolicy.policies.base import unflatten
        from robopolicy.training.rollout import Step, run_episode
        from robopolicy.viz.overlay import compose, depth_picture

        level = env.unwrapped.level_depth()
        largest = env.unwrapped.config.largest_offset
        inspect, title, tree = None, self.policy, None
        if trained is not None:
            inspect = jax.jit(trained.policy.inspect)
            tree = unflatten(trained.policy)(trained.parameters)
            title = f"{Path(self.policy).name}: {trained.config.attention}"
        scale = max(1, self.size[0] // 160)

        def film(step: Step) -> None:
            kept: dict[str, Any] = {}
            if inspect is not None and trained is not None:
                shown = inspect(tree, trained.features, step.observation)
                kept = {name: np.asarray(a) for name, a in shown.items() if name.startswith("kept/")}
            panels = {
                name.replace("_depth", " camera"): depth_picture(
                    step.observation[name], level[name], kept.get(f"kept/{name}"), scale
                )
                for name in level
            }
            info, offsets = step.info, zip(LEGS, 100 * largest * step.action, strict=True)
            lines = [
                f"{title}    {info['distance']:.2f} m    return {step.total:.2f}    {info['cause']}",
                "footholds  " + "   ".join(f"{leg} {offset:+.0f} cm" for leg, offset in offsets),
            ]
            if kept:
                lines.append("red: masked out by the attention")
            video.add(compose(env.render(), panels, lines))

        return run_episode(env, act, self.seed, film)

    def _film_sweep(self, env: Any, act: Any, trained: Any, video: Any) -> Any:
        from robopolicy.training.rollout import Step, run_episode
        from robopolicy.viz.overlay import compose

        title = self.policy if trained is None else f"{Path(self.policy).name}: {trained.config.attention}"

        def film(step: Step) -> None:
            info = step.info
            lines = [
                f"{title}    {info['fraction_in_bowls']:.0%} in bowls    return {step.total:.1f}    "
                f"{info['cause']}"
            ]
            video.add(compose(env.render(), {}, lines))

        return run_episode(env, act, self.seed, film)


def _words(result: dict[str, Any]) -> str:
    outcomes = TASKS[result["task"]].outcomes
    told = ", ".join(outcome.said.format(result[outcome.name]) for outcome in outcomes)
    return (
        f"{result['video']}: {result['policy']} on seed {result['seed']}, {told}, "
        f"return {result['return']:.2f}, ended by {result['cause']}"
    )
