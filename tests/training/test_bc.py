"""Behaviour cloning: it learns, continues bit for bit after a stop, and reports errors."""

import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_frames import CONFIG, POLICY, POSES, ToyFrames

from robopolicy.envs.sweep import mirror as sweep_mirror
from robopolicy.experiments import train_bc as cloning
from robopolicy.policies.base import unflatten
from robopolicy.policies.vision_performer import vision_performer
from robopolicy.policies.vision_performer_config import VectorInput
from robopolicy.training.batches import Batches, Mirror, split_by_episode, statistics
from robopolicy.training.bc import BCConfig, Progress, Rollouts, train
from robopolicy.training.checkpoint import CheckpointError, RunFolder, load_policy
from robopolicy.training.datasets import Columns, Dataset
from robopolicy.training.descent import Keys
from robopolicy.training.worker import EnvironmentSpec

MIRROR = Mirror(sweep_mirror.mirrored_images, sweep_mirror.mirrored_poses, sweep_mirror.mirrored_actions)


def cloned(folder, config=CONFIG, policy=POLICY, frames=None, fresh=True, **more):
    """Train in `folder`; returns the last record and the parameters [P] that it ends with."""
    frames = ToyFrames() if frames is None else frames
    split = split_by_episode(frames.episode, config.validation, config.seed)
    learner = vision_performer(policy, statistics(frames, split.train, None))
    run = RunFolder(folder)
    if fresh:
        run.create({"policy": "toy"})
    features = learner.policy.init_features(Keys.of(config.seed).features)
    record = train(
        config,
        run=run,
        learner=learner,
        features=features,
        frames=frames,
        split=split,
        resume=not fresh,
        **more,
    )
    return record, load_policy(folder)[0]


