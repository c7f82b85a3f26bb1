"""Policies without attention or without images: what they read, what they cost, their graphs."""

import jax
import numpy as np
import pytest

from robopolicy.bundles.onnx import export_policy
from robopolicy.costs.flops import count_step
from robopolicy.experiments.default_policies import policy_config
from robopolicy.policies.base import flatten, unflatten
from robopolicy.policies.catalogue import blank_policy, by_path, describe, functions_of, restore
from robopolicy.policies.controls import attending
from robopolicy.policies.token_blocks import depthwise
from robopolicy.policies.vision_performer import vision_performer
from robopolicy.policies.vision_performer_config import ImageInput, VectorInput, VisionPerformerConfig
from robopolicy.runtime.golden import largest_differences
from robopolicy.runtime.graph import OnnxPolicy

KEY = jax.random.key(0)
TASKS = ("stepping-stones", "bimanual-sweep")
CHEAPEST = "angular_hybrid(m=8, n=8)"  # of the mechanisms in docs
SMALL = VisionPerformerConfig(
    CHEAPEST, (ImageInput("image", 24, 36),), (VectorInput("poses", 5),), 3,
    patch=6, width=8, depth=1, heads=2, mlp=12, channels=2, encoding=10, hidden=8, samples=8,
)  # fmt: skip
KNOWN = {
    "poses_shift": np.zeros(5),
    "poses_scale": np.ones(5),
    "action_low": -np.ones(3),
    "action_high": np.ones(3),
}
STONES = policy_config(CHEAPEST, "stepping-stones")
BASES = {"iap": STONES, "vision-performer": SMALL}
CONTROLS = {f"{name}: {c.label}": c for name, base in BASES.items() for c in base.controls()}
by_name = pytest.mark.parametrize("config", CONTROLS.values(), ids=CONTROLS)


def made(config):
    """The policy, parameters that act, its features, and a function that makes observations."""
    if isinstance(config, VisionPerformerConfig):
        constants = KNOWN
    else:
        constants = {camera.name: np.full(camera.shape, 0.4) for camera in config.cameras}
    policy = functions_of(config, constants)
    first = flatten(policy.init(KEY))
    parameters = first + 0.2 * jax.random.normal(jax.random.key(1), first.shape)

    def observation(seed):
        rng, seen = np.random.default_rng(seed), {}
        for name, shape in policy.observation_shapes.items():
            if (policy.observation_dtypes or {}).get(name) == "uint8":
                seen[name] = rng.integers(0, 256, shape, np.uint8)
            else:
                seen[name] = rng.uniform(0.2, 0.6, shape).astype(np.float32)
        return seen

    return policy, parameters, policy.init_features(KEY), observation


@pytest.mark.rest_slow
@pytest.mark.parametrize("task", TASKS)
def test_controls_cost_less_than_what_they_are_compared_with(task):
    config = policy_config(CHEAPEST, task)
    least = count_step(blank_policy(config)).total
    assert [c.label for c in config.controls()] == ["all", "all, relu", "all, cnn", "none"]
    for control in config.controls():
        assert count_step(blank_policy(control)).total < least
        assert attending(control, CHEAPEST) == config
        assert restore(describe(control)) == control


@pytest.mark.rest_slow
@by_name
def test_a_control_attends_to_nothing_and_sees_what_its_name_says(config):
    policy, parameters, features, observation = made(config)
    tree = unflatten(policy)(parameters)
    assert policy.attended(tree, features, observation(0), ()) == ()
    assert policy.ranked(tree, features, observation(0), ()) == {}
    seen = observation(0)
    images = {name: value for name, value in observation(1).items() if value.ndim > 1}
    scores = [policy.inspect(tree, features, o, ())[0]["scores"] for o in (seen, {**seen, **images})]
    assert np.isfinite(scores).all()
    assert np.array_equal(*scores) == (config.attention == "none")


