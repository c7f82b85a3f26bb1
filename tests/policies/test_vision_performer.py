"""The Vision-Performer as trainers and robots see it: prices, heads, features, bad settings."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from robopolicy.attention import attention
from robopolicy.bundles.onnx import export_policy
from robopolicy.costs.flops import count
from robopolicy.policies.base import KEY, flatten, parameter_count, unflatten
from robopolicy.policies.catalogue import blank_policy, by_path, describe, policy_of, restore
from robopolicy.policies.energy import HEADS, HeadConfig, Score
from robopolicy.policies.vision_performer import vision_performer
from robopolicy.policies.vision_performer_config import (
    PRESETS,
    ImageInput,
    VectorInput,
    VisionPerformerConfig,
    default_patch,
    statistics_shapes,
)
from robopolicy.runtime.graph import OnnxPolicy

SMALL = VisionPerformerConfig(
    "angular_hybrid(m=4, n=3)", (ImageInput("image", 24, 24),), (VectorInput("poses", 14),), 12,
    patch=6, width=8, depth=2, heads=2, mlp=12, encoding=10, hidden=16,
    samples=32,
)  # fmt: skip
KNOWN = {
    "poses_shift": np.full(14, 0.1),
    "poses_scale": np.full(14, 2.0),
    "action_low": np.full(12, -0.9),
    "action_high": np.full(12, 1.05),
}


@cache
def made(config=SMALL, seed=0):
    learner = vision_performer(config, KNOWN)
    start, draw = jax.random.split(jax.random.key(seed))
    return learner, learner.policy.init(start), learner.policy.init_features(draw)


def observation(seed=0, image=24):
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (image, image, 3), np.uint8),
        "poses": rng.uniform(-1, 1, 14).astype(np.float32),
    }


# By hand, with the prices of flops.py: a multiply-add is 2, all else 1 for each element it works on.


def norm_by_hand(tokens, width):
    """Mean and mean square (2 sums, a square, 2 divisions), variance, root; an affine map of each token."""
    statistics = tokens * (width + 2 * width + 2) + tokens * 3
    return statistics + tokens * (1 + 1) + tokens * width * 4


def softmax_by_hand(tokens, d, v):
    """Scores; the peak, a subtraction, exp and the sum of each row; values; a division of each value."""
    rows = tokens * tokens * (2 * d + 1 + 1 + 1 + 1) + tokens  # one more for sums that are at least one
    return rows + 2 * tokens * tokens * v + tokens * v


def encoder_by_hand(config, mechanism):
    """FLOPs of everything but the policy's head: `mechanism` is what attention costs one of its heads."""
    tokens, width, patch = config.tokens, config.width, 3 * config.patch**2
    d = width // config.heads
    total = 2 * tokens * patch  # bytes to [-1, 1]
    total += 2 * tokens * patch * width + tokens * width  # patches
    total += tokens * width  # positions
    block = norm_by_hand(tokens, width)
    block += 3 * 2 * tokens * width * width  # queries, keys, values
    block += 2 * tokens * config.heads * (3 * d + 2)  # unit length: squares, sums, epsilon, root, products
    block += config.heads * mechanism
    block += 2 * tokens * width * width + tokens * width  # out
    block += tokens * width  # added
    block += norm_by_hand(tokens, width)
    block += 2 * tokens * width * config.mlp + 2 * tokens * config.mlp  # bias and relu
    block += 2 * tokens * config.mlp * width + tokens * width
    block += tokens * width
    total += config.depth * block
    total += norm_by_hand(tokens, width)
    read = tokens * config.channels
    total += 2 * width * read + 2 * read  # bias and relu
    total += 2 * read * config.encoding + config.encoding
    total += 2 * config.numbers + 2 * config.numbers * config.encoding  # normalised, joined
    return total + 2 * config.encoding  # their sum, and relu


WIDE = replace(SMALL, images=(ImageInput("image", 32, 40),), patch=8, depth=1)


@pytest.mark.parametrize("config", [SMALL, WIDE])
@pytest.mark.parametrize("spec", ["softmax", "angular_hybrid(m=4, n=3)", "trigonometric(m=5)"])
def test_the_counter_agrees_with_a_hand_count_of_the_encoder(config, spec):
    config = replace(config, attention=spec, head="squared_error")
    d = config.width // config.heads
    price = softmax_by_hand(config.tokens, d, d)
    if spec != "softmax":  # the hand counts of these are tests of the counter itself
        mechanism, rows = attention(spec), jnp.zeros((config.tokens, d))
        draw = jax.eval_shape(lambda key: mechanism.init(key, d), KEY)
        price = count(mechanism.apply, draw, rows, rows, rows).total
    counted = price_of(config)
    assert counted.total - counted.by_component["head"] == encoder_by_hand(config, price)


