"""Exported graphs against the policies that they were made from."""

import subprocess
from functools import partial

import jax
import numpy as np
import pytest

from robopolicy.bundles.graph_cache import CODE, _code, cache_path, fetch, store
from robopolicy.bundles.onnx import export_policy
from robopolicy.policies.base import flatten, unflatten, with_normaliser
from robopolicy.policies.iap import iap
from robopolicy.policies.quadruped import quadruped
from robopolicy.runtime.golden import largest_differences
from robopolicy.runtime.graph import OnnxPolicy

NAMES = ("velocity_x", "pitch", *(f"nominal_landing_{leg}" for leg in ("FR", "FL", "RR", "RL")))
LEVEL = {camera: np.full((24, 32), 0.4, np.float32) for camera in ("front_depth", "belly_depth")}
TALL = {camera: np.full((36, 32), 0.4, np.float32) for camera in LEVEL}
KEY = jax.random.key(2)
# The last two process their tokens, 192 and 1,152 of each camera, in chunks.
CASES = [
    *((spec, LEVEL, 2) for spec in ("angular_hybrid(m=8, n=8)", "positive_antithetic(m=64)")),
    *((spec, LEVEL, 2) for spec in ("trigonometric(m=16)", "softmax", "trigonometric(m=4096)")),
    ("softmax", TALL, 1),
]