@pytest.mark.slow
@by_name
def test_the_graph_of_a_control_equals_it(tmp_path, config):
    policy, parameters, features, observation = made(config)
    export_policy(config, features, tmp_path / "policy.onnx")
    inspect, tree = jax.jit(policy.inspect), unflatten(policy)(parameters)
    pairs = []
    for seed in range(20):
        seen, _ = inspect(tree, features, observation(seed), ())
        pairs.append((observation(seed), {name: np.asarray(seen[name]) for name in ("action", "scores")}))
    largest = largest_differences(OnnxPolicy(tmp_path / "policy.onnx", np.asarray(parameters)).run, pairs)
    assert max(largest.values()) <= 1e-5


@pytest.mark.rest_slow
@pytest.mark.parametrize(("encoder", "reach"), [("transformer", 0), ("relu", 0), ("cnn", 1)])
def test_tokens_of_a_control_read_their_neighbours_at_most(encoder, reach):
    config = attending(SMALL, "all")
    config = next(c for c in config.controls() if c.encoder == encoder)
    learner = vision_performer(config, KNOWN)
    parameters, features = learner.policy.init(KEY), learner.policy.init_features(KEY)
    image = np.random.default_rng(0).integers(0, 256, (24, 36, 3), np.uint8)
    other = image.copy()
    other[6:12, 12:18] ^= 255  # the token in row 1 and column 2
    poses = np.zeros(5, np.float32)
    layers = jax.jit(learner.layers)
    read = [
        np.asarray(layers(parameters, features, {"image": i, "poses": poses})["readout"])
        for i in (image, other)
    ]
    rows, columns = np.nonzero((read[0] != read[1]).reshape(4, 6, 2).any(axis=2))
    assert len(rows) > 0
    assert np.abs(rows - 1).max() == np.abs(columns - 2).max() == reach


def test_neighbours_are_read_as_by_a_convolution_of_each_channel():
    rng = np.random.default_rng(0)
    images, kernel = rng.normal(size=(2, 5, 4, 3)), rng.normal(size=(3, 3, 1, 3))
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "feature_group_count": 3}
    expected = jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", **layout)
    np.testing.assert_allclose(depthwise(images, kernel), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("control", SMALL.controls(), ids=lambda c: c.label)
def test_cloning_trains_every_parameter_of_a_control(control):
    learner = vision_performer(control, KNOWN)
    parameters, features = learner.policy.init(KEY), learner.policy.init_features(KEY)
    image = np.random.default_rng(0).integers(0, 256, (24, 36, 3), np.uint8)
    seen, action = {"image": image, "poses": np.full(5, 0.3, np.float32)}, np.array([0.5, -0.5, 0.1])
    slopes = jax.jit(jax.grad(learner.loss), static_argnums=5)(parameters, features, seen, action, KEY, 16)
    for path, slope in by_path(slopes).items():
        assert np.isfinite(slope).all(), path
        assert np.abs(slope).max() > 0, path


@pytest.mark.parametrize(
    ("task", "attention", "settings", "message"),
    [
        ("stepping-stones", "all", {"variant": "rank"},
         "variant is 'rank': attention 'all' needs variant 'mask'"),
        ("stepping-stones", "softmax", {"variant": "trans", "encoder": "cnn"},
         "variant is 'trans': encoder 'cnn' needs variant 'mask'"),
        ("stepping-stones", "none", {"encoder": "cnn"}, "encoder is 'cnn': attention 'none' reads no image"),
        ("stepping-stones", "all", {"encoder": "mlp"}, "encoder is 'mlp'"),
        ("bimanual-sweep", "softmax", {"encoder": "cnn"},
         "encoder is 'cnn': it has no attention, so attention must be 'all', not 'softmax'"),
        ("bimanual-sweep", "none", {"encoder": "relu"}, "so attention must be 'all', not 'none'"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(task, attention, settings, message):
    with pytest.raises(ValueError, match=message):
        policy_config(attention, task, **settings)


def test_without_images_and_vectors_nothing_is_left_to_read():
    with pytest.raises(ValueError, match="attention is 'none': without vectors the policy reads nothing"):
        VisionPerformerConfig("none", (ImageInput("image", 24, 24),), (), 3, patch=6)