def price_of(config):
    policy = blank_policy(config)
    shapes = jax.eval_shape(policy.init, KEY), jax.eval_shape(policy.init_features, KEY)
    return count(policy.act, *shapes, policy.observation, ())


def test_the_flops_of_a_step_are_counted_by_component():
    parts = price_of(SMALL).by_component
    assert set(parts) == {
        "patches", "projections", "query map", "key map", "contraction", "encoder", "head"
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_a_head_learns_one_action_and_finds_it_again(head):
    config = replace(SMALL, head=head, samples=128, iterations=50 if head == "langevin" else 3)
    learner, parameters, features = made(config)
    action = jnp.asarray(np.random.default_rng(1).uniform(-0.8, 0.8, 12), jnp.float32)
    optimiser = optax.adam(3e-3)
    slope = jax.value_and_grad(lambda p, key: learner.loss(p, features, observation(), action, key, 64))

    @jax.jit
    def step(parameters, state, key):
        loss, gradient = slope(parameters, key)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, loss

    untrained = np.abs(learner.policy.act(parameters, features, observation(), ())[0] - action).mean()

    state = optimiser.init(parameters)
    for key in jax.random.split(jax.random.key(2), 400):
        parameters, state, _ = step(parameters, state, key)
    found = jax.jit(learner.policy.act)(parameters, features, observation(), ())[0]
    # In twelve dimensions a search by sampling comes near, and no nearer.
    near = 0.5 * untrained if head in ("derivative_free", "langevin") else 0.05
    assert np.abs(found - action).mean() < near


@pytest.mark.rest_slow
@pytest.mark.parametrize("head", sorted(HEADS, key="derivative_free".__ne__))
def test_actions_are_within_their_range_and_the_same_every_time(head):
    learner, parameters, features = made(replace(SMALL, head=head))
    act = jax.jit(learner.policy.act)
    for seed in range(3):
        action = np.asarray(act(parameters, features, observation(seed), ())[0])
        assert action.shape == (12,)
        assert (np.abs(action) <= 1).all()
        np.testing.assert_array_equal(action, act(parameters, features, observation(seed), ())[0])


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_the_exported_graph_equals_the_policy(head, tmp_path):
    config = replace(SMALL, head=head)
    learner, parameters, features = made(config)
    export_policy(config, features, tmp_path / "policy.onnx")
    graph = OnnxPolicy(tmp_path / "policy.onnx", np.asarray(flatten(parameters)))
    for seed in range(3):
        wanted, _ = learner.policy.inspect(parameters, features, observation(seed), ())
        found = graph.run(observation(seed))
        np.testing.assert_allclose(found["action"], wanted["action"], atol=1e-5)
        np.testing.assert_allclose(found["scores"], wanted["scores"], atol=1e-4)


@pytest.mark.slow
def test_the_graph_refuses_another_dtype(tmp_path):
    config = replace(SMALL, head="squared_error")
    _, parameters, features = made(config)
    export_policy(config, features, tmp_path / "policy.onnx")  # the same graph as above, from the cache
    graph = OnnxPolicy(tmp_path / "policy.onnx", np.asarray(flatten(parameters)))
    seen = observation()
    with pytest.raises(ValueError, match=r"image is float32\[24, 24, 3\]: it must be uint8\[24, 24, 3\]"):
        graph({**seen, "image": seen["image"].astype(np.float32)})


@pytest.mark.slow
def test_features_are_drawn_once_and_are_no_parameters():
    learner, parameters, features = made()
    other = learner.policy.init_features(jax.random.key(9))
    drawn, again = by_path(features["draws"]), by_path(other["draws"])
    assert drawn
    assert all(
        not np.array_equal(drawn[path], again[path]) for path in drawn if drawn[path].dtype.kind == "f"
    )
    assert not set(drawn) & set(by_path(parameters))
    # Each head of each block has a draw of its own.
    assert all(not np.array_equal(array[0], array[1]) for array in drawn.values() if array.dtype.kind == "f")


@pytest.mark.slow
def test_a_policy_is_restored_from_its_description():
    learner, parameters, features = made()
    config = restore(describe(SMALL))
    policy, back = policy_of(config, by_path(features))
    vector = flatten(parameters)
    assert config == SMALL
    assert vector.shape == (parameter_count(policy),)
    wanted = jax.jit(learner.policy.act)(parameters, features, observation(), ())[0]
    found = jax.jit(policy.act)(unflatten(policy)(vector), back, observation(), ())[0]
    np.testing.assert_array_equal(found, wanted)


def test_actions_depend_on_places_in_the_image():
    learner, parameters, features = made(replace(SMALL, head="squared_error"))
    here, there = np.zeros((2, 24, 24, 3), np.uint8)
    here[:6, :6], there[-6:, -6:] = 255, 255
    poses = np.zeros(14, np.float32)
    act = jax.jit(learner.policy.act)
    acts = [act(parameters, features, {"image": image, "poses": poses}, ())[0] for image in (here, there)]
    assert np.abs(acts[0] - acts[1]).max() > 1e-4


def test_layers_come_in_order_and_end_with_the_head():
    learner, parameters, features = made()
    names = []
    jax.eval_shape(
        lambda *arguments: names.extend(learner.layers(*arguments)), parameters, features, observation()
    )
    assert names == [
        "patches", "block 0, attention", "block 0, mlp", "block 1, attention", "block 1, mlp", "readout",
        "encoding", "head",
    ]  # fmt: skip


@pytest.mark.slow
def test_half_precision_is_near_the_whole_and_keeps_parameters_whole():
    whole, parameters, features = made()
    half = vision_performer(SMALL, KNOWN, "bfloat16")
    action = jnp.zeros(12)
    arguments = (parameters, features, observation(), action, jax.random.key(0), 64)
    assert float(half.loss(*arguments)) == pytest.approx(float(whole.loss(*arguments)), rel=0.02)
    gradient = jax.grad(half.loss)(*arguments)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}


