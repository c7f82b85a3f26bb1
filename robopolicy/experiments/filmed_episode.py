"""Filmed episodes: pictures of the robot, the policy's images and its attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.costs.flops import count_step
from robopolicy.envs.contract import is_depth
from robopolicy.envs.registry import has_setting
from robopolicy.envs.task import check_ending, named, task_of
from robopolicy.experiments.environments import Environment, opened
from robopolicy.experiments.players import PlayerLike, check_match, player
from robopolicy.policies import top_view
from robopolicy.policies.base import unflatten
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.policy import Policy
from robopolicy.training.rollout import Episode, Playing, Step
from robopolicy.viz import overlay
from robopolicy.viz.overlay import Picture
from robopolicy.viz.top_view import top_view as seen_from_above

if TYPE_CHECKING:
    from robopolicy.viz.recording import Recording

SHARE = 5  # a depth image takes at most a fifth of a picture's width
BESIDE = 240  # pixels of a picture's width for each pixel of a memory
WITHIN, BENEATH = 4, 3  # lines of captions in a picture of the robot, and beneath a colour image

REMEMBERED, LANDINGS = "remembered/", "landings"

Shown = dict[str, Any]


class FilmedEpisode:
    """A player's episode, filmed step by step.

    Depth images of a task are drawn in the corner of a picture of the robot, with captions at its foot. For
    other tasks the captions are below the picture, and colour images with attention replace it.
    """

    def __init__(self, who: PlayerLike, environment: Environment, size: tuple[int, int]) -> None:
        """Film `who`, see `player`, in a picture of `size` = (width, height), pixels.

        Raises the errors of `player` and of the environment.
        """
        self.player = player(who, environment.task)
        self.size = size
        policy = self.player.policy
        self._looking = _looking(policy)
        config = None if policy is None else policy.config
        hips = top_view.hips(config) if isinstance(config, IAPConfig) else np.zeros((0, 2))
        self._outline = top_view.pixels(hips)
        self.flops = None if policy is None else count_step(policy.functions).total
        self.title = Path(self.player.name).name
        if policy is not None:
            self.title += f": {policy.config.label}"
        environment = environment.showing(self.player.shapes)
        with opened(environment, None) as env:
            check_match(policy, task_of(env), environment.title)
            self._depths = [name for name, space in task_of(env).images().items() if is_depth(space)]
        room = 0 if self._depths else overlay.foot_height(BENEATH)
        self._drawn_size = size[0], size[1] - room
        pictures: dict[str, Any] = {"render_mode": "rgb_array", "render_size": self._drawn_size}
        self.env = environment.make(**{n: v for n, v in pictures.items() if has_setting(environment.task, n)})
        self.task = task_of(self.env)
        self.over: Episode | None = None
        self.steps = 0

    def begin(self, seed: int, ticks: bool) -> None:
        """Start the episode; with `ticks`, a step has a picture of every tick."""
        self._ticks: list[Picture] = []
        self.pictures_a_step = 1
        self._playing = Playing(self.env, seed)
        if ticks and self.task.ticks > 1:
            self.pictures_a_step = self.task.ticks
            self.task.on_tick = lambda: self._ticks.append(self._drawn(self._playing.observation))
        self._act, self._look = self.player.act_in(self.env, seed), self._looking()
        self._level = self.task.reference_images()

    def advance(self, log: Recording | None) -> list[Picture]:
        """Play a step, record it in `log`, and return its pictures; the last one shows its end."""
        self._ticks.clear()
        if log is not None:
            log.shapes(self.player.name, self.task.shapes())
        shown = self._look(self._playing.observation)
        step, self.over = self._playing.step(self._act(self._playing.observation))
        self.steps += 1
        if self.over is not None:
            check_ending(named(self.task), self.task.outcomes, self.over.info)
        panels, lines = self._panels(step, shown), self._lines(step, shown)
        if log is not None:
            self._note(log, step, panels)
        if self._depths:
            pictures = self._ticks or [self._drawn(step.observation)]
            return [overlay.compose(picture, panels, lines) for picture in pictures]
        width, height = self._drawn_size
        if panels:
            pictures = [overlay.centred(panels, width, height)] * max(1, len(self._ticks))
        else:
            pictures = self._ticks or [self._drawn(step.observation)]
        return [overlay.captioned(picture, [*lines, ""][:BENEATH]) for picture in pictures]

    def _note(self, log: Recording, step: Step, panels: dict[str, Picture]) -> None:
        for name in self._depths:
            log.depth(self.player.name, name, step.observation[name])
        for title, panel in panels.items():
            log.image(self.player.name, title, panel)
        log.number(self.player.name, "return", step.total)
        for outcome in self.task.outcomes:
            log.number(self.player.name, outcome.name, step.info[outcome.name])
        for quantity, value in zip(self.task.actions, step.action.tolist(), strict=True):
            log.number(self.player.name, f"action/{quantity.name}", value)

    def _drawn(self, observation: Any) -> Picture:
        """The robot; for a task that draws nothing, the first colour image that it observes."""
        width, height = self._drawn_size
        picture: Any = self.env.render() if self.env.render_mode == "rgb_array" else None
        if picture is None:
            images = [observation[name] for name in self.task.images() if name not in self._depths]
            picture = images[0] if images else np.full((height, width, 3), overlay.PAPER, np.uint8)
        # A copy, since a task may draw the next picture into the same array.
        fits = picture.shape == (height, width, 3)
        picture = picture.copy() if fits else overlay.fitted(picture, width, height)
        view = self.task.view()
        if view is not None:
            places = overlay.projected(self.task.marks(), view, self._drawn_size)
            overlay.mark(picture, places, max(4, height // 60))
        return picture

    def _panels(self, step: Step, shown: Shown) -> dict[str, Picture]:
        """Images of the cameras, and the attention over them."""
        panels: dict[str, Picture] = {}
        room = self.size[1] - overlay.foot_height(WITHIN) - overlay.BAND - overlay.MARGIN
        memories = self._memories(shown, room)
        cameras = dict.fromkeys((*self._level, *self._depths))
        beside = len(cameras) + sum(camera in shown for camera in cameras)
        free = self.size[0] - sum(view.shape[1] + overlay.MARGIN for view in memories.values())
        widest = min(self.size[0] // SHARE, (free - overlay.MARGIN) // max(1, beside) - overlay.MARGIN)
        for camera in cameras:
            depth = step.observation[camera]
            drawn = overlay.grey_picture
            if camera in self._level:
                drawn = partial(overlay.depth_picture, level=self._level[camera])
            rows, columns = depth.shape
            scale = max(1, min(widest // columns, room // rows))
            every = max(1, -(-columns // max(1, widest)), -(-rows // room))  # pixel that is shown
            name = camera.removesuffix("_depth")
            picture = drawn(depth, mask=shown.get(f"kept/{camera}"), scale=scale)
            panels[f"{name} camera"] = picture[::every, ::every]
            if camera in shown:
                plain = drawn(depth, mask=None, scale=scale)
                panels[f"{name} attention"] = overlay.heat_picture(shown[camera], plain)[::every, ::every]
        panels |= memories
        attended = [name for name in self.task.images() if name in shown and name not in self._depths]
        for camera in attended:
            title = "" if len(attended) == 1 else f"{camera} "
            image: Any = step.observation[camera]
            size = self._drawn_size[0] // len(attended), self._drawn_size[1]
            pictures = _attended(image, shown[camera], size)
            panels |= {f"{title}{name}": picture for name, picture in pictures.items()}
        return panels

    def _memories(self, shown: Shown, room: int) -> dict[str, Picture]:
        """What the policy remembers of the ground, from above, at most `room` pixels high where that fits."""
        views: dict[str, Picture] = {}
        for name, ground in shown.items():
            if name.startswith(REMEMBERED):
                scale = max(1, min(self.size[0] // BESIDE, room // len(ground)))
                marks = top_view.pixels(shown[LANDINGS])
                views["memory"] = seen_from_above(ground.mean(axis=2), self._outline, marks, scale)
        return views

    def _lines(self, step: Step, shown: Shown) -> list[str]:
        info = step.info
        texts = [outcome.phrase.format(info[outcome.name]) for outcome in self.task.outcomes[:1]]
        texts.append(f"return {step.total:.2f}")
        if self.flops is not None:
            small = self.flops < 1e5
            texts.append(f"{self.flops} FLOPs a step" if small else f"{self.flops / 1e6:.3g} MFLOPs a step")
        if info.get("cause"):
            texts.append(f"ended: {info['cause']}")
        lines = [self.title, "    ".join(texts), *self.task.caption(step.action)]
        if LANDINGS in shown:
            lines.append("memory: ground is light, gaps dark    ring: where a leg that reads it would land")
        if any(name in shown for name in self.task.images()):
            masked = "red: masked out    " if any(name.startswith("kept/") for name in shown) else ""
            lines.append(f"{masked}attention: blue half of the mean, yellow twice")
        return lines

    def result(self) -> dict[str, Any]:
        """The result of the episode, see `film`."""
        assert self.over is not None
        info = self.over.info
        return {
            "policy": self.player.name,
            "return": self.over.total,
            **{outcome.name: info[outcome.name] for outcome in self.task.outcomes},
            **{name: info[name] for name in ("success", "cause")},
            "steps": self.steps,
            "flops": self.flops,
        }


def _looking(trained: Policy | None) -> Callable[[], Callable[[Any], Shown]]:
    """A function that begins an episode and returns another one, from an observation to arrays by name.

    These are the pixels that attention keeps, `kept/CAMERA` [H, W], and the ranks of tokens, by image. For a
    policy with a memory of places there are also what it remembers, `remembered/CAMERA`, and where the legs
    that read it would land, `landings` [N, 2], as in `top_view`. The state of a policy goes from call to call
    as it does in the player.
    """
    if trained is None:
        return lambda: lambda observation: {}
    policy, features = trained.functions, trained.features
    tree, names, config = unflatten(policy)(trained.parameters), policy.observation_shapes, trained.config

    def look(observation: Any, state: Any) -> tuple[Shown, Any]:
        ranked = policy.ranked(tree, features, observation, state)
        arrays, state = policy.inspect(tree, features, observation, state)
        kept = {name: array for name, array in arrays.items() if ranked and name.startswith("kept/")}
        views = policy.remembered(tree, features, observation, state)
        remembered = {REMEMBERED + camera: view for camera, view in views.items()}
        if remembered and isinstance(config, IAPConfig):
            remembered[LANDINGS] = top_view.chosen(config, observation, arrays["action"])
        return {**kept, **ranked, **remembered}, state

    compiled = jax.jit(look)

    def begin() -> Callable[[Any], Shown]:
        state = trained.init_state()

        def looked(observation: Any) -> Shown:
            nonlocal state
            shown, state = compiled({name: observation[name] for name in names}, state)
            return jax.device_get(shown)

        return looked

    return begin


def _attended(
    image: NDArray[np.uint8], rank: NDArray[np.float32], size: tuple[int, int]
) -> dict[str, Picture]:
    """An image [H, W, 3], and `rank` drawn over it, as large as both fit side by side in `size`."""
    rows, columns = rank.shape
    wide = max(1, size[0] // 2 - 2 * overlay.MARGIN)
    high = max(1, size[1] - overlay.BAND - overlay.MARGIN)
    side = max(1, min(wide // columns, high // rows))  # of a token, in pixels
    every = max(ceil(columns / wide), ceil(rows / high))  # token is shown, above 1 if pixels are too few
    sized: Any = cv2.resize(image, (columns * side, rows * side), interpolation=cv2.INTER_AREA)
    heat = overlay.heat_picture(rank, sized)
    return {"camera": sized[::every, ::every], "attention": heat[::every, ::every]}
