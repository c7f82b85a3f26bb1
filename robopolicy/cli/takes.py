"""Episodes as they are filmed: one policy each, what it sees and where it looks beside the robot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robopolicy.cli.players import observed, player
from robopolicy.cli.tasks import STONES, TASKS, make_task
from robopolicy.training.rollout import Episode, Playing, Step
from robopolicy.viz import overlay

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from robopolicy.viz.overlay import Picture
    from robopolicy.viz.recording import Recording

LEGS = ("FR", "FL", "RR", "RL")
SMALL = 160  # pixels of a picture's width for each pixel of a depth image
STONES_LINES, SWEEP_LINES = 4, 3  # of captions, at most

Shown = dict[str, Any]


class Take:
    """A policy's episode in progress, which is filmed step by step."""

    def __init__(
        self, policy: str, task: str, engine: str, preset: str, seconds: float | None, size: tuple[int, int]
    ) -> None:
        """Load `policy`, RUN|oracle|blind|random; raises what `player` and the environment raise."""
        self.policy, self.task, self.size = policy, task, size
        self._act_for, self.trained = player(policy, task)
        self._look = _looking(self.trained)
        self.flops: int | None = None
        self.title = policy
        if self.trained is not None:
            from robopolicy.flops import count_step

            self.flops = count_step(self.trained.policy).total
            self.title = f"{Path(policy).name}: {self.trained.config.attention}"
        room = 0 if task == STONES else overlay.foot_height(SWEEP_LINES)  # beneath the picture; else within
        self._drawn_size = size[0], size[1] - room
        pictures = {"render_mode": "rgb_array", "render_size": self._drawn_size}
        self.env = make_task(task, engine, preset, seconds, **observed(task, self.trained), **pictures)
        self.over: Episode | None = None
        self.steps = 0

    def begin(self, seed: int, ticks: bool) -> None:
        """Start the episode; with `ticks`, a step makes a picture of every control period that it has."""
        world: Any = self.env.unwrapped
        self._caught: list[Picture] = []
        self.pictures_a_step = 1
        if ticks and self.task == STONES:
            self.pictures_a_step = world.config.ticks
            world.on_tick = lambda: self._caught.append(self._drawn())
        self._playing = Playing(self.env, seed)
        self._act = self._act_for(self.env, seed)
        self._level = world.level_depth() if self.task == STONES else {}

    def advance(self, log: Recording | None) -> list[Picture]:
        """Play a step and note it in `log`; its pictures, the last one of its end."""
        self._caught.clear()
        if log is not None:
            world: Any = self.env.unwrapped
            log.shapes(self.policy, world.shapes())
        shown = self._look(self._playing.observation)
        step, self.over = self._playing.step(self._act(self._playing.observation))
        self.steps += 1
        panels, lines = self._panels(step, shown), self._lines(step, shown)
        if log is not None:
            self._note(log, step, panels)
        if self.task == STONES:
            drawn = self._caught or [self._drawn()]
            return [overlay.compose(picture, panels, lines) for picture in drawn]
        width, height = self._drawn_size
        picture = overlay.centred(panels, width, height) if panels else self._drawn()
        return [overlay.captioned(picture, [*lines, ""][:SWEEP_LINES])]

    def _note(self, log: Recording, step: Step, panels: dict[str, Picture]) -> None:
        for name, seen in step.observation.items():
            if name.endswith("_depth"):
                log.depth(self.policy, name, seen)
        for title, panel in panels.items():
            log.image(self.policy, title, panel)
        log.number(self.policy, "return", step.total)
        for outcome in TASKS[self.task].outcomes:
            log.number(self.policy, outcome.name, step.info[outcome.name])
        for name, value in zip(_actions(self.task), step.action.tolist(), strict=True):
            log.number(self.policy, f"action/{name}", value)

    def _drawn(self) -> Picture:
        picture: Picture = self.env.render()  # type: ignore[assignment]
        if self.task == STONES:
            world: Any = self.env.unwrapped
            places = overlay.projected(world.footholds(), world.view(), self.size)
            overlay.mark(picture, places, max(4, self.size[1] // 60))
        return picture

    def _panels(self, step: Step, shown: Shown) -> dict[str, Picture]:
        """Images of the cameras, and the attention over them."""
        panels: dict[str, Picture] = {}
        if self.task == STONES:
            room = self.size[1] - overlay.foot_height(STONES_LINES) - overlay.BAND - overlay.MARGIN
            for camera, level in self._level.items():
                scale = max(1, min(self.size[0] // SMALL, room // len(level)))
                name, depth = camera.removesuffix("_depth"), step.observation[camera]
                kept = shown.get(f"kept/{camera}")
                panels[f"{name} camera"] = overlay.depth_picture(depth, level, kept, scale)
                if camera in shown:
                    plain = overlay.depth_picture(depth, level, None, scale)
                    panels[f"{name} attention"] = overlay.heat_picture(shown[camera], plain)
        elif "image" in shown:
            seen: Any = step.observation["image"]
            panels = _attended(seen, shown["image"], self._drawn_size)
        return panels

    def _lines(self, step: Step, shown: Shown) -> list[str]:
        info, outcome = step.info, TASKS[self.task].outcomes[0]
        told = [outcome.said.format(info[outcome.name]), f"return {step.total:.2f}"]
        if self.flops is not None:
            small = self.flops < 1e5
            told.append(f"{self.flops} FLOPs a step" if small else f"{self.flops / 1e6:.3g} MFLOPs a step")
        if info["cause"]:
            told.append(f"ended: {info['cause']}")
        lines = [self.title, "    ".join(told)]
        if self.task == STONES:
            world: Any = self.env.unwrapped
            offsets = 100 * world.config.largest_offset * step.action
            feet = "   ".join(f"{leg} {offset:+.0f} cm" for leg, offset in zip(LEGS, offsets, strict=True))
            lines.append(
                f"footholds of feet that lift off now  {feet}    ringed: where those in the air land"
            )
        if shown:
            masked = "red: masked out    " if any(name.startswith("kept/") for name in shown) else ""
            lines.append(f"{masked}attention: blue half of the mean, yellow twice")
        return lines

    def result(self) -> dict[str, Any]:
        """How the episode went."""
        assert self.over is not None
        outcomes = {outcome.name: self.over.info[outcome.name] for outcome in TASKS[self.task].outcomes}
        ended = {name: self.over.info[name] for name in ("success", "cause")}
        return {
            "policy": self.policy,
            "return": self.over.total,
            **outcomes,
            **ended,
            "steps": self.steps,
            "flops": self.flops,
        }


def _actions(task: str) -> tuple[str, ...]:
    """What the numbers of an action move."""
    from robopolicy.envs.sweep.bimanual_sweep import ACTION

    return LEGS if task == STONES else ACTION


def _looking(trained: Any) -> Callable[[Any], Shown]:
    """observation -> where a policy looks: `kept/CAMERA` [H, W], and tokens' ranks by the image's name."""
    if trained is None:
        return lambda observation: {}
    import jax

    from robopolicy.policies.base import unflatten

    policy, features = trained.policy, trained.features
    tree = unflatten(policy)(trained.parameters)

    def look(observation: Any) -> Shown:
        seen = policy.inspect(tree, features, observation)
        kept = {name: array for name, array in seen.items() if name.startswith("kept/")}
        ranked = policy.ranked(tree, features, observation)
        return {**kept, **ranked} if ranked else {}

    compiled = jax.jit(look)
    names = policy.observation_shapes
    return lambda observation: jax.device_get(compiled({name: observation[name] for name in names}))


def _attended(
    image: NDArray[np.uint8], rank: NDArray[np.float32], size: tuple[int, int]
) -> dict[str, Picture]:
    """An image [S, S, 3], and `rank` over it, as large as there is room for both in `size`, side by side."""
    import cv2

    room = min(size[0] // 2 - 2 * overlay.MARGIN, size[1] - overlay.BAND - overlay.MARGIN)
    side = len(rank) * max(1, room // len(rank))
    sized: Any = cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
    return {"camera": sized, "attention": overlay.heat_picture(rank, sized)}