def test_the_slope_of_a_score_is_its_derivative():
    score = Score(HeadConfig(10, 12, 16, 8, 3), nnx.Rngs(0))
    encoding, candidates = (
        jax.random.normal(jax.random.key(1), (10,)),
        jax.random.normal(jax.random.key(2), (5, 12)),
    )
    wanted = jax.jit(jax.grad(lambda c: jnp.sum(score(encoding, c))))(candidates)
    np.testing.assert_allclose(jax.jit(score.slope)(encoding, candidates), wanted, atol=1e-6)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_fit_their_images(preset):
    for image in (500, 96):
        images = (ImageInput("image", image, image),)
        config = VisionPerformerConfig("softmax", images, (), 12, default_patch(image), **PRESETS[preset])
        assert config.tokens >= 144


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"patch": 7}, "patch is 7: it must divide the 24 rows and 24 columns of image 'image'"),
        ({"patch": 0}, "patch is 0: it must be a whole number from 1 to 4096"),
        ({"heads": 3}, "heads is 3: it must divide the width 8"),
        ({"samples": 0}, "samples is 0: it must be a whole number from 1 to 65536"),
        ({"samples": 10**13}, "samples is 10000000000000: it must be a whole number from 1 to 65536"),
        ({"iterations": 0}, "iterations is 0: it must be a whole number from 1 to 1000"),
        ({"iterations": True}, "iterations is True: it must be of type int"),
        ({"depth": 10**9}, "depth is 1000000000: it must be a whole number from 1 to 16"),
        ({"depth": 16, "width": 64, "heads": 64}, "depth times heads is 1024: .* from 1 to 192"),
        (
            {"images": (ImageInput("image", 4096, 4096),), "patch": 1},
            "tokens times width is 134217728: .* to 16777216",
        ),
        (
            {"samples": 65536, "iterations": 1000},
            "chunk times actions times samples times iterations is 786432000",
        ),
        ({"head": "softmax"}, "head is 'softmax'"),
        ({"qk_norm": "none"}, "qk_norm is 'none'"),
        ({"attention": "attention"}, "attention"),
        ({"attention": None}, "VisionPerformerConfig attention is None: it must be of type str"),
        ({"images": np.zeros((24, 24, 3))}, "VisionPerformerConfig images is array"),
        ({"images": ("image",)}, r"images is \('image',\): it must be of type tuple\[ImageInput, ...\]"),
        ({"width": -8}, "width is -8: it must be a whole number from 1 to 2048"),
        ({"width": "8"}, "VisionPerformerConfig width is '8': it must be of type int"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **settings)


