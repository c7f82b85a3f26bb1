"""The Implicit Attention Policy, over mechanisms, variants and heads."""

import json
from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.attention import attention
from robopolicy.policies.base import flatten, parameter_count, unflatten
from robopolicy.policies.baselines import blind, random
from robopolicy.policies.catalogue import by_path, describe, from_path, functions_of, policy_of, restore
from robopolicy.policies.iap import iap
from robopolicy.policies.policy import Policy
from robopolicy.policies.quadruped import quadruped

LEGS = ("FR", "FL", "RR", "RL")
NAMES = (
    "roll",
    "velocity_x",
    "velocity_y",
    "pitch",
    *(f"nominal_landing_{leg}" for leg in LEGS),
    *(f"foot_{leg}_y" for leg in LEGS),
)
LEVEL = {camera: np.full((24, 32), 0.4, np.float32) for camera in ("front_depth", "belly_depth")}
KEY = jax.random.key(4)
EVERY_INPUT = ("velocity_x", "nominal_landing_{leg}", "pitch", "roll", "velocity_y", "foot_{leg}_y")


def config(spec="angular_hybrid(m=8, n=8)", **changed):
    return quadruped(spec, NAMES, **changed)


def observation(seed=0):
    """Level ground with a gap across each image, lopsided, and some noise."""
    rng = np.random.default_rng(seed)
    seen = {}
    for camera, level in LEVEL.items():
        image = level + rng.normal(size=level.shape).astype(np.float32) * 0.005
        row = rng.integers(2, 18)
        image[row : row + 5, : rng.integers(16, 32)] += 0.5
        seen[camera] = image.astype(np.float32)
    return {**seen, "proprioception": rng.normal(size=len(NAMES)).astype(np.float32)}


def swapped(array):
    """The legs of the other side."""
    return array[np.array([1, 0, 3, 2])]


def mirrored(seen):
    felt = dict(zip(NAMES, seen["proprioception"], strict=True))
    other = {}
    for name in NAMES:
        twin = name
        for leg, mirror in zip(LEGS, ("FL", "FR", "RL", "RR"), strict=True):
            if f"_{leg}" in name:
                twin = name.replace(leg, mirror)
                break
        sign = -1.0 if name in ("roll", "velocity_y") or name.startswith("foot_") else 1.0
        other[name] = sign * felt[twin]
    images = {camera: seen[camera][:, ::-1].copy() for camera in LEVEL}
    return {**images, "proprioception": np.array([other[name] for name in NAMES], np.float32)}


def trained_like(policy, seed=1):
    """Parameters away from their start, so that every one of them matters."""
    start = flatten(policy.init(KEY))
    noise = jax.random.normal(jax.random.key(seed), start.shape)
    return unflatten(policy)(start + 0.3 * noise)


SPECS = ("angular_hybrid(m=8, n=8)", "positive_antithetic(m=16)", "softmax")
VARIANTS = ("mask", "rank", "trans")


# The quick part meets every mechanism and every variant once, and both heads.
MET = tuple(zip(SPECS, VARIANTS, ("choice", "tanh", "choice"), strict=True))


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    ("spec", "variant", "head"),
    [
        pytest.param(*case, marks=() if case in MET else pytest.mark.slow)
        for case in product(SPECS, VARIANTS, ("choice", "tanh"))
    ],
)
def test_actions_are_finite_and_bounded_and_compile_once(spec, variant, head):
    policy = iap(config(spec, variant=variant, head=head, patch=4, keep=0.25, hidden=5), LEVEL)
    parameters, features = trained_like(policy), policy.init_features(KEY)
    traces = []

    def counted(*arguments):
        traces.append(1)
        return policy.act(*arguments)

    act = jax.jit(counted)
    actions = np.stack([act(parameters, features, observation(seed), ())[0] for seed in range(5)])
    assert len(traces) == 1
    assert actions.shape == (5, 4)
    assert np.isfinite(actions).all()
    assert np.abs(actions).max() <= 1.0
    if head == "choice":
        assert set(np.unique(actions)) <= {-1.0, 0.0, 1.0}