def log(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("head", ["squared_error", "autoregressive"])
def test_the_policy_learns_the_demonstrations(tmp_path, head):
    config = replace(CONFIG, steps=200, batch=16, learning_rate=5e-3, ema=0.9)
    config = replace(config, validate_every=100, checkpoint_every=200)
    policy, frames = replace(POLICY, head=head, patch=6, width=16, hidden=32), ToyFrames()
    record, parameters = cloned(tmp_path / "run", config, policy, frames)
    assert [r["step"] for r in log(tmp_path / "run")] == [100, 200]
    assert record["loss"] < log(tmp_path / "run")[0]["loss"]
    split = split_by_episode(frames.episode, config.validation, config.seed)
    learner = vision_performer(policy, statistics(frames, split.train, None))
    features = learner.policy.init_features(Keys.of(config.seed).features)
    act = jax.vmap(learner.policy.act, in_axes=(None, None, 0, None))
    seen = {**frames.images(split.validation), "poses": frames.vectors["poses"][split.validation]}
    actions = np.asarray(act(unflatten(learner.policy)(jnp.asarray(parameters)), features, seen, ())[0])
    # Which half of the image is bright: by chance, half of them would be right.
    assert np.mean(np.sign(actions[:, 0]) == np.sign(frames.action[split.validation, 0])) > 0.9


@pytest.mark.slow
def test_a_resumed_run_ends_in_the_same_bits(tmp_path):
    frames = ToyFrames()
    frames.vectors = {"pose": frames.vectors["poses"]}  # a name that arrays of version 0.1 had, too
    clone = partial(cloned, policy=replace(POLICY, vectors=(VectorInput("pose", POSES),)), frames=frames)
    _, whole = clone(tmp_path / "whole")

    class StoppedError(Exception):
        pass

    class Stop:
        """A sink that fails between logging a step and saving it."""

        def add(self, record, number):
            if number == 8:
                raise StoppedError

        def close(self):
            pass

    with pytest.raises(StoppedError):
        clone(tmp_path / "parts", sinks=[Stop()])
    assert log(tmp_path / "parts")[-1]["step"] == 8
    assert RunFolder(tmp_path / "parts").generations()[-1] == 4
    _, parts = clone(tmp_path / "parts", fresh=False)
    np.testing.assert_array_equal(parts, whole)
    names = ["step", "loss", "validation/loss"]
    assert [[r[n] for n in names] for r in log(tmp_path / "parts")] == [
        [r[n] for n in names] for r in log(tmp_path / "whole")
    ]
    again, _ = clone(tmp_path / "parts", fresh=False)
    assert again is None


@pytest.mark.slow
def test_ctrl_c_does_not_change_a_resumed_run(tmp_path):
    cloned(tmp_path / "whole")
    steps = iter(range(1, 100))

    def interrupt():
        if next(steps) == 6:
            os.kill(os.getpid(), signal.SIGINT)

    record, _ = cloned(tmp_path / "parts", on_step=interrupt)
    assert record["step"] in (6, 7)  # the signal may arrive after the step has been looked at
    assert record["unplanned"]
    cloned(tmp_path / "parts", fresh=False)
    whole, parts = (RunFolder(tmp_path / name).load()[1] for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    for path in whole.keys() - {"progress/seconds"}:
        np.testing.assert_array_equal(parts[path], whole[path], err_msg=path)


@pytest.mark.slow
def test_another_seed_gives_another_policy(tmp_path):
    _, one = cloned(tmp_path / "one")
    _, other = cloned(tmp_path / "other", replace(CONFIG, seed=1))
    assert not np.array_equal(one, other)


@pytest.mark.slow
def test_a_step_that_is_not_finite_is_named_and_undone(tmp_path, monkeypatch):
    frames = ToyFrames()
    good = statistics(frames, np.arange(len(frames.episode)), None)
    monkeypatch.setattr(f"{__name__}.statistics", lambda *arguments: good)
    config = replace(CONFIG, validation=0.0)
    order = Batches(frames, np.arange(len(frames.episode)), config.batch, config.seed, None, 0.0)
    frames.vectors["poses"][order.indices(5)[0], 3] = np.nan  # met in step 6
    with pytest.raises(FloatingPointError) as error:
        cloned(tmp_path / "run", config, frames=frames)
    words = str(error.value)
    assert words.startswith("step 6: encoding is the first layer not to be finite, for 1 of 8 frames")
    assert "positive(m=4)" in words
    assert "the policy is that of step 5" in words
    assert RunFolder(tmp_path / "run").generations()[-1] == 5
    assert np.isfinite(load_policy(tmp_path / "run")[0]).all()
    # With the setting "skip", the run continues from there.
    record, parameters = cloned(
        tmp_path / "run", replace(config, nonfinite="skip"), frames=frames, fresh=False
    )
    assert record["skipped"] == 1
    assert np.isfinite(parameters).all()
    assert [r["step"] for r in log(tmp_path / "run") if "not_finite" in r] == [6]


@pytest.mark.slow
def test_a_run_ends_after_many_steps_that_are_not_finite(tmp_path, monkeypatch):
    frames = ToyFrames()
    good = statistics(frames, np.arange(len(frames.episode)), None)
    monkeypatch.setattr(f"{__name__}.statistics", lambda *arguments: good)
    frames.vectors["poses"][:, 3] = np.nan
    config = replace(CONFIG, validation=0.0, nonfinite="skip", steps=100)
    with pytest.raises(FloatingPointError, match=r"step 20: encoding .* it is the last of 20 in a row"):
        cloned(tmp_path / "run", config, frames=frames)


@pytest.mark.slow
def test_parameters_that_are_not_finite_are_never_saved(tmp_path):
    config = replace(CONFIG, learning_rate=1e6, weight_decay=1e6, warmup=0, nonfinite="skip", steps=30)
    with pytest.raises(FloatingPointError, match="in a row"):
        cloned(tmp_path / "run", config)
    _, arrays = RunFolder(tmp_path / "run").load()
    assert all(np.isfinite(a).all() for path, a in arrays.items() if not path.startswith("progress/"))
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_the_best_policy_in_the_simulator_is_saved(tmp_path):
    returns = iter([3.0, 7.0, 5.0])
    seen = []

    def rollout(parameters):
        seen.append(parameters)
        return Rollouts(next(returns), {"fraction_in_bowls": 0.5})

    config = replace(CONFIG, rollouts=2, rollout_every=4)
    record, last = cloned(tmp_path / "run", config, rollout=rollout)
    np.testing.assert_array_equal(load_policy(tmp_path / "run", "best")[0], seen[1])
    np.testing.assert_array_equal(last, seen[2])
    assert record["rollout/fraction_in_bowls"] == 0.5


def test_a_loss_is_not_better_than_a_return():
    played = Progress().after({"validation/loss": 2.0, "rollout/return": 3.0})
    assert not played.is_best({"validation/loss": 0.1})
    assert not played.is_best({"validation/loss": 0.1, "rollout/return": 2.9})
    assert played.is_best({"validation/loss": 9.0, "rollout/return": 3.1})
    assert Progress().after({"validation/loss": 2.0}).is_best({"validation/loss": 1.9})


def test_an_evaluation_in_the_simulator_brings_a_validation():
    config, steps = BCConfig(steps=10, validate_every=6, rollout_every=4, rollouts=1), range(1, 11)
    assert [step for step in steps if config.plays_at(step)] == [4, 8, 10]
    assert [step for step in steps if config.validates_at(step)] == [4, 6, 8, 10]
    assert not any(replace(config, rollouts=0).plays_at(step) for step in steps)


def moves(config, gradients, parameter=0.0):
    """What the optimiser of `config` adds to a parameter [1, 1] and to another [1], by such gradients."""
    optimiser = config.optimiser()
    parameters = {"matrix": jnp.full((1, 1), parameter), "vector": jnp.full(1, parameter)}
    state, added = optimiser.init(parameters), []
    for one in gradients:
        slopes = jax.tree.map(lambda leaf, one=one: jnp.full_like(leaf, one), parameters)
        updates, state = optimiser.update(slopes, state, parameters)
        added.append([float(updates[name].sum()) for name in ("matrix", "vector")])
    return np.array(added)


@pytest.mark.slow
def test_the_learning_rate_warms_up_and_falls_to_a_hundredth():
    # Adam's step by a constant gradient is the rate.
    config = BCConfig(steps=6, warmup=2, learning_rate=0.1)
    rates = -moves(config, [0.5] * 7)[:, 1]
    np.testing.assert_allclose(rates[[0, 1, 2, 6]], [0.0, 0.05, 0.1, 0.001], rtol=1e-4, atol=1e-9)
    assert (np.diff(rates[2:]) < 0).all()
    # A warm-up that is longer than the run ends with its last step.
    shorter = -moves(replace(config, steps=3, warmup=200), [0.5] * 3)[:, 1]
    np.testing.assert_allclose(shorter, [0.0, 0.05, 0.1], rtol=1e-4, atol=1e-9)


def test_only_matrices_decay():
    config = BCConfig(warmup=0, learning_rate=0.1, weight_decay=0.2)
    np.testing.assert_allclose(moves(config, [0.0], parameter=3.0), [[-0.1 * 0.2 * 3.0, 0.0]], rtol=1e-5)


def test_a_longer_gradient_acts_as_one_of_the_length_clip():
    config = BCConfig(warmup=0, clip=0.5)
    length = 0.5 / 2**0.5  # of each of two numbers
    np.testing.assert_allclose(moves(config, [40.0, 0.1]), moves(config, [length, 0.1]), rtol=1e-4)
    assert np.abs(moves(config, [0.2, 0.1]) - moves(config, [length, 0.1])).max() > 1e-5


@pytest.mark.slow
def test_without_validation_the_best_policy_is_the_last(tmp_path):
    _, last = cloned(tmp_path / "run", replace(CONFIG, validation=0.0))
    np.testing.assert_array_equal(load_policy(tmp_path / "run", "best")[0], last)


@pytest.mark.slow
def test_after_a_failure_of_the_simulator_a_resumed_run_plays_again(tmp_path):
    def broken(parameters):
        raise RuntimeError("the simulator is gone")

    config = replace(CONFIG, rollouts=1, checkpoint_every=3)
    with pytest.raises(RuntimeError, match="the simulator is gone"):
        cloned(tmp_path / "run", config, rollout=broken)
    saved = RunFolder(tmp_path / "run").generations()
    assert saved[-1] == CONFIG.steps - 1
    played = []
    record, last = cloned(
        tmp_path / "run", config, rollout=lambda p: played.append(p) or Rollouts(1.0, {}), fresh=False
    )
    assert (record["step"], record["rollout/return"]) == (CONFIG.steps, 1.0)
    np.testing.assert_array_equal(played, [last])
    _, whole = cloned(tmp_path / "whole", config, rollout=lambda p: Rollouts(1.0, {}))
    np.testing.assert_array_equal(last, whole)


@pytest.mark.slow
def test_a_checkpoint_of_another_policy_or_other_data_is_refused(tmp_path):
    config = replace(CONFIG, validation=0.0)
    cloned(tmp_path / "run", config)
    longer = replace(config, steps=20)
    with pytest.raises(CheckpointError, match=r"features .* of the checkpoint are not those of this policy"):
        cloned(tmp_path / "run", longer, replace(POLICY, width=16), fresh=False)
    with pytest.raises(CheckpointError, match=r"features statistics/.* are not those of this policy"):
        cloned(tmp_path / "run", longer, frames=ToyFrames(seed=5), fresh=False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"negatives": 0}, "negatives is 0: it must be 1 or more"),
        ({"batch": 6, "accumulate": 4}, "accumulate is 4: it must divide the batch of 6"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0: it must be a number above 0"),
        ({"learning_rate": 1e300}, "learning_rate is 1e.300: it must be a number above 0, and at most 1e.06"),
        ({"negatives": 10**13}, "negatives is 10000000000000: it must be at most 65536"),
        ({"ema": 1.0}, "ema is 1.0: it must be from 0 to less than 1"),
        ({"validation": -0.1}, "validation is -0.1"),
        ({"least_action": 1.0}, "least_action is 1.0: it must be from 0 to less than 1"),
        ({"nonfinite": "ignore"}, "nonfinite is 'ignore'"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"steps": 2.5}, "^BCConfig: steps is 2.5: it must be of type int$"),
        ({"batch": "8"}, "^BCConfig: batch is '8': it must be of type int$"),
        ({"mirror": 1}, "^BCConfig: mirror is 1: it must be of type bool$"),
        ({"learning_rate": None}, "^BCConfig: learning_rate is None: it must be of type float$"),
        ({"clip": np.zeros((20, 3))}, r"^BCConfig: clip is array\(.*: it must be of type float$"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        replace(CONFIG, **settings)


@pytest.mark.slow
def test_a_batch_larger_than_the_data_is_refused(tmp_path):
    with pytest.raises(ValueError, match="batch is 1000: there are 80 frames to train on"):
        cloned(tmp_path / "run", replace(CONFIG, batch=1000))


def test_a_missing_mirror_is_refused(tmp_path):
    with pytest.raises(ValueError, match="mirror is True"):
        cloned(tmp_path / "run", replace(CONFIG, mirror=True))


@pytest.mark.slow
def test_a_run_saves_the_running_mean_of_parameters(tmp_path):
    _, mean = cloned(tmp_path / "run", replace(CONFIG, ema=0.99))
    _, arrays = RunFolder(tmp_path / "run").load()
    learner = vision_performer(POLICY, statistics(ToyFrames(), np.arange(96), None))
    saved = unflatten(learner.policy)(jnp.asarray(mean))["patches"]["image"].kernel[...]
    last = next(a for path, a in arrays.items() if path.startswith("state/parameters/patches/image/kernel"))
    assert saved.shape == last.shape
    assert np.abs(saved - last).max() > 1e-5


@pytest.mark.parametrize(("renderer", "kept"), [("tiny", {}), ("software", {"renderer": "software"})])
def test_demonstrations_on_an_engine_that_is_missing_play_on_the_default_one(monkeypatch, renderer, kept):
    monkeypatch.setattr(cloning, "is_installed", lambda engine: engine != "bullet")
    settings = {"engine": "bullet", "renderer": renderer, "balls": 3}
    environment = EnvironmentSpec("robopolicy/BimanualSweep-v0", settings, "bimanual-sweep")
    columns = Columns({"image": (64, 64, 3)}, {"poses": 14}, 12)
    dataset = Dataset(Path("sweep-v0"), "bimanual-sweep", columns, (1,), {}, environment, Path())
    played = cloning.rollout_environment([dataset], None)
    assert (played.engine, played.others) == (None, {"balls": 3, "image_size": 64, **kept})