def test_default_patch_refuses_images_that_are_too_large():
    with pytest.raises(ValueError, match="image is 1000000000000: it must be a whole number from 1 to 4096"):
        default_patch(10**12)


def test_statistics_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"statistics 'poses_shift' has shape \[7\]: it must be \[14\]"):
        vision_performer(SMALL, {**KNOWN, "poses_shift": np.zeros(7)})


@pytest.mark.parametrize("norm", ["unit", "tempered"])
def test_attended_returns_the_queries_and_keys_of_every_block(norm):
    learner, parameters, features = made(replace(SMALL, qk_norm=norm))
    attended = jax.jit(learner.policy.attended)
    heads = attended(parameters, features, observation(), ())
    assert len(heads) == SMALL.depth
    for head in heads:
        for tokens in head:
            assert tokens.shape == (SMALL.heads, SMALL.tokens, SMALL.width // SMALL.heads)
            lengths = np.linalg.norm(tokens, axis=-1)
            assert np.allclose(lengths, 1.0, atol=1e-3) == (norm == "unit")
    # The second block reads what the first one made of the image.
    other = attended(parameters, features, observation(1), ())
    assert not np.allclose(heads[1].q, other[1].q, atol=1e-3)


@pytest.mark.slow
def test_two_images_and_two_vectors_are_learnt_from():
    images = (ImageInput("left", 12, 24), ImageInput("wrist", 18, 6))
    vectors = (VectorInput("joints", 3), VectorInput("force", 2))
    config = replace(SMALL, images=images, vectors=vectors, actions=2, head="squared_error", depth=1)
    config = replace(config, attention="positive(m=4)")
    known = {name: np.full(shape, 0.5) for name, shape in statistics_shapes(config).items()}
    known |= {"action_low": np.full(2, -1.0), "action_high": np.full(2, 1.0)}
    learner = vision_performer(config, known)
    parameters = learner.policy.init(jax.random.key(0))
    features = learner.policy.init_features(jax.random.key(2))
    rng = np.random.default_rng(0)
    seen = {i.name: rng.integers(0, 256, (i.rows, i.columns, 3), np.uint8) for i in images}
    seen |= {v.name: rng.normal(size=v.size).astype(np.float32) for v in vectors}
    action, key = jnp.asarray([0.4, -0.7]), jax.random.key(1)
    assert config.tokens == 8 + 3

    slope = jax.jit(jax.value_and_grad(lambda p: learner.loss(p, features, seen, action, key, 4)))
    losses = []
    for _ in range(20):
        loss, gradient = slope(parameters)
        losses.append(float(loss))
        parameters = jax.tree.map(lambda p, g: p - 0.02 * g, parameters, gradient)
    assert losses[-1] < 0.5 * losses[0]
    act = jax.jit(learner.policy.act)
    before = np.asarray(act(parameters, features, seen, ())[0])
    for name, value in seen.items():
        changed = {**seen, name: (value // 2) if value.dtype == np.uint8 else value + 1}
        assert (np.asarray(act(parameters, features, changed, ())[0]) != before).any(), name
    ranked = jax.jit(learner.policy.ranked)(parameters, features, seen, ())
    assert {name: rank.shape for name, rank in ranked.items()} == {"left": (2, 4), "wrist": (3, 1)}
    assert sum(float(rank.sum()) for rank in ranked.values()) == pytest.approx(config.tokens, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"images": ()}, "the number of images is 0: it must be a whole number from 1 to 64"),
        ({"vectors": (VectorInput("image", 3),)}, "images and vectors have the name 'image' twice"),
        ({"images": (ImageInput("image", 24, 20),)}, "patch is 6: it must divide the 24 rows and 20 columns"),
    ],
)
def test_observations_that_do_not_fit_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **settings)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (lambda: ImageInput("image", None, 24), "ImageInput rows is None: it must be of type int"),
        (lambda: ImageInput("image", 24, -1), "columns of image 'image' is -1"),
        (lambda: ImageInput(3, 24, 24), "ImageInput name is 3: it must be of type str"),
        (lambda: VectorInput("poses", "14"), "VectorInput size is '14': it must be of type int"),
    ],
)
def test_an_input_that_cannot_be_is_refused(part, words):
    with pytest.raises(ValueError, match=words):
        part()


def test_statistics_that_are_missing_are_refused():
    with pytest.raises(
        ValueError, match=r"statistics lacks 'poses_scale': it must hold an array \[14\] of that name"
    ):
        vision_performer(SMALL, {name: value for name, value in KNOWN.items() if name != "poses_scale"})
