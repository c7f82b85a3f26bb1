"""Steps of behaviour cloning: parts, threads and devices change nothing but rounding; and validation."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy_frames import CONFIG, POLICY, ToyFrames

from robopolicy.policies.base import flatten
from robopolicy.policies.vision_performer import vision_performer
from robopolicy.training.batches import Batches, statistics
from robopolicy.training.descent import Descent, HeldOut, Keys

HERE = Path(__file__).parent


def learned(policy=POLICY, frames=None):
    """A learner and its features."""
    frames = ToyFrames() if frames is None else frames
    learner = vision_performer(policy, statistics(frames, np.arange(len(frames.episode)), None))
    return learner, learner.policy.init_features(jax.random.key(1))


def descent(config=CONFIG, policy=POLICY, frames=None, optimiser=None, learner=None):
    frames = ToyFrames() if frames is None else frames
    drawn, features = learned(policy, frames)
    learner = learner or drawn
    settings = {n: getattr(config, n) for n in ("batch", "accumulate", "negatives", "ema")}
    optimiser = optimiser or config.optimiser()
    made = Descent(learner, features, optimiser, keys=Keys.of(config.seed), **settings)
    batch = Batches(frames, np.arange(len(frames.episode)), config.batch, 0, None, 0.0).at(0)
    return made, batch


@pytest.mark.slow
def test_a_step_does_not_depend_on_the_parts_of_its_batch():
    after = []
    for parts in (1, 4):
        made, batch = descent(replace(CONFIG, accumulate=parts))
        state, results = made.step(made.placed(made.begin(jax.random.key(0))), made.ready(batch), 1)
        after.append((np.asarray(flatten(state.parameters)), float(results["loss"])))
    np.testing.assert_allclose(after[0][0], after[1][0], atol=1e-6)
    assert after[0][1] == pytest.approx(after[1][1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["trigonometric(m=4)", "angular_hybrid(m=2, n=2)"])
def test_a_step_follows_the_gradient_of_the_mean_loss(attention):
    # 576 tokens: a CPU computes the gradient of two frames at a time.
    policy = replace(POLICY, attention=attention, patch=1)
    made, batch = descent(policy=policy, optimiser=optax.sgd(1.0))
    learner, features = learned(policy)
    before = learner.policy.init(jax.random.key(0))

    def mean_loss(parameters):
        def loss(observation, action):
            return learner.loss(parameters, features, observation, action, jax.random.key(0), 4)

        return jax.vmap(loss)(batch.observation, batch.action).mean()

    loss, gradient = jax.jit(jax.value_and_grad(mean_loss))(before)
    after, results = made.step(made.placed(made.begin(jax.random.key(0))), made.ready(batch), 1)
    assert float(results["loss"]) == pytest.approx(float(loss), rel=1e-5)
    moved = flatten(before) - flatten(after.parameters)
    np.testing.assert_allclose(moved, flatten(gradient), atol=1e-4 * float(jnp.abs(moved).max()))
    # At first the running mean forgets nine tenths of where it began.
    mean = 0.9 * flatten(after.parameters) + 0.1 * flatten(before)
    np.testing.assert_allclose(flatten(after.ema), mean, atol=1e-6)


@pytest.mark.slow
def test_products_of_a_step_have_all_bits_of_float32():
    precisions = set()

    def loss(*arguments):
        precisions.add(jax.config.jax_default_matmul_precision)
        return learner.loss(*arguments)

    learner, _ = learned()
    made, batch = descent(learner=learner._replace(loss=loss))
    made.step(made.placed(made.begin(jax.random.key(0))), made.ready(batch), 1)
    assert precisions == {"highest"}


@pytest.mark.slow
def test_the_negatives_of_a_step_depend_on_its_number_alone():
    made, batch = descent(policy=replace(POLICY, head="derivative_free"))
    state = made.begin(jax.random.key(0))
    losses = [
        float(made.step(made.placed(jax.tree.map(jnp.copy, state)), made.ready(batch), number)[1]["loss"])
        for number in (1, 2, 1)
    ]
    assert losses[0] == losses[2] != losses[1]


@pytest.mark.slow
def test_two_threads_take_the_steps_of_one(monkeypatch):
    after = []
    for number in (1, 2):
        monkeypatch.setattr("robopolicy.training.descent.cores", lambda number=number: number)
        # Its parts are of two frames.
        made, batch = descent(policy=replace(POLICY, patch=1), optimiser=optax.sgd(0.1))
        ready = made.ready(batch)
        assert len(ready.shares) == number
        state, _ = made.step(made.placed(made.begin(jax.random.key(0))), ready, 1)
        state, results = made.step(state, made.ready(batch), 2)
        made.close()
        after.append((np.asarray(flatten(state.parameters)), float(results["loss"])))
    np.testing.assert_allclose(after[0][0], after[1][0], atol=1e-5)
    assert after[0][1] == pytest.approx(after[1][1], rel=1e-5)


@pytest.mark.slow
def test_a_batch_is_spread_over_devices():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import jax, numpy as np, test_descent\n"
        "from robopolicy.policies.base import flatten\n"
        "made, batch = test_descent.descent()\n"
        "state, results = made.step(made.placed(made.begin(jax.random.key(0))), made.ready(batch), 1)\n"
        "print(len(jax.devices()), len(state.parameters['norm'].scale.devices()))\n"
        "print(float(results['loss']), *np.asarray(flatten(state.parameters))[:50])\n"
    )
    made, batch = descent()
    state, results = made.step(made.placed(made.begin(jax.random.key(0))), made.ready(batch), 1)
    output = subprocess.run(
        [sys.executable, "-c", code, str(HERE)],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=3", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert output[0] == "3 2"  # three devices, of which two divide a batch of eight
    values = np.array(output[1].split(), float)
    np.testing.assert_allclose(values[0], float(results["loss"]), rtol=1e-5)
    np.testing.assert_allclose(values[1:], np.asarray(flatten(state.parameters))[:50], atol=1e-5)


@pytest.mark.rest_slow
@pytest.mark.parametrize("parts", [1, 4])
def test_values_that_are_not_finite_are_found_in_any_part_of_a_batch(parts):
    made, batch = descent(replace(CONFIG, accumulate=parts))
    batch.vectors["poses"][5, 0] = np.nan
    state = made.begin(jax.random.key(0))
    assert made.complaint(state.parameters, batch, 3) == (
        f"encoding is the first layer not to be finite, for 1 of {8 // parts} frames"
    )


def test_every_validation_batch_covers_all_validation_episodes():
    frames = ToyFrames(episodes=10, steps=8)
    seen = []

    class Asked:
        def loss(self, parameters, batch):
            seen.append(batch)
            return 1.0

        def actions(self, parameters, batch):
            return batch.action + 0.5

    frames.images = lambda indices: {"image": frames.episode[indices]}
    record = HeldOut(frames, np.arange(80), 20).record(Asked(), None)
    assert record == {"validation/loss": 1.0, "validation/action_error": pytest.approx(0.5)}
    assert [len(np.unique(batch.images["image"])) for batch in seen] == [10, 10, 10, 10]
    assert HeldOut(frames, np.arange(0), 20).record(Asked(), None) == {}
