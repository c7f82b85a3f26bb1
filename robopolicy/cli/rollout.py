"""robopolicy rollout"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.evaluate import FIRST_SEED
from robopolicy.cli.tasks import Rollouts, check_task, make
from robopolicy.envs.physics import default_engine

FRAMES_PER_SECOND = 20
LEGS = ("FR", "FL", "RR", "RL")


@dataclass(frozen=True)
class Rollout:
    """Film an episode: the robot, both camera images, and in red the pixels that the attention masked out.

    Example: robopolicy rollout runs/first --video walk.mp4
    """

    policy: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN|oracle|blind|random")]]
    """A run folder, the name of a shipped policy, or a baseline."""
    video: Path
    """The mp4 to write."""
    task: str = "stepping-stones"
    """Task to play."""
    seed: int = FIRST_SEED
    """Seed of the terrain."""
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    preset: str = "paper"
    """Terrain."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    size: tuple[int, int] = (960, 540)
    """Width and height of the picture, both even."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Play and film."""
        check_task(self.task)
        if min(self.size) < 240 or any(side % 2 for side in self.size):
            raise ValueError(f"size is {self.size}: both sides must be even, and 240 or more")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must be 0 or more")
        from robopolicy.viz.video import open_video

        rollouts = Rollouts(self.engine, (self.preset,), self.episode_seconds)
        with open_video(self.video, FRAMES_PER_SECOND) as video:
            env = make(rollouts, self.preset, render_mode="rgb_array", render_size=self.size)
            try:
                episode = self._film(env, video)
            finally:
                env.close()
        result = {
            "video": str(self.video),
            "policy": self.policy,
            "seed": self.seed,
            "return": episode.total,
            "distance": episode.info["distance"],
            "success": episode.info["success"],
            "cause": episode.info["cause"],
            "frames": episode.steps,
        }
        print(json_format.dumps(result) if self.json else _words(result))

    def _film(self, env: Any, video: Any) -> Any:
        import jax
        import numpy as np

        from robopolicy.cli.players import player
        from robopolicy.policies.base import unflatten
        from robopolicy.training.rollout import Step, run_episode
        from robopolicy.viz.overlay import compose, depth_picture

        act_for, trained = player(self.policy)
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

        return run_episode(env, act_for(env, self.seed), self.seed, film)


def _words(result: dict[str, Any]) -> str:
    return (
        f"{result['video']}: {result['policy']} on seed {result['seed']}, {result['distance']:.2f} m, "
        f"return {result['return']:.2f}, ended by {result['cause']}"
    )
