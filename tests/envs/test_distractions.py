"""Distractions and randomised physics of the sweep: drawn by the seed, ordered by strength, counted."""

import json
from dataclasses import asdict, fields, replace
from itertools import pairwise

import numpy as np
import pytest
from installed_engines import each_engine, needs_bullet

import robopolicy
from robopolicy.envs.physics import ARM_ENGINES
from robopolicy.envs.physics.arms import TABLE_LIGHT, Bowl, Placement
from robopolicy.envs.sweep.bimanual_sweep import ACTION, CAMERA, PRESETS, BimanualSweepConfig
from robopolicy.envs.sweep.distractions import NOMINAL, DistractionConfig, drawn_look
from robopolicy.envs.sweep.randomised import RandomisedConfig, drawn_physics
from robopolicy.envs.sweep.stripes import is_sweepable
from robopolicy.settings import from_json

STILL = np.zeros(len(ACTION), np.float32)
SMALL = {"engine": "mujoco", "image_size": 96}
STRENGTHS = ("paper", "distracted-weak", "distracted", "distracted-strong")
DISTRACTED = [name for name in PRESETS if name.startswith("distracted")]


def made(**settings):
    return robopolicy.make("bimanual-sweep", **settings).unwrapped


def looks(preset, count=50):
    config = PRESETS[preset].distractions
    return [drawn_look(config, np.random.default_rng(seed)) for seed in range(count)]


@pytest.mark.parametrize("preset", DISTRACTED)
def test_a_seed_draws_the_same_picture_whatever_came_before(preset):
    env, other = made(preset=preset, **SMALL), made(preset=preset, **SMALL)
    first = env.reset(seed=1)[0]["image"]
    env.step(STILL)
    second = env.reset(seed=2)[0]["image"]
    np.testing.assert_array_equal(other.reset(seed=2)[0]["image"], second)
    np.testing.assert_array_equal(other.reset(seed=1)[0]["image"], first)
    assert not np.array_equal(first, second)


@needs_bullet
def test_both_engines_give_the_same_distracted_picture():
    pictures = [
        made(preset="distracted-strong", engine=engine, image_size=200).reset(seed=4)[0]["image"]
        for engine in ARM_ENGINES
    ]
    np.testing.assert_array_equal(*pictures)


def test_the_look_is_fixed_within_an_episode():
    env = made(preset="distracted-strong", **SMALL)
    first, _ = env.reset(seed=3)
    second, *_ = env.step(STILL)
    assert (first["image"] == second["image"]).all(axis=2).mean() > 0.9
    assert env.look.camera != CAMERA


def test_a_changing_look_is_drawn_anew_every_second_and_the_balls_stay():
    env, other, still = (made(preset=f"distracted{kind}", **SMALL) for kind in ("-changing", "-changing", ""))
    for one in (env, other, still):
        one.reset(seed=3)
    assert env.look.camera == still.look.camera
    looks = [env.look]
    for _ in range(20):
        np.testing.assert_array_equal(env.step(STILL)[0]["image"], other.step(STILL)[0]["image"])
        still.step(STILL)
        looks.append(env.look)
    assert [a is b for a, b in pairwise(looks)] == [step % 10 != 0 for step in range(1, 21)]
    assert len({look.camera for look in looks}) == 3
    np.testing.assert_array_equal(env.balls, still.balls)
    other.step(STILL)
    for one in (env, other):
        one.reset()  # without a seed, after episodes of other lengths
    np.testing.assert_array_equal(env.balls, other.balls)


def test_strengths_are_ordered():
    def spreads(preset):
        drawn = looks(preset)
        colours = [np.abs(np.subtract(one.colours.table[:3], NOMINAL.colours.table[:3])) for one in drawn]
        eyes = [np.linalg.norm(np.subtract(one.camera.eye, CAMERA.eye)) for one in drawn]
        lamps = [abs(one.lighting.ambient - TABLE_LIGHT.ambient) for one in drawn]
        shares = [one.table.share if one.table else 0.0 for one in drawn]
        others = PRESETS[preset].distractions.other_balls
        return [*(np.mean(each) for each in (colours, eyes, lamps, shares)), others]

    table = np.array([spreads(preset) for preset in STRENGTHS])
    assert (np.diff(table, axis=0) > 0).all()
    assert (table[0] == 0).all()


