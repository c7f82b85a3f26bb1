"""Legs that choose among footholds read the image where these are, and score all of them alike."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from robopolicy.bundles.onnx import export_policy
from robopolicy.control.kinematics import LEGS
from robopolicy.control.robots import LAIKAGO
from robopolicy.costs.flops import count_step
from robopolicy.envs.quadruped.cameras import CAMERAS, DepthCamera, Ground
from robopolicy.envs.quadruped.presets import PRESETS, SteppingStonesConfig, default_policy
from robopolicy.envs.quadruped.terrain import drawn_terrain
from robopolicy.plan.search import EXACT, price, uses_of
from robopolicy.policies.base import unflatten
from robopolicy.policies.catalogue import blank_policy, describe, restore
from robopolicy.policies.footholds import Footholds, between_pixels
from robopolicy.policies.policy import Policy
from robopolicy.policies.quadruped import quadruped
from robopolicy.runtime.graph import OnnxPolicy

HEIGHT = SteppingStonesConfig().walker.height
LEVEL = {name: DepthCamera(camera).level_image(HEIGHT) for name, camera in CAMERAS.items()}
READ = [
    {"attention": "all"},
    {"attention": "all", "encoder": "relu"},
    {"attention": "all", "encoder": "cnn"},
    {"attention": "softmax", "patch": 1},
    {"attention": "softmax", "patch": 1, "variant": "trans"},
    {"attention": "softmax", "variant": "query"},
]


def config(preset="sparse", **settings):
    own = {name: value for name, value in default_policy(PRESETS[preset]).items() if name != "kind"}
    return quadruped(**{"attention": "all", **own, **settings})


def scene(seed, preset="sparse"):
    """The images over stones around a place on the course, what the robot feels there, and the stones."""
    rng = np.random.default_rng(seed)
    terrain = drawn_terrain(PRESETS[preset].terrain, rng)
    base = np.array([rng.uniform(1.0, 6.0), 0.0, HEIGHT])
    images = {name: DepthCamera(camera).image(Ground(terrain), base, 0.0) for name, camera in CAMERAS.items()}
    names = default_policy(PRESETS[preset])["proprioception"]
    felt = rng.normal(scale=0.02, size=len(names)).astype(np.float32)
    for leg in LEGS:
        felt[names.index(f"nominal_landing_{leg}")] = rng.uniform(0.1, 0.25)
    return {**images, "proprioception": felt}, terrain, base


def mirrored(seen, preset="sparse", cameras=tuple(CAMERAS)):
    names = default_policy(PRESETS[preset])["proprioception"]
    felt = dict(zip(names, seen["proprioception"], strict=True))
    twins = dict(zip(LEGS, ("FL", "FR", "RL", "RR"), strict=True))
    other = []
    for name in names:
        leg = next((leg for leg in LEGS if leg in name), None)
        value = felt[name.replace(leg, twins[leg]) if leg else name]
        lateral = (
            name in ("roll", "velocity_y", "angular_velocity_x", "angular_velocity_z") or "aside" in name
        )
        lateral |= leg is not None and name.endswith("_y")
        other.append(-value if lateral else value)
    images = {camera: seen[camera][:, ::-1].copy() for camera in cameras}
    return {**images, "proprioception": np.array(other, np.float32)}


def policy_of(settings):
    """A policy with parameters away from their start, so that each of them matters."""
    policy = Policy.create(settings, LEVEL)
    noise = np.random.default_rng(1).normal(size=policy.parameters.shape).astype(np.float32)
    return replace(policy, parameters=policy.parameters + 0.6 * noise)


@pytest.mark.parametrize("preset", ["paper", "sparse"])
def test_images_are_read_where_the_feet_would_land(preset):
    # A pixel shows 2 to 4 cm, so that an edge may seem to be a little beside its place.
    right = []
    for seed in range(20):
        seen, terrain, base = scene(seed, preset)
        settings = config(preset)
        names = settings.entries
        for reader in settings.readers:
            choice, camera = settings.choice(reader), reader.views[0].camera
            depths = (seen[camera] - LEVEL[camera])[..., None]
            for output, nominal in zip(reader.outputs, choice.nominal, strict=True):
                leg = LEGS.index(output.actions[0])
                ahead = seen["proprioception"][names.index(nominal)]
                at = choice.seen_at(depths.shape[:2], ahead, 0.0, mirrored=output.mirrored)
                is_gap = np.asarray(between_pixels(depths, *at)).ravel() > 0.1
                signs = np.array([1.0, -1.0 if output.mirrored else 1.0])[: choice.actions]
                reach = np.multiply(choice.spacing, np.array(choice.counts) // 2)[: choice.actions]
                steps = np.zeros((len(choice.moves), 3))
                steps[:, : choice.actions] = choice.moves * signs * reach
                steps += (
                    [*LAIKAGO.legs.hips[leg, :2], 0.0]
                    + np.array([ahead, LAIKAGO.legs.plane[leg], 0.0])
                    + base * [1, 1, 0]
                )
                margin = terrain.margin(steps)
                clear = np.abs(margin) > 0.03
                right.append((is_gap == (margin < 0))[clear])
    right = np.concatenate(right)
    assert len(right) > 500
    assert right.mean() > 0.96


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_camera_that_looks_straight_down_sees_a_grid_by_hand(mirrored):
    # From 1 m above the middle, with 90 degrees both ways: 1 m of ground to each side.
    choice = Footholds("front", (3, 3), (0.5, 0.25), (), (), (0.0, 0.0))
    rows, columns = choice.seen_at((8, 16), 0.0, 0.0, mirrored=mirrored)
    np.testing.assert_allclose(rows[:, 0], [5.5, 3.5, 1.5], atol=1e-5)  # behind, below and ahead
    expected = [9.5, 7.5, 5.5]  # right, below and left
    np.testing.assert_allclose(columns, np.tile(expected[::-1] if mirrored else expected, (3, 1)), atol=1e-5)


@pytest.mark.rest_slow
@pytest.mark.parametrize("read", READ, ids=str)
def test_a_mirrored_scene_gives_the_other_sides_actions(read):
    policy, sides = policy_of(config(**read)), np.array([1, 0, 3, 2])
    moved = 0.0
    for seed in range(4):
        seen, _, _ = scene(seed)
        here, there = policy.inspect(seen), policy.inspect(mirrored(seen))
        np.testing.assert_allclose(there["scores"], here["scores"][sides], atol=1e-3)
        np.testing.assert_array_equal(there["action"][:4], here["action"][:4][sides])
        np.testing.assert_array_equal(there["action"][4:], -here["action"][4:][sides])
        moved += np.abs(here["action"]).sum()
    assert moved > 0


@pytest.mark.rest_slow
@pytest.mark.parametrize("read", READ, ids=str)
def test_what_lies_there_decides(read):
    policy = policy_of(config(**read))
    seen, _, _ = scene(0)
    level = policy.inspect({**seen, **LEVEL})["scores"]
    assert np.abs(policy.inspect(seen)["scores"] - level).max() > 0.01


def test_what_is_nearer_than_level_ground_looks_like_it():
    policy, (seen, _, _) = policy_of(config()), scene(0)
    stands = {name: seen[name] < level + 0.01 for name, level in LEVEL.items()}
    nearer = {name: np.where(stands[name], level - 0.3, seen[name]) for name, level in LEVEL.items()}
    equal = {name: np.maximum(nearer[name], level) for name, level in LEVEL.items()}
    assert any((nearer[name] < equal[name]).mean() > 0.1 for name in LEVEL)
    shown = [
        policy.inspect({**seen, **{name: image.astype(np.float32) for name, image in images.items()}})
        for images in (nearer, equal)
    ]
    np.testing.assert_array_equal(shown[0]["scores"], shown[1]["scores"])


@pytest.mark.slow
def test_nothing_but_the_nearest_footholds_at_first_and_none_without_images():
    for attention in ("all", "softmax", "none"):
        action = Policy.create(config(attention=attention), LEVEL).act(scene(0)[0])
        np.testing.assert_array_equal(action, 0.0)


def test_continuous_landings_are_means_of_footholds():
    policy = policy_of(config(head="tanh"))
    shown = policy.inspect(scene(3)[0])
    weights = np.exp(shown["scores"]) / np.exp(shown["scores"]).sum(axis=1, keepdims=True)
    means = weights @ policy.config.footholds[0].moves
    signs = np.array([-1.0, 1.0, -1.0, 1.0])  # right legs have theirs in a mirror
    np.testing.assert_allclose(shown["action"], np.concatenate([means[:, 0], signs * means[:, 1]]), atol=1e-6)


def test_rank_reads_tokens_and_chooses_among_three_values():
    settings = config(attention="softmax", variant="rank")
    assert settings.footholds == ()
    assert set(np.unique(policy_of(settings).act(scene(0)[0]))) <= {-1.0, 0.0, 1.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "read", [READ[2], READ[5], {"attention": "angular_hybrid(m=2, n=2)", "variant": "query"}]
)
def test_a_description_and_a_graph_hold_the_policy(read, tmp_path):
    policy = policy_of(config(**read))
    assert restore(describe(policy.config)) == policy.config
    export_policy(policy.config, policy.features, tmp_path / "policy.onnx", policy.parameters)
    graph = OnnxPolicy(tmp_path / "policy.onnx")
    for seed in range(3):
        seen, _, _ = scene(seed)
        np.testing.assert_allclose(graph.run(seen)["action"], policy.act(seen), atol=1e-5)


def test_the_mean_rank_is_one_if_there_are_fewer_queries_than_tokens():
    policy = policy_of(config(attention="softmax", variant="query", patch=1))
    tree = unflatten(policy.functions)(policy.parameters)
    ranked = jax.jit(policy.functions.ranked)(tree, policy.features, scene(0)[0], ())
    for camera in CAMERAS:
        assert float(ranked[camera].mean()) == pytest.approx(1.0, abs=1e-5)


def test_a_plan_knows_the_price_of_the_legs_queries():
    # What is left without attention does not depend on the mechanism.
    left = set()
    for spec in (EXACT, "positive(m=16)"):
        settings = config(attention=spec, variant="query")
        total = count_step(blank_policy(settings)).total
        left.add(total - price(spec, uses_of(settings)))
    assert len(left) == 1


HOLDS = config().footholds[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": (4, 7)}, "a count of the footholds of reader 'front' is 4: it must be odd"),
        ({"counts": (9, 99)}, "a count of the footholds of reader 'front' is 99"),
        ({"spacing": (0.0, 0.1)}, "spacing of the footholds of reader 'front' is 0.0"),
        ({"aside": ("nominal_aside_FR",)}, "has 1 entries: it must have as many as nominal"),
        ({"mount": (0.2, -0.1)}, "the height of the mount of the footholds of reader 'front' is -0.1"),
        ({"tilt": float("nan")}, "tilt of the footholds of reader 'front' is nan"),
        ({"fields": (200.0, 80.0)}, "fields of the footholds of reader 'front' is 200.0"),
    ],
)  # fmt: skip
def test_bad_footholds_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(HOLDS, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"footholds": (HOLDS,)}, "reader 'hind' has no footholds"),
        ({"footholds": (HOLDS, HOLDS)}, "'front' twice"),
        ({"footholds": (replace(HOLDS, reader="middle"),)}, "a reader with footholds is 'middle'"),
        ({"footholds": (HOLDS, replace(HOLDS, reader="hind", counts=(9, 1)))}, "its footholds need 1"),
        ({"footholds": (HOLDS, replace(HOLDS, reader="hind", nominal=("height",) * 2))}, "is 'height'"),
        ({"variant": "rank", "attention": "softmax"}, "variant is 'rank': .* leave footholds out"),
        ({"variant": "query", "attention": "softmax", "head_dim": 6}, "head_dim is 6"),
        ({"calm": 0.0}, "calm, with footholds, is 0.0"),
        ({"lateral_actions": ()}, "lateral_actions lacks 'FR_y'"),
        ({"variant": "query", "attention": "softmax", "footholds": ()}, "variant is 'query'"),
    ],
)  # fmt: skip
def test_footholds_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(config(), **change)


GIVEN = default_policy(PRESETS["sparse"])["footholds"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reach": 5}, "footholds reach is 5: it must hold one number or two"),
        ({"reach": ("a", "b")}, "footholds reach is 'a': it must be a number"),
        ({"feet": {}}, "footholds feet is {}: it must hold FL, RL"),
        ({"mounts": 5}, "footholds mounts is 5: it must hold one or more of front_depth, belly_depth"),
        ({"mounts": GIVEN["mounts"] | {"belly_depth": {"tilt": 0.0}}}, "it must hold mount, tilt, fields"),
    ],
)
def test_parts_of_footholds_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        config(footholds=GIVEN | change)
    with pytest.raises(ValueError, match=r"footholds is \{\}: it must hold feet, mounts, reach"):
        config(footholds={})
