"""Policies that version 0.1 wrote down act as they did."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from robopolicy.experiments.default_policies import policy_config
from robopolicy.experiments.runs import load
from robopolicy.policies.catalogue import by_path, functions_of, policy_of, restore
from robopolicy.policies.quadruped import quadruped
from robopolicy.policies.vision_performer_config import ImageInput, VectorInput, VisionPerformerConfig

RECORDED = json.loads((Path(__file__).parent / "shipped_actions.json").read_text())
NAMES = ("pitch", *(f"nominal_landing_{leg}" for leg in ("FR", "FL", "RR", "RL")), "velocity_x")
OLD_IAP = {
    **{
        "attention": "softmax",
        "proprioception": list(NAMES),
        "image": [24, 32],
        "variant": "rank",
        "patch": 4,
    },
    **{"head_dim": 4, "keep": 0.25, "fade": 0.1, "columns": [2, 14], "depth_scale": 0.3},
    **{"hidden": 5, "leg_inputs": ["nominal_landing_{leg}"], "head": "tanh", "spread": 0.1, "calm": 0.0},
    "normalise": True,
}
OLD_CLONE = {
    **{"attention": "softmax", "image": 96, "patch": 8, "width": 32, "depth": 1, "heads": 2, "mlp": 64},
    **{"channels": 8, "qk_norm": "unit", "poses": 14, "actions": 12, "encoding": 32, "head": "langevin"},
    **{"hidden": 32, "samples": 128, "iterations": 3},
}


def observation(policy, seed):
    """Level ground with a gap across it, or noise; and noise for vectors."""
    rng, seen = np.random.default_rng(seed), {}
    shapes = policy.functions.observation_shapes
    for name in sorted(shapes):
        if name.endswith("_depth"):
            noise = 0.005 * rng.normal(size=shapes[name]).astype(np.float32)
            image = np.asarray(policy.features["level"][name]) + noise
            row = rng.integers(2, 18)
            image[row : row + 5, : rng.integers(16, 32)] += 0.5
            seen[name] = image.astype(np.float32)
        elif name == "image":
            seen[name] = rng.integers(0, 256, shapes[name], dtype=np.uint8)
        else:
            seen[name] = rng.uniform(-1, 1, shapes[name]).astype(np.float32)
    return seen


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if "angular" in n else pytest.mark.slow) for n in RECORDED]
)
def test_actions_of_shipped_policies_have_not_changed(name):
    policy = load(name)
    for seed, (action, scores) in enumerate(zip(*RECORDED[name].values(), strict=True)):
        seen = policy.inspect(observation(policy, seed))
        # Bits differ between kinds of machines; a choice does not.
        np.testing.assert_allclose(seen["scores"], scores, rtol=1e-4, atol=1e-4)
        if name.startswith("stepping-stones"):
            np.testing.assert_array_equal(seen["action"], action)
        else:
            np.testing.assert_allclose(seen["action"], action, atol=1e-4)


def test_old_settings_become_those_of_the_quadruped_and_of_the_sweep():
    given = {n: tuple(v) if isinstance(v, list) else v for n, v in OLD_IAP.items()}
    assert restore({"kind": "iap", **OLD_IAP}) == quadruped(**given)
    searched = {"head": "langevin", "iterations": 3}
    wanted = policy_config("softmax", "bimanual-sweep", preset="tiny", images={"image": (96, 96)}, **searched)
    assert restore({"kind": "vision-performer", **OLD_CLONE}) == wanted


@pytest.mark.parametrize(
    ("kind", "changed", "words"),
    [
        ("iap", {"patch": "two"}, "policy, of kind iap, patch is 'two': it must be of type int"),
        ("iap", {"leg_inputs": ["nothing"]}, "an input of reader 'front' is 'nothing'"),
        ("iap", {"colour": 1}, r"policy, of kind iap, has the unknown settings \['colour'\]$"),
        ("vision-performer", {"image": [96]}, r"image is \[96\]|image is \(96,\)"),
        ("vision-performer", {"image": 0}, "rows of image 'image' is 0"),
        ("vision-performer", {"poses": 0}, "size of vector 'poses' is 0"),
    ],
)
def test_old_settings_that_are_wrong_are_refused(kind, changed, words):
    old = OLD_IAP if kind == "iap" else OLD_CLONE
    with pytest.raises(ValueError, match=words):
        restore({"kind": kind, **old, **changed})


def test_arrays_of_an_old_policy_have_current_paths():
    paths = set(by_path(load("bimanual-sweep-angular").features))
    assert {"statistics/poses_shift", "statistics/poses_scale"} <= paths
    assert not paths & {"statistics/pose_shift", "statistics/pose_scale"}


def test_a_vector_may_have_a_name_that_old_policies_had():
    sizes = {"actions": 2, "patch": 8, "width": 4, "depth": 1, "heads": 1, "mlp": 4, "channels": 1}
    clone = VisionPerformerConfig("all", (ImageInput("image", 8, 8),), (VectorInput("pose", 3),), **sizes)
    numbers = {f"pose_{n}": np.ones(3, np.float32) for n in ("shift", "scale")}
    limits = {f"action_{n}": np.full(2, v, np.float32) for n, v in (("low", -1.0), ("high", 1.0))}
    shapes = jax.eval_shape(functions_of(clone, numbers | limits).init_features, jax.random.key(0))
    features = jax.tree.map(lambda shape: np.zeros(shape.shape, shape.dtype), shapes)
    _, again = policy_of(clone, by_path(features))
    assert by_path(again).keys() == by_path(features).keys()
