"""The Implicit Attention Policy for four legs and two depth cameras.

- front legs read the front camera, hind legs the belly camera;
- a right leg reads the mirror image of what a left leg reads, with the same weights;
- a leg chooses among footholds, since a map that must jump at the middle of a gap has to be a choice;
- it reads the image where these footholds are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robopolicy.naming import check_settings, shown
from robopolicy.policies.footholds import Footholds
from robopolicy.policies.iap_config import MEMORY_FOR, SETTINGS, IAPConfig
from robopolicy.policies.iap_parts import Camera, Output, Reader, Vector, View
from robopolicy.policies.recall import Recall
from robopolicy.settings import check_number, check_types

# Readers by name: their camera, and the legs that they move, those on the right in a mirror.
READERS = {"front": ("front_depth", "FR", "FL"), "hind": ("belly_depth", "RR", "RL")}
PROPRIOCEPTION = "proprioception"
LATERAL = ("roll", "angular_velocity_x", "angular_velocity_z", "velocity_y")  # change sign in a mirror
AHEAD, LEFT = 9, 7  # footholds that a leg chooses among
MOUNT = ("mount", "tilt", "fields")
FADE = 0.5  # of the mask: a foothold's score is a sum of few pixels, so that rounding errors in it grow
BESIDE = 0.04  # m, spacing to the left of what a leg reads that chooses among landings ahead
FIXED = ("lateral_inputs", "lateral_actions", "footholds", "recall")  # follow from the robot
LEG_INPUTS = ("velocity_x", "nominal_landing_{leg}", "pitch")


def quadruped(
    attention: str,
    proprioception: tuple[str, ...],
    *,
    image: tuple[int, int] = (24, 32),
    columns: tuple[int, int] | None = None,
    depth_scale: float = 0.2,
    leg_inputs: tuple[str, ...] = LEG_INPUTS,
    footholds: Mapping[str, Any] | None = None,
    odometry: tuple[str, ...] = (),
    **settings: Any,
) -> IAPConfig:
    """Settings for the stepping stones.

    Args:
      attention: spec of the mechanism, or a control.
      proprioception: name of every entry of the proprioception vector, in order.
      image: rows and columns of both depth images.
      columns: the image columns [first, last) that the encoder of a left leg reads if it reads means of rows;
        by default the left half without its outer quarter.
      depth_scale: depth (m) below level ground that the policy reads as 1.
      leg_inputs: entries of proprioception that a leg's encoder reads; {leg} stands for the leg's name.
      footholds: what tells where in the images a leg would land: `reach`, how far (m) an action of 1 moves a
        landing, ahead and, if legs choose that too, to the left; `feet`, for each left leg the place (m ahead
        and to the left of the robot's middle) that `nominal_landing_{leg}` is relative to; and `mounts`, for
        each camera the `mount`, `tilt` and `fields` of `Footholds`; legs whose camera is missing choose
        without an image. Without it, and for the variant `rank`, a leg chooses among three values of each
        action; but for `rank`, its encoder reads the mean of each row.
      odometry: entries of the vector of this name: place ahead and to the left (m) and yaw (rad) since the
        start. With them, legs whose camera is missing, or all legs, can read a memory of the front camera.
      settings: of `IAPConfig`, in place of its defaults.

    Raises ValueError for an unknown setting, and as `IAPConfig` does.
    """
    own: dict[str, Any] = {"image": image, "columns": columns, "depth_scale": depth_scale}
    own |= {"leg_inputs": leg_inputs, "footholds": footholds, "odometry": odometry}
    check_settings(settings, [*own, *(name for name in SETTINGS if name not in FIXED)])
    check_types("quadruped", {**own, "proprioception": proprioception}, quadruped)
    columns = columns or (image[1] // 8, max(1, image[1] // 2))
    if footholds is not None:
        _check_footholds(footholds)
    aside = footholds is not None and len(footholds["reach"]) > 1

    seen = [camera for camera, *_ in READERS.values() if footholds is None or camera in footholds["mounts"]]

    def reader(name: str, camera: str, right: str, left: str) -> Reader:
        outputs = (
            Output(
                (leg, f"{leg}_y") if aside else (leg,),
                # A template may come from a file, so it is not given to str.format.
                tuple(name.replace("{leg}", leg) for name in leg_inputs),
                mirrored=leg == right,
            )
            for leg in (right, left)
        )
        return Reader(name, tuple(outputs), (View(camera, columns),) if camera in seen else ())

    choices: tuple[Footholds, ...] = ()
    if footholds is not None and settings.get("variant") != "rank":  # which reads tokens wherever they are
        choices = tuple(_choice(name, footholds, proprioception) for name in READERS)
        settings = {"fade": FADE, **settings}
    vectors: tuple[Vector, ...] = (Vector(PROPRIOCEPTION, proprioception),)
    recall: tuple[Recall, ...] = ()
    if footholds is not None and choices and odometry:
        vectors = (*vectors, Vector("odometry", odometry))
        recall = _recall(footholds["mounts"], odometry, settings.get("memory_for", MEMORY_FOR[0]))
    legs = tuple(leg for _, *pair in READERS.values() for leg in pair)
    depths: dict[str, Any] = {"scale": depth_scale, "reference": True, "lowest": 0.0 if choices else -1.0}
    sideways = tuple(f"{leg}_y" for leg in legs) if aside else ()
    return IAPConfig(
        attention,
        cameras=tuple(Camera(camera, *image, **depths) for camera in seen),
        vectors=vectors,
        recall=recall,
        readers=tuple(reader(name, *read) for name, read in READERS.items()),
        actions=(*legs, *sideways),
        lateral_actions=sideways,
        lateral_inputs=tuple(filter(_is_lateral, proprioception)),
        footholds=choices,
        **settings,
    )


def _check_footholds(footholds: Any) -> None:
    """Raise ValueError, in one line, for a part that is missing or wrong."""
    cameras, _, left = zip(*READERS.values(), strict=True)
    _check_holds("footholds", footholds, ("feet", "mounts", "reach"))
    _check_holds("footholds feet", footholds["feet"], left)
    mounts = footholds["mounts"]
    if not (isinstance(mounts, Mapping) and mounts and mounts.keys() <= set(cameras)):
        raise ValueError(
            f"footholds mounts is {shown(mounts)}: it must hold one or more of {', '.join(cameras)}"
        )
    for camera, mount in mounts.items():
        _check_holds(f"footholds mounts {camera}", mount, MOUNT)
    reach = footholds["reach"]
    if not (isinstance(reach, tuple | list) and len(reach) in (1, 2)):
        raise ValueError(f"footholds reach is {shown(reach)}: it must hold one number or two")
    for value in reach:
        check_number("footholds reach", value, 0.01, 10.0)


def _check_holds(where: str, value: Any, names: Sequence[str]) -> None:
    if not (isinstance(value, Mapping) and set(names) <= value.keys()):
        raise ValueError(f"{where} is {shown(value)}: it must hold {', '.join(names)}")


def _choice(name: str, footholds: Mapping[str, Any], entries: tuple[str, ...]) -> Footholds:
    """The footholds of a reader's legs."""
    camera, *legs = READERS[name]
    ahead, *left = footholds["reach"]
    aside = tuple(f"nominal_aside_{leg}" for leg in legs)
    return Footholds(
        name,
        counts=(AHEAD, LEFT if left else 1),
        spacing=(2 * ahead / (AHEAD - 1), 2 * left[0] / (LEFT - 1) if left else BESIDE),
        nominal=tuple(f"nominal_landing_{leg}" for leg in legs),
        aside=aside if set(aside) <= set(entries) else (),
        foot=footholds["feet"][legs[1]],
        **{part: footholds["mounts"][camera][part] for part in MOUNT if camera in footholds["mounts"]},
    )


def _recall(mounts: Mapping[str, Any], odometry: tuple[str, ...], memory_for: str) -> tuple[Recall, ...]:
    """The memories of the front camera: of the legs whose camera is missing, or of all legs."""
    front, (missing, *_) = READERS["front"][0], READERS["hind"]
    if missing in mounts or front not in mounts:
        return ()
    mount = {part: mounts[front][part] for part in MOUNT}
    return tuple(
        Recall(name, front, odometry, **mount) for name in (READERS if memory_for == "all" else ("hind",))
    )


def _is_lateral(name: str) -> bool:
    if name.startswith(("foot_", "previous_action_")):
        return name.endswith("_y")
    return name in LATERAL or name.startswith("nominal_aside_")