def scenes(count, levels=LEVEL):
    """Level ground with gaps of random place and depth."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        images = {}
        for camera, level in levels.items():
            row, rows = rng.integers(0, 20), rng.integers(2, 8)
            images[camera] = level + rng.normal(size=level.shape).astype(np.float32) * 0.01
            images[camera][row : row + rows] += rng.uniform(0.1, 0.6)
        felt = rng.normal(size=len(NAMES)).astype(np.float32)
        yield {**{c: i.astype(np.float32) for c, i in images.items()}, "proprioception": felt}


def pairs(policy, parameters, features, observations):
    """Every observation, and what the JAX policy makes of it."""
    inspect, tree = jax.jit(policy.inspect), unflatten(policy)(parameters)
    for observation in observations:
        seen, _ = inspect(tree, features, observation, ())
        yield observation, {name: np.asarray(seen[name]) for name in ("action", "scores")}


def made(spec, levels=LEVEL, **settings):
    config = quadruped(spec, NAMES, **settings)
    policy = iap(config, levels)
    noise = jax.random.normal(jax.random.key(7), flatten(policy.init(KEY)).shape)
    return config, policy, np.asarray(flatten(policy.init(KEY)) + 0.2 * noise), policy.init_features(KEY)


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "levels", "patch"), CASES)
def test_the_graph_equals_the_policy(tmp_path, spec, levels, patch):
    config, policy, parameters, features = made(spec, levels, patch=patch, image=levels["front_depth"].shape)
    export_policy(config, features, tmp_path / "policy.onnx")
    graph = OnnxPolicy(tmp_path / "policy.onnx", parameters)
    recorded = list(pairs(policy, parameters, features, scenes(100, levels)))
    largest = largest_differences(graph.run, recorded)
    assert largest["action"] <= 1e-5
    assert largest["scores"] <= 1e-5
    assert len(np.unique([outputs["action"] for _, outputs in recorded])) > 1
    # Other parameters, same graph: what is compared above depends on them.
    graph.parameters = parameters + 1.0
    other = pairs(policy, parameters, features, scenes(5, levels))
    assert largest_differences(graph.run, other)["scores"] > 1e-3


@pytest.mark.slow
def test_statistics_of_observations_are_an_input_of_their_own(tmp_path):
    config, policy, parameters, features = made("none", normalise=True)
    export_policy(config, features, tmp_path / "policy.onnx")
    graph = OnnxPolicy(tmp_path / "policy.onnx", parameters)
    size = 2 * len(NAMES)
    assert (graph.shapes["parameters"], graph.shapes["normaliser"]) == ((len(parameters),), (size,))
    with pytest.raises(ValueError, match=r"normaliser is None: it must be float32\[12\]"):
        graph(next(scenes(1)))
    graph.normaliser = np.random.default_rng(1).uniform(0.1, 1.0, size).astype(np.float32)
    frozen = with_normaliser(policy, features, graph.normaliser)
    recorded = list(pairs(policy, parameters, frozen, scenes(5)))
    assert largest_differences(graph.run, recorded)["action"] <= 1e-5
    graph.normaliser = graph.normaliser + 1.0
    assert largest_differences(graph.run, recorded)["action"] > 1e-3


@pytest.mark.parametrize("recorded", [np.nan, 1.0])
@pytest.mark.parametrize("played", [np.nan, 1.0])
def test_a_nan_on_either_side_is_no_agreement(recorded, played):
    sound = {"scores": np.ones(3)}
    pairs = [(played, {"scores": np.array([1.0, recorded, 1.0])}), (1.0, sound)]
    largest = largest_differences(lambda value: {"scores": np.array([1.0, value, 1.0])}, pairs)
    assert (largest["scores"] <= 1e-5) == (recorded == played == 1.0)


@pytest.mark.slow
def test_parameters_may_be_baked_in_and_bytes_are_reproduced(tmp_path):
    config, _, parameters, features = made("angular_hybrid(m=8, n=8)")
    for name in ("one.onnx", "two.onnx"):
        export_policy(config, features, tmp_path / name, parameters)
    export_policy(config, features, tmp_path / "open.onnx")  # the same graph as above, from the cache
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()
    baked, fed = OnnxPolicy(tmp_path / "one.onnx"), OnnxPolicy(tmp_path / "open.onnx", parameters)
    assert "parameters" not in baked.shapes
    for scene in scenes(5):
        np.testing.assert_allclose(baked.run(scene)["scores"], fed.run(scene)["scores"], atol=1e-6)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.onnx", "open.onnx", "two.onnx"]


def test_code_that_determines_a_graph_is_part_of_its_name_in_the_cache(monkeypatch):
    before = cache_path({}, {})
    assert cache_path({}, {}) == before
    for files in CODE:
        monkeypatch.setattr("robopolicy.bundles.graph_cache.CODE", tuple(f for f in CODE if f != files))
        _code.cache_clear()
        assert cache_path({}, {}) != before, files
    _code.cache_clear()


def test_parameters_and_features_are_part_of_the_name_of_a_graph_in_the_cache():
    arrays = [{}, {"a": np.zeros(2)}, {"a": np.ones(2)}, {"a": np.ones((2, 1))}, {"b": np.ones(2)}]
    assert len({cache_path({}, one) for one in arrays}) == len(arrays)


def test_a_damaged_cached_graph_is_not_used(tmp_path):
    path, cached, out = (tmp_path / name for name in ("policy.onnx", "cached.onnx", "out.onnx"))
    path.write_bytes(b"a graph")
    store(path, cached)
    assert fetch(cached, out)
    assert out.read_bytes() == b"a graph"
    out.unlink()
    content = cached.read_bytes()
    for damaged in (b"", content[:-1], content + b"x", b"a graph"):
        cached.write_bytes(damaged)
        assert not fetch(cached, out)
    cached.unlink()
    cached.mkdir()
    assert not fetch(cached, out)
    assert not out.exists()


@pytest.mark.slow
def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    config, _, _, features = made("angular_hybrid(m=8, n=8)")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        export_policy(config, features, tmp_path / "nowhere" / "policy.onnx")


@pytest.mark.slow
def test_a_conversion_that_fails_raises_and_leaves_nothing(tmp_path, monkeypatch):
    config, _, _, features = made("angular_hybrid(m=8, n=8)")
    with pytest.raises(RuntimeError, match=r"conversion to ONNX failed: \w*Error: "):
        export_policy(config, features, tmp_path / "policy.onnx", np.zeros(3))
    silent = partial(subprocess.Popen, "false", stderr=subprocess.PIPE, text=True)
    monkeypatch.setattr("robopolicy.bundles.onnx._converter", lambda *paths: silent())
    with pytest.raises(RuntimeError, match=r"failed: the converter ended with exit code 1$"):
        export_policy(config, features, tmp_path / "policy.onnx", np.zeros(3))
    assert not list(tmp_path.iterdir())
