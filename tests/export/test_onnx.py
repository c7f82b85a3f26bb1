"""Exported graphs against the policies that they were made from."""

import json

import gymnasium
import jax
import numpy as np
import pytest

from robopolicy.export.bundle import write_bundle
from robopolicy.export.onnx import export_policy
from robopolicy.export.verify import compare
from robopolicy.policies.base import flatten, unflatten
from robopolicy.policies.iap import IAPConfig, iap
from robopolicy.runtime.graph import OnnxPolicy

NAMES = ("velocity_x", "pitch", *(f"nominal_landing_{leg}" for leg in ("FR", "FL", "RR", "RL")))
LEVEL = {camera: np.full((24, 32), 0.4, np.float32) for camera in ("front_depth", "belly_depth")}
KEY = jax.random.key(2)
SPECS = ("angular_hybrid(m=8, n=8)", "positive_antithetic(m=64)", "trigonometric(m=16)", "softmax")


def scenes(count):
    """Level ground with gaps of random place and depth."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        images = {}
        for camera, level in LEVEL.items():
            row, rows = rng.integers(0, 20), rng.integers(2, 8)
            images[camera] = level + rng.normal(size=level.shape).astype(np.float32) * 0.01
            images[camera][row : row + rows] += rng.uniform(0.1, 0.6)
        felt = rng.normal(size=len(NAMES)).astype(np.float32)
        yield {**{c: i.astype(np.float32) for c, i in images.items()}, "proprioception": felt}


def made(spec, **settings):
    config = IAPConfig(spec, NAMES, **settings)
    policy = iap(config, LEVEL)
    noise = jax.random.normal(jax.random.key(7), flatten(policy.init(KEY)).shape)
    return config, policy, np.asarray(flatten(policy.init(KEY)) + 0.2 * noise), policy.init_features(KEY)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_the_graph_is_the_policy(tmp_path, spec):
    config, policy, parameters, features = made(spec)
    export_policy(config, features, tmp_path / "policy.onnx")
    graph = OnnxPolicy(tmp_path / "policy.onnx", parameters)
    parity = compare(policy, unflatten(policy)(parameters), features, graph, list(scenes(100)))
    assert parity.observations == 100
    assert parity.action_difference <= 1e-5
    assert parity.scores_difference <= 1e-5
    assert len(np.unique(parity.actions)) > 1
    # Other parameters, same graph: what is compared above depends on them.
    graph.parameters = parameters + 1.0
    other = compare(policy, unflatten(policy)(parameters), features, graph, list(scenes(5)))
    assert other.scores_difference > 1e-3


@pytest.mark.slow
def test_parameters_may_be_baked_in_and_bytes_are_reproduced(tmp_path):
    config, _, parameters, features = made(SPECS[0], patch=4)
    for name in ("one.onnx", "two.onnx"):
        export_policy(config, features, tmp_path / name, parameters)
    export_policy(config, features, tmp_path / "open.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()
    baked, fed = OnnxPolicy(tmp_path / "one.onnx"), OnnxPolicy(tmp_path / "open.onnx", parameters)
    assert "parameters" not in baked.shapes
    for scene in scenes(5):
        np.testing.assert_allclose(baked.run(scene)["scores"], fed.run(scene)["scores"], atol=1e-6)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.onnx", "open.onnx", "two.onnx"]


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    config, _, _, features = made(SPECS[0])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        export_policy(config, features, tmp_path / "nowhere" / "policy.onnx")


@pytest.mark.slow
def test_a_conversion_that_fails_says_so_and_leaves_nothing(tmp_path):
    config, _, _, features = made(SPECS[0])
    with pytest.raises(RuntimeError, match="conversion to ONNX failed"):
        export_policy(config, features, tmp_path / "policy.onnx", np.zeros(3))
    assert not list(tmp_path.iterdir())


class Source:
    """What a bundle is made of, on the real task."""

    def __init__(self, env):
        from robopolicy.envs.quadruped.stepping_stones import PROPRIOCEPTION

        self.config = IAPConfig("angular_hybrid(m=8, n=8)", PROPRIOCEPTION, patch=2)
        self.policy = iap(self.config, env.unwrapped.level_depth())
        self.parameters = np.asarray(flatten(self.policy.init(KEY)))
        self.features = self.policy.init_features(KEY)
        self.run = {"task": "stepping-stones"}


@pytest.mark.slow
def test_a_bundle_proves_itself_and_appears_only_whole(tmp_path, monkeypatch):
    env = gymnasium.make("robopolicy:robopolicy/SteppingStones-v0")
    source = Source(env)
    manifest = write_bundle(tmp_path / "bundle", source, env, 60)
    assert manifest["parity"]["observations"] == 60
    assert json.loads((tmp_path / "bundle" / "manifest.json").read_text()) == manifest
    policy = OnnxPolicy(tmp_path / "bundle" / "policy.onnx")
    with np.load(tmp_path / "bundle" / "golden.npz", allow_pickle=False) as golden:
        for index in (0, 30, 59):
            observation = {name: golden[name][index] for name in policy.shapes}
            np.testing.assert_allclose(policy(observation), golden["action"][index], atol=1e-5)
    monkeypatch.setattr("robopolicy.export.bundle.ACTION_TOLERANCE", -1.0)
    with pytest.raises(ArithmeticError, match="ONNX differs from JAX"):
        write_bundle(tmp_path / "second", source, env, 5)
    assert [p.name for p in tmp_path.iterdir()] == ["bundle"]
    env.close()
