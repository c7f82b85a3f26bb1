"""Legs without a camera, or all legs, choose among footholds by what the front camera showed before."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from installed_compilers import needs_compiler
from test_footholds import HEIGHT, LEVEL, config, mirrored, scene

from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.bundles.onnx import export_policy, worker_graph
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.quadruped.cameras import CAMERAS, DepthCamera, Ground
from robopolicy.envs.quadruped.presets import PRESETS
from robopolicy.envs.quadruped.terrain import drawn_terrain
from robopolicy.policies import top_view
from robopolicy.policies.base import flatten, unflatten
from robopolicy.policies.policy import Policy
from robopolicy.policies.recall import Recall
from robopolicy.runtime.compiled import CompiledGraph
from robopolicy.runtime.graph import OnnxPolicy

FRONT = "front_depth"
MEMORIES = {
    "softmax": {"attention": "softmax", "variant": "memory", "memory_steps": 12},
    "random features": {"attention": "trigonometric(m=512)", "variant": "memory"},
    "map": {"attention": "all", "encoder": "map"},
    "gru": {"attention": "all", "encoder": "gru"},
    "of all legs": {"attention": "all", "encoder": "map", "memory_for": "all"},
}
OF_PLACES = [name for name in MEMORIES if name != "gru"]


def untrained(**settings):
    return Policy.create(config("front", **settings), {FRONT: LEVEL[FRONT]})


def trained(name):
    """A policy with parameters away from their start, so that each of them matters."""
    policy = untrained(**MEMORIES[name])
    noise = np.random.default_rng(1).normal(size=policy.parameters.shape).astype(np.float32)
    return replace(policy, parameters=policy.parameters + 0.2 * noise)


def with_weights(policy, **weights):
    """The policy with other values of the parameters whose paths hold a name."""

    def changed(path, leaf):
        named = jax.tree_util.keystr(path)
        return next((np.asarray(w, np.float32) for name, w in weights.items() if name in named), leaf)

    tree = jax.tree_util.tree_map_with_path(changed, unflatten(policy.functions)(policy.parameters))
    return replace(policy, parameters=np.asarray(flatten(tree)))


def walk(seed, steps=12):
    """Observations of a robot that walks ahead over stones, the stones, and its places."""
    rng = np.random.default_rng(seed)
    terrain = drawn_terrain(PRESETS["front"].terrain, rng)
    felt = scene(seed, "front")[0]["proprioception"]
    places = [np.array([1.0 + 0.05 * step, 0.01 * step]) for step in range(steps)]
    camera, seen = DepthCamera(CAMERAS[FRONT]), []
    for place in places:
        image = camera.image(Ground(terrain), np.array([*place, HEIGHT]), 0.0)
        odometry = np.array([*(place - places[0]), 0.0], np.float32)
        seen.append({FRONT: image, "proprioception": felt, "odometry": odometry})
    return seen, terrain, places


def last(policy, observations, result="scores"):
    """What the policy computes at the last observation, after all others."""
    state = policy.init_state()
    for observation in observations:
        results = policy.inspect(observation, state)
        _, state = policy.step(observation, state)
    return results[result]


def turned(observation, angle, shift):
    """The same with odometry that began at another place, with another yaw."""
    x, y, yaw = observation["odometry"]
    c, s = np.cos(angle), np.sin(angle)
    odometry = np.array([c * x - s * y + shift[0], s * x + c * y + shift[1], yaw + angle])
    return {**observation, "odometry": odometry.astype(np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_PLACES)
def test_the_best_foothold_is_where_a_stone_was_seen(name):
    gaps = np.array([[-1, -3, -1, -1, -6, -1, -1, -3, -1]]).T  # there and beside
    policy = with_weights(untrained(**MEMORIES[name]), score=gaps, radius=np.log(3.0))
    moves, entries = policy.config.footholds[0].moves, policy.config.entries
    safe, safe_unmoved = [], []
    for seed in range(5):
        seen, terrain, places = walk(seed, steps=32)
        state = policy.init_state()
        for step, (observation, place) in enumerate(zip(seen, places, strict=True)):
            results = policy.inspect(observation, state)
            _, state = policy.step(observation, state)
            if step < 16:
                continue
            for leg in (2, 3):
                nominal = entries.index(f"nominal_landing_{policy.config.actions[leg]}")
                x = place[0] + LAIKAGO.legs.hips[leg, 0] + observation["proprioception"][nominal]
                chosen = 0.15 * moves[np.argmax(results["scores"][leg]), 0]
                at = np.array(
                    [
                        [x + chosen, place[1] + LAIKAGO.legs.plane[leg]],
                        [x, place[1] + LAIKAGO.legs.plane[leg]],
                    ]
                )
                margins = terrain.margin(at)
                safe.append(margins[0] > 0)
                safe_unmoved.append(margins[1] > 0)
    assert np.mean(safe_unmoved) < 0.85 < 0.9 < np.mean(safe)


@pytest.mark.slow
def test_few_features_read_no_more_than_a_camera_shows():
    policy = untrained(attention="trigonometric(m=4)", variant="memory")
    policy = with_weights(policy, score=np.ones((9, 1)), radius=np.log(3.0))
    seen, *_ = walk(0)
    by_reads = [last(policy, seen[: steps + 1])[2:] for steps in range(0, 12, 3)]
    assert 1.0 < np.abs(by_reads).max() < 9.5  # nine places, whose pixels are 1 at most, and the preference


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_a_view_from_above_shows_the_gaps_that_were_seen(name):
    policy = with_weights(untrained(**MEMORIES[name]), radius=np.log(3.0))
    seen, terrain, places = walk(0, steps=32)
    state = policy.init_state()
    for observation in seen:
        _, state = policy.step(observation, state)
    tree = unflatten(policy.functions)(policy.parameters)
    views = policy.functions.remembered(tree, policy.features, seen[-1], state)
    if name == "gru":  # whose state has no places
        assert views == {}
        return
    (rows, columns), around = top_view.places()
    assert views[FRONT].shape == (rows, columns, 1)
    margins = terrain.margin(around + places[-1])
    strip = (np.abs(around[:, 1]) < 0.15) & (around[:, 0] > -0.3) & (around[:, 0] < 0.5)
    ground = np.asarray(views[FRONT]).ravel()
    assert ground[strip & (margins < -0.04)].mean() > ground[strip & (margins > 0.08)].mean() + 0.15


@pytest.mark.rest_slow
@pytest.mark.parametrize("name", MEMORIES)
def test_only_legs_that_read_a_memory_remember(name):
    policy, (seen, *_) = trained(name), walk(0)
    elsewhere = [{**s, FRONT: LEVEL[FRONT]} for s in seen[:-1]]
    here, there = last(policy, seen), last(policy, [*elsewhere, seen[-1]])
    if MEMORIES[name].get("memory_for") == "all":
        assert np.abs(here[:2] - there[:2]).max() > 0.01
    else:
        np.testing.assert_array_equal(here[:2], there[:2])
    assert np.abs(here[2:] - there[2:]).max() > 0.01


def test_tokens_of_a_camera_that_looks_straight_down_lie_on_a_grid_by_hand():
    # From 1 m above the middle, with 90 degrees both ways; the first token is ahead on the left.
    places, is_below = Recall("hind", FRONT, ("x", "y", "yaw"), (0.0, 1.0), 0.0, (90.0, 90.0)).ground(2, 4)
    expected = [[x, y] for x in (0.5, -0.5) for y in (0.75, 0.25, -0.25, -0.75)]
    np.testing.assert_allclose(places, expected, atol=1e-6)
    assert is_below.all()


def test_a_read_fades_below_a_quarter_of_the_weight_of_tokens_that_lie_everywhere():
    policy, seen = untrained(attention="positive(m=4)", variant="memory"), walk(0, steps=1)[0][0]
    tree = unflatten(policy.functions)(policy.parameters)
    asked = policy.functions.asked(tree, policy.features, seen, policy.init_state())
    assert float(asked["hind"]["least"]) == pytest.approx(1.64 / 4, rel=0.01)


def test_what_a_map_holds_fades_by_the_decay():
    policy = untrained(attention="all", encoder="map", memory_decay=0.5)
    observation, state, weights = walk(0, steps=1)[0][0], policy.init_state(), []
    for _ in range(3):
        _, state = policy.step(observation, state)
        weights.append(float(np.sum(state["hind"][:, -1])))
    assert weights[0] > 0
    np.testing.assert_allclose(weights, weights[0] * np.array([1, 1.5, 1.75]), rtol=1e-5)


def test_without_a_memory_front_legs_read_the_image_whatever_memory_for_says():
    policy = untrained(attention="all", memory_for="all")
    assert policy.parameters.shape == untrained(attention="all").parameters.shape
    observation = walk(0, steps=1)[0][0]
    policy = with_weights(policy, score=np.ones((9, 1)))
    assert np.ptp(last(policy, [observation])[0]) > np.ptp(
        last(policy, [{**observation, FRONT: LEVEL[FRONT]}])[0]
    )


@pytest.mark.rest_slow
@pytest.mark.parametrize("name", ["softmax", "map"])
def test_it_does_not_matter_where_odometry_began(name):
    policy, (seen, *_) = trained(name), walk(1)
    shift = {"softmax": (30.3, -2.1), "map": (0.04 * 100, 0.04 * 11)}[name]
    begun_elsewhere = [turned(observation, 0.0, shift) for observation in seen]
    np.testing.assert_allclose(last(policy, begun_elsewhere), last(policy, seen), atol=2e-2)


def test_it_hardly_matters_where_the_robot_looked_as_odometry_began():
    policy, (seen, *_) = trained("map"), walk(1, steps=24)
    other = [turned(observation, 0.4, (0.0, 0.0)) for observation in seen]
    wrong = [{**o, "odometry": o["odometry"] * np.float32([1, 1, 0])} for o in other]
    before, after, mistaken = (last(policy, each) for each in (seen, other, wrong))
    assert np.abs(after - before).max() < 0.3 * np.abs(mistaken - before).max()


@pytest.mark.rest_slow
@pytest.mark.parametrize("name", ["softmax", "map", "gru"])  # random features have no mirror image
def test_a_mirrored_walk_gives_the_other_sides_actions(name):
    policy = trained(name)
    seen, *_ = walk(2)
    # Off the lines between the cells of a map, which belong to one side.
    seen = [{**o, "odometry": o["odometry"] + np.float32([0, 0.001, 0])} for o in seen]
    other = [
        {**mirrored(o, "front", [FRONT]), "odometry": o["odometry"] * np.float32([1, -1, -1])} for o in seen
    ]
    np.testing.assert_allclose(last(policy, other), last(policy, seen)[[1, 0, 3, 2]], atol=2e-3)


@pytest.mark.rest_slow
@pytest.mark.parametrize("name", MEMORIES)
def test_a_step_costs_the_same_for_ever(name):
    policy, (seen, *_) = trained(name), walk(3, steps=2)
    state = policy.init_state()
    shapes = jax.tree.map(np.shape, state)
    for _ in range(50):
        _, state = policy.step(seen[0], state)
    assert jax.tree.map(np.shape, state) == shapes
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


@pytest.mark.rest_slow
@pytest.mark.parametrize("name", MEMORIES)
def test_a_graph_has_the_same_memory(name, tmp_path):
    policy, (seen, *_) = trained(name), walk(4, steps=6)
    export_policy(policy.config, policy.features, tmp_path / "policy.onnx", policy.parameters)
    graph = OnnxPolicy(tmp_path / "policy.onnx")
    for _ in range(2):  # an episode is not remembered in the next one
        graph.reset()
        state = policy.init_state()
        for observation in seen:
            expected = policy.inspect(observation, state)
            _, state = policy.step(observation, state)
            results = graph.run(observation)
            np.testing.assert_allclose(results["scores"], expected["scores"], atol=1e-4)
            np.testing.assert_array_equal(results["action"], expected["action"])


@pytest.mark.slow
def test_a_graph_refuses_to_remember_nan(tmp_path):
    policy, (seen, *_) = trained("gru"), walk(4, steps=2)
    export_policy(policy.config, policy.features, tmp_path / "policy.onnx", policy.parameters)
    graph = OnnxPolicy(tmp_path / "policy.onnx")
    with pytest.raises(ArithmeticError, match="state_hind would hold a number that is not finite"):
        graph.run({**seen[0], FRONT: np.full_like(seen[0][FRONT], np.nan)})
    afterwards = graph.run(seen[1])["scores"]
    graph.reset()
    np.testing.assert_array_equal(graph.run(seen[1])["scores"], afterwards)


@pytest.mark.parametrize(
    ("preset", "settings", "message"),
    [
        ("paper", {"attention": "softmax", "variant": "memory"}, "variant is 'memory': it needs recall"),
        ("paper", {"encoder": "map"}, "encoder is 'map': it needs recall"),
        ("front", {"attention": "softmax", "encoder": "gru"}, "encoder is 'gru': it needs attention 'all'"),
        ("front", {"variant": "memory", "memory_decay": 1.5}, "memory_decay is 1.5"),
        ("front", {"variant": "memory", "memory_steps": 0}, "memory_steps is 0"),
        ("front", {"attention": "none", "encoder": "map"}, "encoder is 'map'"),
        ("paper", {"memory_for": "all"}, "memory_for is 'all': reader 'front' needs recall"),
        ("front", {"encoder": "map", "memory_for": "legs"}, "memory_for is 'legs'"),
    ],
)
def test_bad_settings_are_refused(preset, settings, message):
    with pytest.raises(ValueError, match=message):
        config(preset, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random features", "map", "gru"])
def test_minutes_of_steps_are_finite_and_the_same_bits_twice(name, tmp_path):
    policy, (seen, *_) = trained(name), walk(5)
    export_policy(policy.config, policy.features, tmp_path / "policy.onnx", policy.parameters)
    graph, far = OnnxPolicy(tmp_path / "policy.onnx"), np.array([0.6, 0.0, 0.0])

    def minutes():
        graph.reset()
        for step in range(1500):
            rounds, at = divmod(step, len(seen))
            odometry = (seen[at]["odometry"] + rounds * far).astype(np.float32)
            yield graph.run({**seen[at], "odometry": odometry})["scores"]

    first, second = np.array(list(minutes())), np.array(list(minutes()))
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, second)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_computes_the_same_in_c(name):
    policy, (seen, *_) = trained(name), walk(3)
    graph = worker_graph(policy.config, policy.features)
    runtimes = OnnxPolicy(graph, policy.parameters), CompiledGraph(c_graph(graph), policy.parameters)
    for observation in (*seen, *seen[:2]):
        wanted, found = (runtime.run(observation) for runtime in runtimes)
        np.testing.assert_allclose(found["scores"], wanted["scores"], atol=1e-4)