def test_policies_with_the_same_settings_compile_once(caplog):
    def compiled(policy):
        caplog.clear()
        with jax.log_compiles():
            policy.act(observation())
        return "jit(act)" in caplog.text

    settings = config("all", hidden=3)
    jax.eval_shape(lambda key: functions_of(settings, LEVEL).init_features(key), KEY)  # leaves no tracer
    first = Policy.create(settings, LEVEL)
    assert compiled(first)
    assert not compiled(Policy.create(config("all", hidden=3), LEVEL, seed=1))
    assert not compiled(replace(first, parameters=first.parameters + 1))
    higher = Policy.create(settings, {camera: level + 1 for camera, level in LEVEL.items()})
    assert float(higher.features["level"]["front_depth"][0, 0]) == pytest.approx(1.4)


@pytest.mark.parametrize("patch", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_exactly_the_share_keep_is_kept_and_the_rest_has_no_influence(patch):
    policy = iap(config(keep=0.5, patch=patch), LEVEL)
    parameters, features = trained_like(policy), policy.init_features(KEY)
    inspect = jax.jit(policy.inspect)
    compared = {False: 0, True: 0}
    for seed in range(8):
        seen = observation(seed)
        shown, _ = inspect(parameters, features, seen, ())
        kept = {camera: np.asarray(shown[f"kept/{camera}"]) for camera in LEVEL}
        assert [mask.sum() for mask in kept.values()] == [24 * 32 // 2] * 2
        # What is changed leaves the mask as it is: a masked-out pixel a little, or one in a gap a lot.
        for asked, depth, influence in ((False, 0.404, False), (True, 0.55, True)):
            image = seen["front_depth"]
            candidates = np.argwhere((kept["front_depth"] == asked) & ((image > 0.8) == asked))
            row, column = next(place for place in candidates if 6 <= place[1] < 14)
            moved = image.copy()
            moved[row, column] = depth
            other, _ = inspect(parameters, features, {**seen, "front_depth": moved}, ())
            if (np.asarray(other["kept/front_depth"]) == kept["front_depth"]).all():
                difference = np.abs(other["scores"] - shown["scores"]).max()
                assert (difference > 1e-3) if influence else (difference < 1e-4)
                compared[influence] += 1
    assert min(compared.values()) >= 3
    seen = observation()
    inspect = jax.jit(iap(config(keep=1.0, patch=patch), LEVEL).inspect)
    everything, _ = inspect(parameters, features, seen, ())
    assert all(everything[f"kept/{camera}"].all() for camera in LEVEL)


def test_ties_are_broken_in_favour_of_the_earlier_pixel():
    policy = iap(config("softmax", keep=0.25), LEVEL)
    parameters = jax.tree.map(jnp.zeros_like, policy.init(KEY))  # all queries and keys alike
    shown, _ = jax.jit(policy.inspect)(parameters, policy.init_features(KEY), observation(), ())
    np.testing.assert_array_equal(np.flatnonzero(shown["kept/front_depth"]), np.arange(24 * 32 // 4))


def test_at_its_start_the_policy_walks_on_and_looks_at_the_gaps():
    policy = iap(config(), LEVEL)
    inspect, features = jax.jit(policy.inspect), policy.init_features(KEY)
    for seed in range(5):
        shown, _ = inspect(policy.init(jax.random.key(seed)), features, observation(seed), ())
        np.testing.assert_array_equal(shown["action"], 0.0)
        gap = observation(seed)["front_depth"] > 0.6
        assert np.asarray(shown["kept/front_depth"])[gap].mean() > 0.9


@pytest.mark.rest_slow
@pytest.mark.parametrize("read", [{}, {"variant": "trans"}, {"encoder": "relu"}, {"encoder": "cnn"}], ids=str)
def test_a_mirrored_scene_gives_the_other_sides_scores(read):
    # A larger token has an inside, which a mirror turns round.
    policy = iap(config("softmax", patch=1, leg_inputs=EVERY_INPUT, **read), LEVEL)
    parameters, features = trained_like(policy), policy.init_features(KEY)
    inspect = jax.jit(policy.inspect)
    for seed in range(3):
        here = inspect(parameters, features, observation(seed), ())[0]["scores"]
        there = inspect(parameters, features, mirrored(observation(seed)), ())[0]["scores"]
        np.testing.assert_allclose(there, swapped(np.asarray(here)), atol=2e-4)
        assert np.abs(here - swapped(np.asarray(here))).max() > 1e-3


def test_gaps_move_the_scores_of_the_legs_that_see_them():
    policy = iap(config(), LEVEL)
    parameters, features = trained_like(policy), policy.init_features(KEY)
    seen = observation()
    inspect = jax.jit(policy.inspect)
    before = inspect(parameters, features, seen, ())[0]["scores"]
    after = inspect(parameters, features, {**seen, "front_depth": LEVEL["front_depth"]}, ())[0]["scores"]
    assert np.abs(after[:2] - before[:2]).max() > 1e-3
    np.testing.assert_array_equal(after[2:], before[2:])


def test_parameters_are_a_few_hundred_and_survive_being_flat():
    policy = iap(config(), LEVEL)
    parameters = policy.init(KEY)
    flat = flatten(parameters)
    assert parameter_count(policy) == flat.size
    assert 200 < flat.size < 1000
    for path, array in by_path(unflatten(policy)(flat)).items():
        np.testing.assert_array_equal(array, by_path(parameters)[path])
    np.testing.assert_array_equal(flat, flatten(policy.init(KEY)))
    assert (flat != flatten(policy.init(jax.random.key(5)))).any()


def test_features_are_drawn_by_key_and_are_no_parameters():
    policy = iap(config(), LEVEL)
    once, again = by_path(policy.init_features(KEY)), by_path(policy.init_features(KEY))
    other = by_path(policy.init_features(jax.random.key(9)))
    draws = [path for path in once if path.startswith("draws/")]
    assert draws
    for path in once:
        np.testing.assert_array_equal(once[path], again[path])
        assert (path in draws) == (once[path] != other[path]).any()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"spec": "softmx"}, "softmx.*softmax"),
        ({"patch": 5}, "patch is 5"),
        ({"patch": 0}, "patch is 0"),
        ({"keep": 0.0}, "keep is 0.0"),
        ({"keep": 1.5}, "keep is 1.5"),
        ({"variant": "maks"}, "variant is 'maks'.*did you mean 'mask'"),
        ({"head": "choise"}, "head is 'choise'.*did you mean 'choice'"),
        (
            {"leg_inputs": ("velocty_x",)},
            "an input .* is 'velocty_x'.*did you mean 'velocity_x'",
        ),
        ({"head_dim": 0}, "head_dim is 0"),
        ({"hidden": -1}, "hidden is -1"),
        ({"hidden": 10**9}, "hidden is 1000000000: it must be a whole number from 0 to 2048"),
        (
            {"image": (10**9, 10**9)},
            "rows of camera 'front_depth' is 1000000000: .* from 1 to 2048",
        ),
        ({"image": (True, 32), "patch": 1}, r"image is \(True, 32\): it must be of type tuple\[int, int\]"),
        (
            {"columns": (16, 4)},
            r"columns of camera 'front_depth' .* is \(16, 4\): it must be a first",
        ),
        ({"columns": (4, 33)}, r"columns .* is \(4, 33\).* of the image's 32"),
        ({"keep": float("nan")}, "keep is nan"),
        ({"fade": float("inf")}, "fade is inf: it must be a number from 1e-06 to 1e"),
        ({"depth_scale": 0.0}, "scale of camera 'front_depth' is 0.0"),
        ({"spread": -1.0}, "spread is -1.0"),
        ({"calm": float("nan")}, "calm is nan"),
        ({"calm": 10**400}, "calm is 1000"),
        ({"hiden": 4}, "setting is 'hiden': it must be one of .*; did you mean 'hidden'"),
        ({"lateral_inputs": ("pitch",)}, "setting is 'lateral_inputs': it must be one of image, "),
        ({"leg_inputs": None}, "quadruped leg_inputs is None: it must be of type tuple"),
        ({"image": 24}, "quadruped image is 24: it must be of type tuple"),
        ({"leg_inputs": ("{leg:>4000000000}",)}, "an input .* is '{leg:>4000000000}': it must be one of"),
        (
            {"leg_inputs": ("nominal_landing_{0.__class__}",)},
            "is 'nominal_landing_{0.__class__}'",
        ),
    ],
)
def test_bad_settings_are_refused_by_name(changed, words):
    with pytest.raises(ValueError, match=words):
        config(**changed)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("pitch", "pitch"), "entries of vectors have the name 'pitch' twice"),
        (("pitch", "{leg}"), "the name of an entry of vector 'proprioception' is '{leg}'"),
        (("pitch", "x" * 101), "the name of an entry .* is 'xxx"),
        (tuple(map(str, range(1025))), "the number of entries of vector 'proprioception' is 1025"),
    ],
)
def test_bad_names_are_refused(names, words):
    with pytest.raises(ValueError, match=words):
        quadruped("softmax", names, leg_inputs=names[:1])


