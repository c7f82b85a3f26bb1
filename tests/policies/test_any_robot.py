"""The Implicit Attention Policy for robots that are no quadruped, and policies with their parameters."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from robopolicy.bundles.onnx import export_policy
from robopolicy.costs.flops import count_step
from robopolicy.policies.base import flatten, normalise, unflatten, with_normaliser
from robopolicy.policies.catalogue import blank_policy, describe, restore
from robopolicy.policies.default_iap import default_iap
from robopolicy.policies.iap import iap
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.iap_parts import Camera, Output, Reader, Vector, View
from robopolicy.policies.policy import Policy
from robopolicy.runtime.graph import OnnxPolicy

ACTIONS = ("shoulder", "elbow", "wrist")
SHAPES = {"camera": (16, 24, 3), "joints": (6,)}
ARM = default_iap("positive(m=8)", SHAPES, ACTIONS)


def observation(seed=0):
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (16, 24, 3), np.uint8)
    return {"camera": image, "joints": rng.normal(size=6).astype(np.float32)}


def noisy(policy, seed=1):
    """The policy with parameters away from their start, so that each of them matters."""
    noise = np.random.default_rng(seed).normal(size=policy.parameters.shape).astype(np.float32)
    return replace(policy, parameters=policy.parameters + 0.3 * noise)


# Two arms, of which one is the mirror image of the other; a waist turns the other way in a mirror.
SIDES = IAPConfig(
    "softmax",
    cameras=(Camera("colours", 8, 12, 3), Camera("depths", 6, 4, scale=2.0)),
    vectors=(Vector("left", ("reach", "lean")), Vector("right", ("far", "tilt"))),
    readers=(
        Reader("eyes", (Output(("waist", "hip"), ("reach",)),), (View("colours"), View("depths"))),
        Reader(
            "arms",
            (Output(("left turn", "left lift"), ("reach", "lean")),
             Output(("right turn", "right lift"), ("far", "tilt"), mirrored=True)),
            (View("colours", (1, 7), (4, 3)),),
        ),
        Reader("blind", (Output(("grip",), ("lean",)),)),
    ),
    actions=("grip", "left turn", "right turn", "left lift", "right lift", "waist", "hip"),
    lateral_inputs=("lean", "tilt"),
    lateral_actions=("left turn", "right turn"),
    patch=1,
    keep=0.4,
    head="tanh",
)  # fmt: skip


def of_sides(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "colours": rng.integers(0, 256, (8, 12, 3), np.uint8),
        "depths": rng.uniform(0, 2, (6, 4)).astype(np.float32),
        "left": rng.normal(size=2).astype(np.float32),
        "right": rng.normal(size=2).astype(np.float32),
    }


def test_statistics_are_shift_and_scale_of_each_vector_in_turn():
    made = default_iap("none", {"joints": (2,), "wrist": (1,)}, ("turn",), normalise=True)
    found = with_normaliser(blank_policy(made), {}, jnp.arange(6.0))["normaliser"]
    expected = {"joints": {"shift": [0, 1], "scale": [2, 3]}, "wrist": {"shift": [4], "scale": [5]}}
    assert jax.tree.map(lambda array: array.tolist(), found) == expected


def test_normalised_numbers_end_at_five():
    statistics = {"shift": jnp.array([1.0, 1.0, 1.0]), "scale": jnp.array([2.0, 2.0, 2.0])}
    np.testing.assert_array_equal(normalise(statistics, jnp.array([9.0, -9.0, 2.0])), [5.0, -5.0, 2.0])


@pytest.mark.rest_slow
@pytest.mark.parametrize("variant", ["mask", "rank", "trans"])
@pytest.mark.parametrize("head", ["tanh", "choice"])
def test_an_arm_with_a_colour_camera_acts(variant, head):
    config = default_iap("positive(m=8)", SHAPES, ACTIONS, variant=variant, head=head, keep=0.2)
    policy = noisy(Policy.create(config, {}))
    actions = np.stack([policy.act(observation(seed)) for seed in range(4)])
    assert actions.shape == (4, 3)
    assert (np.abs(actions) <= 1).all()
    assert len(np.unique(actions, axis=0)) > 1
    assert "other" not in count_step(blank_policy(config)).by_component


def test_a_policy_is_the_same_for_the_same_seed_and_description():
    policy = Policy.create(ARM, {}, seed=3)
    again = Policy.create(restore(json.loads(json.dumps(describe(ARM)))), {}, seed=3)
    assert again.config == ARM
    np.testing.assert_array_equal(policy.parameters, again.parameters)
    assert (Policy.create(ARM, {}, seed=4).parameters != policy.parameters).any()
    start, _ = jax.random.split(jax.random.key(3))
    np.testing.assert_array_equal(policy.parameters, flatten(iap(ARM, {}).init(start)))


def test_a_policy_ignores_other_observations_and_refuses_wrong_ones():
    policy, seen = noisy(Policy.create(ARM, {})), observation()
    np.testing.assert_array_equal(policy.act({**seen, "more": np.zeros(3)}), policy.act(seen))
    np.testing.assert_array_equal(policy.inspect(seen)["action"], policy.act(seen))
    for changed, words in (
        (
            {"camera": seen["camera"].astype(np.float32)},
            r"camera is float32.*: it must be uint8\[16, 24, 3\]",
        ),
        ({"joints": np.zeros(5, np.float32)}, r"joints is float32\[5\]: it must be float32\[6\]"),
        ({"joints": None}, r"joints is object\[\]: it must be float32\[6\]"),
    ):
        with pytest.raises(ValueError, match=words):
            policy.act({**seen, **changed})
    with pytest.raises(ValueError, match="observation holds \\['joints'\\]: it lacks 'camera'"):
        policy.act({"joints": seen["joints"]})
    with pytest.raises(ValueError, match=r"parameters is float32\[3\]: it must be float32\["):
        replace(policy, parameters=np.zeros(3, np.float32))


def mirrored(seen):
    left, right = ((seen[side] * [1, -1]).astype(np.float32) for side in ("left", "right"))
    return {**seen, "colours": seen["colours"][:, ::-1].copy(), "left": right, "right": left}


@pytest.mark.rest_slow
@pytest.mark.parametrize("variant", ["mask", "trans"])
def test_a_mirrored_output_equals_the_other_output_in_a_mirror(variant):
    policy = noisy(Policy.create(replace(SIDES, variant=variant), {}))
    index = {name: SIDES.actions.index(name) for name in SIDES.actions}
    for seed in range(3):
        here, there = (policy.act(seen) for seen in (of_sides(seed), mirrored(of_sides(seed))))
        for part, sign in (("turn", -1.0), ("lift", 1.0)):
            one, other = (index[f"{side} {part}"] for side in ("left", "right"))
            np.testing.assert_allclose(there[other], sign * here[one], atol=1e-5)
            np.testing.assert_allclose(there[one], sign * here[other], atol=1e-5)
            assert abs(here[one] - sign * here[other]) > 1e-3


def test_an_action_depends_only_on_what_its_reader_reads():
    policy = noisy(Policy.create(SIDES, {}))
    before = policy.act(of_sides())
    for name, moved in (
        ("depths", {"waist", "hip"}),
        ("colours", set(SIDES.actions) - {"grip"}),
        ("left", {"grip", "left turn", "left lift", "waist", "hip"}),
        ("right", {"right turn", "right lift"}),
    ):
        after = policy.act({**of_sides(), name: of_sides(1)[name]})
        assert {a for a, old, new in zip(SIDES.actions, before, after, strict=True) if old != new} == moved


def test_a_camera_that_two_readers_read_shows_what_either_keeps():
    policy = noisy(Policy.create(SIDES, {}))
    shown = policy.inspect(of_sides())
    kept = shown["kept/colours"].sum(), shown["kept/depths"].sum()
    assert 38 <= kept[0] <= 76  # of 96 pixels, 40% by each reader
    assert kept[1] == 10
    tree = unflatten(policy.functions)(policy.parameters)
    ranked = jax.jit(policy.functions.ranked)(tree, policy.features, of_sides(), ())
    assert {name: rank.shape for name, rank in ranked.items()} == {"colours": (8, 12), "depths": (6, 4)}
    assert len(jax.eval_shape(policy.functions.attended, tree, policy.features, of_sides(), ())) == 3


def test_a_policy_may_read_images_alone_or_vectors_alone():
    images = default_iap("softmax", {"depth": (6, 8)}, ("turn",))
    vectors = default_iap(
        "none", {"joints": (4,)}, ("turn",), {"joints": ("a", "b", "c", "d")}, normalise=True
    )
    rng = np.random.default_rng(0)
    for config, shape in ((images, (6, 8)), (vectors, (4,))):
        policy = noisy(Policy.create(config, {}))
        (name,) = policy.functions.observation_shapes
        acts = [policy.act({name: rng.uniform(0, 1, shape).astype(np.float32)}) for _ in range(2)]
        assert acts[0] != acts[1]


@pytest.mark.slow
@pytest.mark.parametrize("config", [ARM, SIDES], ids=["arm", "sides"])
def test_the_exported_graph_equals_the_policy(config, tmp_path):
    policy = noisy(Policy.create(config, {}))
    export_policy(config, policy.features, tmp_path / "policy.onnx", policy.parameters)
    graph = OnnxPolicy(tmp_path / "policy.onnx")
    for seed in range(5):
        seen = observation(seed) if config is ARM else of_sides(seed)
        np.testing.assert_allclose(graph(seen), policy.act(seen), atol=1e-5)


@pytest.mark.slow
def test_the_default_policy_learns_to_point_at_what_it_sees():
    config = default_iap("positive(m=8)", {"camera": (16, 16, 3)}, ("across", "down"))
    policy = Policy.create(config, {})
    act, inverse = jax.vmap(policy.functions.act, in_axes=(None, None, 0, None)), unflatten(policy.functions)
    rng = np.random.default_rng(0)
    places = rng.integers(0, 13, (256, 2))
    images = np.zeros((256, 16, 16, 3), np.uint8)
    for image, (row, column) in zip(images, places, strict=True):
        image[row : row + 4, column : column + 4] = (255, 40, 40)
    wanted = places[:, ::-1] / 6.0 - 1.0

    def loss(vector):
        actions, _ = act(inverse(vector), policy.features, {"camera": images}, ())
        return jnp.mean((actions - wanted) ** 2)

    vector, optimiser = jnp.asarray(policy.parameters), optax.adam(0.02)
    state, slope = optimiser.init(vector), jax.jit(jax.value_and_grad(loss))
    first = float(loss(vector))
    for _ in range(150):
        _, gradient = slope(vector)
        updates, state = optimiser.update(gradient, state)
        vector = optax.apply_updates(vector, updates)
    assert float(loss(vector)) < 0.25 * first


CAMERA, JOINTS = Camera("eye", 8, 8, 3), Vector("joints", ("a", "b"))


def config_of(**changed):
    settings = {
        "attention": "softmax", "cameras": (CAMERA,), "vectors": (JOINTS,), "actions": ("x", "y"),
        "readers": (Reader("one", (Output(("x", "y"), ("a",)),), (View("eye"),)),),
    }  # fmt: skip
    return IAPConfig(**{**settings, **changed})


def reader(*outputs, **settings):
    return (Reader("one", outputs, **{"views": (View("eye"),), **settings}),)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda: {"actions": ("x", "y", "z")}, "actions has 'z': it must be in an output of a reader"),
        (lambda: {"actions": ("x",)}, "an action of an output is 'y': it must be one of x"),
        (lambda: {"actions": ("x", "x")}, "actions have the name 'x' twice"),
        (
            lambda: {"readers": reader(Output(("x", "y")), Output(("y", "x")))},
            "actions of outputs have the name 'y' twice",
        ),
        (lambda: {"readers": reader(Output(("x", "y"), ("c",)))}, "an input of reader 'one' is 'c'"),
        (lambda: {"readers": reader(Output(("x",)), Output(("y",), ("a",)))}, r"have \[0, 1\] inputs"),
        (lambda: {"readers": reader(Output(()))}, "outputs of reader 'one' have no actions"),
        (lambda: {"readers": reader()}, "the number of outputs of reader 'one' is 0"),
        (lambda: {"readers": ()}, "the number of readers is 0"),
        (
            lambda: {"readers": reader(Output(("x", "y"), ("a",)), views=())},
            "cameras has 'eye': a reader must have a view of it",
        ),
        (
            lambda: {"readers": reader(Output(("x", "y"), ("a",)), views=(View("ear"), View("eye")))},
            "camera is 'ear': it must be one of eye",
        ),
        (
            lambda: {"readers": reader(Output(("x", "y")), views=(View("eye", (2, 9)),))},
            r"columns of camera 'eye' in reader 'one' is \(2, 9\)",
        ),
        (
            lambda: {"readers": reader(Output(("x", "y")), views=(View("eye", None, (3, 1)),))},
            r"cells of camera 'eye' in reader 'one' is \(3, 1\): they must divide the 8 rows and 8 columns",
        ),
        (lambda: {"attention": "none", "readers": reader(Output(("x", "y")))}, "reader 'one' reads nothing"),
        (lambda: {"patch": 3}, "patch is 3: it must divide the 8 rows and 8 columns of camera 'eye'"),
        (lambda: {"lateral_inputs": ("c",)}, "lateral_inputs is 'c': it must be one of a, b"),
        (lambda: {"lateral_actions": ("a",)}, "lateral_actions is 'a': it must be one of x, y"),
        (lambda: {"vectors": (Vector("eye", ("a",)),)}, "cameras and vectors have the name 'eye' twice"),
        (lambda: {"vectors": (JOINTS, Vector("more", ("b",)))}, "entries of vectors have the name 'b' twice"),
        (lambda: {"cameras": (Camera("eye", 8, 8, 2),)}, "channels of camera 'eye' is 2: it must be 1 or 3"),
        (lambda: {"cameras": (Camera("eye", 8, 8, 3, 1.0, True),)}, "reference of camera 'eye' is True"),
        (lambda: {"cameras": (Camera("_eye", 8, 8),)}, "the name of a camera is '_eye'"),
        (lambda: {"cameras": (Camera("e\nye", 8, 8),)}, r"is 'e\\nye': it must .* no .*control characters"),
        (lambda: {"cameras": ()}, "camera is '.*': there is nothing to choose from"),
        (lambda: {"cameras": (CAMERA, CAMERA)}, "cameras and vectors have the name 'eye' twice"),
        (lambda: {"cameras": (Camera("eye", -8, 8),)}, "rows of camera 'eye' is -8: it must be a whole"),
        (lambda: {"cameras": (Camera(None, 8, 8),)}, "Camera name is None: it must be of type str"),
        (
            lambda: {"cameras": np.zeros((2, 30))},
            r"cameras is array\(.* of type tuple\[Camera, ...\]$",
        ),
        (lambda: {"cameras": ({"name": "eye", "rows": 8, "columns": 8},)}, "IAPConfig cameras is"),
        (lambda: {"attention": None}, "IAPConfig attention is None: it must be of type str"),
        (lambda: {"actions": "xy"}, "IAPConfig actions is 'xy': it must be of type tuple"),
        (lambda: {"patch": np.int64(2)}, r"IAPConfig patch is np.int64\(2\): it must be of type int"),
        (lambda: {"vectors": (Vector("joints", np.array(["a"])),)}, "Vector entries is array"),
        (lambda: {"readers": reader(Output(None))}, "Output actions is None"),
        (lambda: {"readers": reader(Output(("x", "y")), views=(View("eye", cells=8),))}, "View cells is 8"),
        (lambda: {"readers": reader(Output(("x", "y")), views=("eye",))}, r"Reader views is \('eye',\)"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(changed, words):
    with pytest.raises(ValueError, match=words) as refused:
        config_of(**changed())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cameras": [{"name": "eye"}]}, "policy, of kind iap, cameras 0 lacks the settings"),
        ({"cameras": [5]}, "policy, of kind iap, cameras 0 is 5: it must be settings by name"),
        ({"cameras": 5}, "policy, of kind iap, cameras is 5"),
        ({"actions": [1]}, "policy, of kind iap, actions is"),
        ({"readers": [{"name": "one", "views": [], "outputs": [[]]}]}, "readers 0 outputs 0 is"),
    ],
)
def test_an_error_inside_a_description_names_its_place(changed, words):
    with pytest.raises(ValueError, match=words):
        restore({**describe(config_of()), **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hiden": 3}, "setting is 'hiden': it must be one of .*; did you mean 'hidden'"),
        ({"cameras": ()}, "setting is 'cameras': it must be one of lateral_inputs, "),
        ({"shapes": None}, "shapes is None: it must be a mapping"),
        ({"shapes": {"eye": None}}, "observation 'eye' has shape None"),
        ({"actions": "turn"}, "actions is 'turn': it must be a sequence of names"),
        ({"entries": {"joints": 2}}, "entries of 'joints' is 2: it must be a sequence of names"),
        ({"entries": {"camera": ("red",)}}, "entries is 'camera': it must be one of joints"),
        ({"variant": "trans", "patch": 0}, "patch is 0: it must be a whole number from 1 to 2048"),
        ({"attention": None}, "IAPConfig attention is None: it must be of type str"),
    ],
)
def test_arguments_that_make_no_default_policy_are_refused(changed, words):
    with pytest.raises(ValueError, match=words):
        default_iap(**{"attention": "softmax", "shapes": SHAPES, "actions": ACTIONS, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"config": None}, "config is None: it must be of type IAPConfig or VisionPerformerConfig"),
        ({"constants": None}, "level is of type NoneType: it must hold arrays by name"),
        ({"constants": {"eye": "deep"}}, r"level 'eye' must be an array of numbers \[8, 8\]"),
        ({"constants": {"eye": np.zeros((8, 4))}}, r"level 'eye' has shape \[8, 4\]: it must be \[8, 8\]"),
        ({"seed": "one"}, "seed is 'one': it must be a whole number from 0 to 4294967295"),
        ({"seed": -1}, "seed is -1"),
        ({"name": None}, "name is None: it must be text"),
    ],
)
def test_arguments_that_create_no_policy_are_refused(changed, words):
    config = config_of(cameras=(Camera("eye", 8, 8, reference=True),))
    with pytest.raises(ValueError, match=words):
        Policy.create(**{"config": config, "constants": {"eye": np.zeros((8, 8))}, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"parameters": None}, r"parameters is None: it must be float32\["),
        ({"parameters": [0.0]}, "parameters is of type list"),
        ({"features": None}, "features must hold 'draws' and 'level'"),
        ({"features": {"draws": {}, "level": {}}}, "features: arrays .* are missing or unknown"),
        ({"config": config_of(attention="positive(m=5)")}, "features: array .* is float32.*: it must be"),
    ],
)
def test_a_policy_of_other_parts_is_refused(changed, words):
    policy = Policy.create(config_of(attention="positive(m=4)"), {})
    with pytest.raises(ValueError, match=words):
        replace(policy, **changed)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (None, "observation is None: it must hold arrays by name"),
        ("eye", "observation is 'eye'"),
        ({"eye": [[1], [1, 2]]}, r"eye is of type list: it must be uint8\[8, 8, 3\]"),
        ({"eye": "red"}, r"eye is <U3\[\]: it must be uint8"),
    ],
)
def test_an_observation_of_another_type_is_refused(seen, words):
    with pytest.raises(ValueError, match=words):
        Policy.create(config_of(), {}).act(seen)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"image": (8, 8, 4)}, r"observation 'image' has shape \(8, 8, 4\)"),
        ({"joints": (3,)}, "entries of 'joints' are 2: the observation has 3"),
    ],
)
def test_observations_of_no_known_shape_are_refused(shapes, words):
    with pytest.raises(ValueError, match=words):
        default_iap("softmax", shapes, ("x",), {"joints": ("a", "b")})


def test_a_level_that_is_missing_is_refused():
    config = config_of(cameras=(Camera("eye", 8, 8, reference=True),))
    with pytest.raises(ValueError, match=r"level lacks 'eye': it must hold an array \[8, 8\] of that name"):
        iap(config, {})