def test_a_dimension_alone_leaves_the_others_nominal():
    (colours,), (textures,), (camera,), (balls,) = (
        looks(f"distracted-{name}", 1) for name in ("colours", "textures", "camera", "balls")
    )
    assert (colours.camera, colours.table, colours.background) == (CAMERA, None, None)
    assert textures == NOMINAL._replace(table=textures.table, background=textures.background)
    assert textures.table is not None
    assert camera == NOMINAL._replace(camera=camera.camera)
    assert camera.camera != CAMERA
    assert balls is NOMINAL
    scattered = [made(preset=name, **SMALL) for name in ("paper", "distracted-camera", "randomised")]
    for env in scattered:
        env.reset(seed=5)
        np.testing.assert_array_equal(env.balls, scattered[0].balls)


@pytest.mark.parametrize("preset", DISTRACTED)
def test_the_picture_has_the_whole_scatter_and_both_bowls(preset):
    config = BimanualSweepConfig()
    ring = np.linspace(0, 2 * np.pi, 24)
    rims = [
        np.column_stack(
            [bowl.center[0] + bowl.radius * np.cos(ring), bowl.radius * np.sin(ring), 0 * ring + bowl.height]
        )
        for bowl in config.bowls
    ]
    corners = np.array([[x, y, 0.0] for x in (-config.scatter, config.scatter) for y in (-0.28, 0.28)])
    points = np.concatenate([*rims, corners])
    for look in looks(preset, 200):
        eye, target = np.array(look.camera.eye), np.array(look.camera.target)
        back = (eye - target) / np.linalg.norm(eye - target)
        right = np.cross([0, 0, 1], back)
        right /= np.linalg.norm(right)
        seen = (points - eye) @ np.stack([right, np.cross(back, right), -back], axis=1)
        half = np.tan(np.radians(look.camera.field_of_view) / 2)
        assert np.abs(seen[:, :2] / seen[:, 2:]).max() < half


def test_colours_tell_balls_to_sweep_from_those_that_stay():
    for look in looks("distracted-strong", 200):
        (red, _, blue), (other_red, _, other_blue) = look.colours.balls[:3], look.colours.other_balls[:3]
        assert red - blue > 0.1
        assert other_blue - other_red > 0.1


@each_engine
def test_a_wrong_ball_in_a_bowl_costs_what_a_right_one_earns(engine):
    env = made(preset="distracted-balls", engine=engine, image_size=None, balls=4)
    env.reset(seed=0)
    assert (env.balls.shape, env.others.shape) == ((4, 3), (3, 3))
    assert env.shapes()["other balls"].centers.shape == (3, 3)
    right, wrong = env.balls[:2, :2], env.others[:2, :2]
    # Bowls lie where balls are, so that these are in bowls without a sweep.
    for places, height, counts, reward in (
        (right, 0.045, (2, 0), 2 / 4),
        (right, 0.01, (0, 0), 0.0),  # balls over a bowl are not in it
        (np.concatenate([right[:1], wrong[:1]]), 0.045, (1, 1), 0.0),
        (wrong, 0.045, (0, 2), -2 / 4),
    ):
        small = tuple(Bowl(tuple(place), radius=0.005, height=height) for place in places.tolist())
        env.config = replace(env.config, bowls=small)
        _, earned, ended, _, info = env.step(STILL)
        assert (sum(info["in_bowls"]), info["wrong_in_bowls"]) == counts
        assert earned == pytest.approx(reward)
        assert not ended
        assert not info["success"]


@each_engine
def test_success_needs_all_other_balls_on_the_table(engine):
    env = made(preset="distracted-balls", engine=engine, image_size=None, balls=1)
    env.reset(seed=0)
    places = [env.balls[0, :2], env.others[0, :2]]
    bowl = env.config.bowls[0]
    bowls = tuple(replace(bowl, center=tuple(place.tolist()), radius=0.005) for place in places)
    env.config = replace(env.config, bowls=bowls)
    _, reward, ended, _, info = env.step(STILL)
    assert (ended, info["success"], info["cause"]) == (True, False, "all balls in bowls")
    assert (reward, info["wrong_in_bowls"]) == (0.0, 1)


def test_each_ball_can_be_swept_without_those_that_stay():
    env = made(preset="distracted-strong", image_size=None)
    for seed in range(3):
        env.reset(seed=seed)
        radius = env.config.ball_radius
        assert all(is_sweepable(ball[:2], env.others, radius) for ball in env.balls)
    beside = np.array([[0.0, 0.05], [0.08, 0.05], [-0.08, 0.05]])
    assert not is_sweepable(np.array([0.0, 0.1]), beside, 0.016)