def test_level_depth_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"level 'belly_depth' has shape \[12, 32\]: it must be \[24, 32\]"):
        iap(config(), {**LEVEL, "belly_depth": np.zeros((12, 32), np.float32)})


def test_a_mask_of_one_token_is_refused():
    said = r"keep is 0\.001: it leaves one of \d+ tokens of 'front_depth'.* must be \S+ or more$"
    with pytest.raises(ValueError, match=said) as refused:
        iap(config(keep=0.001), LEVEL)
    iap(config(keep=float(str(refused.value).split()[-3])), LEVEL)
    iap(config(keep=0.001, variant="rank"), LEVEL)


def test_a_policy_in_64_bits_is_refused():
    with jax.enable_x64(True), pytest.raises(ValueError, match="JAX_ENABLE_X64 is set"):
        functions_of(config(), LEVEL)


@pytest.mark.slow
def test_a_policy_is_the_same_after_writing_and_reading():
    wanted = config(variant="rank", keep=0.05, hidden=3)
    assert restore(json.loads(json.dumps(describe(wanted)))) == wanted
    policy = iap(wanted, LEVEL)
    features = policy.init_features(KEY)
    again, read_back = policy_of(wanted, by_path(features))
    parameters = trained_like(policy)
    seen = observation()
    np.testing.assert_array_equal(
        jax.jit(policy.inspect)(parameters, features, seen, ())[0]["scores"],
        jax.jit(again.inspect)(parameters, read_back, seen, ())[0]["scores"],
    )