@pytest.mark.slow
@each_engine
def test_the_demonstrator_leaves_balls_that_stay(engine):
    env = made(preset="distracted-strong", engine=engine, image_size=None)
    env.reset(seed=0)
    over = False
    while not over:
        *_, ended, cut, info = env.step(env.oracle_action())
        over = ended or cut
    assert info["fraction_in_bowls"] >= 0.9
    assert info["wrong_in_bowls"] == 0


@pytest.mark.parametrize(
    ("declared", "preset"), [(DistractionConfig, "distracted"), (RandomisedConfig, "randomised")]
)
def test_settings_survive_json(declared, preset):
    (settings,) = (value for value in vars(PRESETS[preset]).values() if isinstance(value, declared))
    assert settings != declared()
    assert from_json("settings", declared, json.loads(json.dumps(asdict(settings)))) == settings


@pytest.mark.parametrize(
    ("declared", "changed"),
    [
        *((DistractionConfig, {field.name: -1}) for field in fields(DistractionConfig)),
        *((RandomisedConfig, {field.name: (-1.0, 1.0)}) for field in fields(RandomisedConfig)),
        (DistractionConfig, {"other_balls": 9}),
        (DistractionConfig, {"textures": float("nan")}),
        (RandomisedConfig, {"latency": (0.0, 0.2)}),
        (RandomisedConfig, {"friction": (1.2, 0.8)}),
    ],
)
def test_bad_constants_are_refused_by_name(declared, changed):
    with pytest.raises(ValueError, match=f"^{next(iter(changed))} is"):
        declared(**changed)


@needs_bullet
def test_renderers_of_engines_refuse_what_they_do_not_draw():
    with pytest.raises(ValueError, match=r"^renderer is 'tiny': it must be 'software' where .*$"):
        made(preset="distracted", renderer="tiny")
    env = made(preset="distracted-camera", renderer="tiny", image_size=64)
    expected = made(preset="distracted-camera", engine="bullet", image_size=64).reset(seed=1)[0]["image"]
    assert (env.reset(seed=1)[0]["image"] != expected).any(axis=2).sum() < 20


def test_physics_are_drawn_within_their_ranges_and_nominal_ones_draw_nothing():
    config = PRESETS["randomised"].randomised
    rows = [drawn_physics(config, np.random.default_rng(seed)) for seed in range(200)]
    drawn = {**{name: [getattr(r.conditions, name) for r in rows] for name in vars(rows[0].conditions)}}
    drawn["ball_mass"] = [row.ball_mass for row in rows]
    assert drawn.keys() == asdict(config).keys()
    for name, values in drawn.items():
        low, high = getattr(config, name)
        assert low <= min(values) < low + 0.1 * (high - low)
        assert high - 0.1 * (high - low) < max(values) <= high
    rng = np.random.default_rng(0)
    assert drawn_physics(RandomisedConfig(), rng).conditions == Placement._field_defaults["conditions"]
    assert rng.random() == np.random.default_rng(0).random()


@each_engine
@pytest.mark.parametrize(
    ("changed", "sign"),
    [({"latency": (0.05, 0.05)}, -1), ({"response": (0.5, 0.5)}, -1), ({"response": (2.0, 2.0)}, 1)],
)
def test_late_and_slow_arms_lag_behind(engine, changed, sign):
    moves = []
    for randomised in (RandomisedConfig(), RandomisedConfig(**changed)):
        env = made(engine=engine, config=BimanualSweepConfig(image_size=None, randomised=randomised))
        env.reset(seed=0)
        before = env.physics.tools()[0][0, 2]
        action = STILL.copy()
        action[ACTION.index("left_move_z")] = 1.0
        env.step(action)
        moves.append(env.physics.tools()[0][0, 2] - before)
    assert moves[0] > 0.005
    assert sign * (moves[1] - moves[0]) > 0.003


@each_engine
def test_balls_roll_farther_with_less_rolling_friction(engine):
    rolled = []
    for factor in (0.3, 2.5):
        own = RandomisedConfig(rolling_friction=(factor, factor))
        env = made(
            engine=engine, config=BimanualSweepConfig(image_size=None, balls=1, scatter=0.01, randomised=own)
        )
        env.reset(seed=0)
        if engine == "bullet":
            ball = env.physics._balls[0]
            env.physics.client.resetBaseVelocity(ball, (0.0, 0.2, 0.0), (-0.2 / 0.016, 0.0, 0.0))
        else:
            env.physics.data.qvel[:6] = (0.0, 0.2, 0.0, -0.2 / 0.016, 0.0, 0.0)
        start = env.physics.balls()[0, 1]
        for _ in range(10):
            env.physics.step()
        rolled.append(env.physics.balls()[0, 1] - start)
    assert rolled[0] > 1.5 * rolled[1] > 0.0