def test_descriptions_and_arrays_of_another_policy_are_refused():
    with pytest.raises(ValueError, match="kind is 'mlp'"):
        restore({"kind": "mlp"})
    with pytest.raises(ValueError, match=r"kind is \[\]"):
        restore({"kind": []})
    written = json.loads(json.dumps(describe(config())))
    with pytest.raises(ValueError, match="'colour'"):
        restore({**written, "colour": "red"})
    with pytest.raises(ValueError, match="'attention'"):
        restore({name: value for name, value in written.items() if name != "attention"})
    with pytest.raises(ValueError, match="patch is 'two': it must be of type int"):
        restore({**written, "patch": "two"})
    with pytest.raises(ValueError, match="policy is 5: it must be settings by name"):
        restore(5)
    like = {"a": np.zeros(3, np.float32)}
    for arrays, words in (
        ({"a": np.zeros(4, np.float32)}, r"a is float32\[4\].*float32\[3\]"),
        ({"a": np.zeros(3, np.float64)}, r"a is float64\[3\]"),
        ({"b": np.zeros(3, np.float32)}, "a, b"),
    ):
        with pytest.raises(ValueError, match=words):
            from_path(like, arrays)
    with pytest.raises(ValueError, match="features lack level/front_depth"):
        policy_of(config(), {})


def test_baselines_ignore_the_observation():
    seen = observation()
    np.testing.assert_array_equal(blind(4)(seen), np.zeros(4))
    first, second, other = random(4, 1), random(4, 1), random(4, 2)
    drawn = np.stack([first(seen) for _ in range(50)])
    np.testing.assert_array_equal(drawn, np.stack([second(seen) for _ in range(50)]))
    assert (drawn[0] != other(seen)).any()
    assert np.abs(drawn).max() <= 1.0
    assert drawn.std() > 0.4


@pytest.mark.rest_slow
@pytest.mark.parametrize("spec", ["softmax", "angular_hybrid(m=8, n=8)"])
def test_the_queries_and_keys_that_attended_returns_rank_the_tokens(spec):
    policy = iap(config(spec), LEVEL)
    parameters, features, seen = trained_like(policy), policy.init_features(KEY), observation()
    heads = jax.jit(policy.attended)(parameters, features, seen, ())
    described, _ = jax.jit(policy.inspect)(parameters, features, seen, ())
    for head, draw, camera in zip(heads, ("front", "hind"), LEVEL, strict=True):
        ranking = attention(spec).rank(features["draws"][draw], head.q[0], head.k[0])
        top = np.zeros(192, bool)
        top[np.argsort(-ranking)[:96]] = True
        by_pixel = np.kron(top.reshape(12, 16), np.ones((2, 2), bool))
        assert np.mean(by_pixel == described[f"kept/{camera}"]) > 0.98  # but for ties at the last rank
        np.testing.assert_allclose(np.linalg.norm(head.q, axis=-1), 1.0, atol=1e-5)


def test_the_control_without_attention_reads_what_a_mask_of_everything_does():
    everything, control = iap(config("softmax", keep=1.0), LEVEL), iap(config("all"), LEVEL)
    parameters = trained_like(everything)
    heads = {
        name: {part: leaf for part, leaf in reader.items() if part != "looks"}
        for name, reader in parameters.items()
    }
    features = everything.init_features(KEY), control.init_features(KEY)
    for seed in range(3):
        masked, _ = jax.jit(everything.inspect)(parameters, features[0], observation(seed), ())
        plain, _ = jax.jit(control.inspect)(heads, features[1], observation(seed), ())
        np.testing.assert_allclose(plain["scores"], masked["scores"], atol=1e-6)
        assert plain["kept/front_depth"].all()
    assert np.abs(masked["scores"]).max() > 0.1


@pytest.mark.parametrize("spec", ["none", "all"])
def test_a_control_attends_to_nothing(spec):
    policy = iap(config(spec), LEVEL)
    arguments = policy.init(KEY), policy.init_features(KEY), observation(), ()
    assert policy.attended(*arguments) == ()
    assert policy.ranked(*arguments) == {}


def test_tokens_are_ranked_as_the_mask_keeps_them():
    """The pixels that are kept are those of the tokens that are attended to most."""
    settings = config("softmax")
    policy = iap(settings, LEVEL)
    parameters, features = policy.init(KEY), policy.init_features(KEY)
    seen = observation()
    ranked = jax.jit(policy.ranked)(parameters, features, seen, ())
    shown, _ = jax.jit(policy.inspect)(parameters, features, seen, ())
    for camera in LEVEL:
        assert ranked[camera].shape == settings.grid(settings.readers[0].views[0])
        assert ranked[camera].mean() == pytest.approx(1.0, abs=1e-5)
        kept = shown[f"kept/{camera}"][::2, ::2]
        assert ranked[camera][kept].min() >= ranked[camera][~kept].max()
