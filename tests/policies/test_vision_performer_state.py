"""A Vision-Performer with a history of frames or with chunks of actions: what its state holds."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
from installed_compilers import needs_compiler
from test_vision_performer import KNOWN, SMALL, observation

from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.bundles.onnx import export_policy
from robopolicy.bundles.outputs import Units
from robopolicy.bundles.stablehlo import stablehlo
from robopolicy.costs.flops import count_step
from robopolicy.costs.memory import state_bytes
from robopolicy.experiments.default_policies import vision_performer_config
from robopolicy.policies.base import flatten
from robopolicy.policies.catalogue import blank_policy
from robopolicy.policies.vision_performer import vision_performer
from robopolicy.policies.vision_performer_config import ImageInput
from robopolicy.runtime.compiled import CompiledGraph
from robopolicy.runtime.graph import OnnxPolicy

PLAIN = replace(SMALL, head="squared_error", depth=1)
STEPS = 7


@cache
def made(history, chunk, head="squared_error"):
    images = (*SMALL.images, ImageInput("wrist", 12, 18))
    config = replace(PLAIN, images=images, head=head, history=history, chunk=chunk)
    learner = vision_performer(config, KNOWN)
    return learner, learner.policy.init(jax.random.key(0)), learner.policy.init_features(jax.random.key(1))


def seen(step):
    wrist = np.random.default_rng([7, step]).integers(0, 256, (12, 18, 3), np.uint8)
    return {**observation(step), "wrist": wrist}


def frames(step, history):
    """What training shows for a step of the episode: its frames, this step's first."""
    steps = [seen(max(step - before, 0)) for before in range(history)]
    images = {name: np.stack([each[name] for each in steps]) for name in ("image", "wrist")}
    return {**seen(step), **images} if history > 1 else seen(step)


@pytest.mark.rest_slow
@pytest.mark.parametrize(("history", "chunk"), [(4, 1), (1, 3), (2, 2)])
def test_a_policy_at_work_acts_as_it_was_trained(history, chunk):
    learner, parameters, features = made(history, chunk)
    act, chosen = jax.jit(learner.policy.act), jax.jit(learner.chosen)
    for _ in range(2):  # episodes
        state = learner.policy.init_state(features)
        for step in range(STEPS):
            begun = step - step % chunk
            plan = np.asarray(chosen(parameters, features, frames(begun, history)))
            assert plan.shape == (chunk, 12)
            action, state = act(parameters, features, seen(step), state)
            np.testing.assert_allclose(action, plan[step - begun], atol=1e-5)
    assert np.abs(np.diff(plan, axis=0)).max(initial=1.0) > 1e-3


@pytest.mark.slow
def test_attention_is_of_the_tokens_that_a_state_adds_to():
    learner, parameters, features = made(2, 1)
    state = learner.policy.init_state(features)
    attended = jax.jit(learner.policy.attended)
    _, after = learner.policy.act(parameters, features, seen(0), state)
    first, same, other = (
        attended(parameters, features, seen(step), before)[0].q
        for step, before in ((1, state), (1, learner.policy.init_state(features)), (1, after))
    )
    np.testing.assert_array_equal(first, same)
    assert np.abs(first - other).max() > 1e-3
    assert learner.policy.ranked(parameters, features, seen(1), after)["wrist"].shape == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["squared_error", "autoregressive"])
def test_graphs_keep_the_state_of_the_policy(head, tmp_path):
    learner, parameters, features = made(3, 2, head)
    export_policy(learner.config, features, tmp_path / "policy.onnx")
    graph = OnnxPolicy(tmp_path / "policy.onnx", np.asarray(flatten(parameters)))
    exported = stablehlo(learner.policy, parameters, features, Units({}, (1.0,) * 12))
    called = jax.export.deserialize(bytearray(exported))
    inspect = jax.jit(learner.policy.inspect)
    for _ in range(2):  # episodes
        graph.reset()
        state = learner.policy.init_state(features)
        leaves = jax.tree.leaves(state)
        for step in range(5):
            wanted, state = inspect(parameters, features, seen(step), state)
            found = graph.run(seen(step))
            np.testing.assert_allclose(found["action"], wanted["action"], atol=1e-5)
            np.testing.assert_allclose(found["scores"], wanted["scores"], atol=1e-4)
            _, action, _, *leaves = called.call(*(seen(step)[n] for n in sorted(seen(step))), *leaves)
            np.testing.assert_allclose(action, wanted["action"], atol=1e-5)


@pytest.mark.slow
@needs_compiler
def test_compiled_c_keeps_the_state_of_the_graph(tmp_path):
    learner, parameters, features = made(3, 2)
    export_policy(learner.config, features, tmp_path / "policy.onnx")
    content, vector = (tmp_path / "policy.onnx").read_bytes(), np.asarray(flatten(parameters))
    graph, compiled = OnnxPolicy(content, vector), CompiledGraph(c_graph(content), vector)
    for _ in range(2):  # episodes
        graph.reset()
        compiled.reset()
        for step in range(5):
            wanted, found = graph.run(seen(step)), compiled.run(seen(step))
            np.testing.assert_allclose(found["action"], wanted["action"], atol=1e-5)


def test_the_price_of_a_history_is_its_products():
    config = replace(PLAIN, history=3, images=(ImageInput("image", 24, 24),))
    more, less = (count_step(blank_policy(one)) for one in (config, PLAIN))
    tokens, width, pixels = 16, 8, 3 * 6**2
    # Two more products of all patches; for every number of a token the sum of a first frame, those of this
    # step and the next with what is kept, and two choices; a comparison.
    assert more.total - less.total == 2 * 2 * tokens * pixels * width + tokens * width * (3 + 2) + 1
    assert state_bytes(blank_policy(config)) == 4 * (2 * tokens * width + 1)


def test_the_price_of_a_chunk_is_that_of_its_head():
    more, less = (count_step(blank_policy(replace(PLAIN, chunk=chunk))) for chunk in (5, 1))
    assert more.total - more.by_component["head"] == less.total - less.by_component["head"]
    # For each further action its row of the last layer with a bias, a limit, and a scale of four operations
    # with a limit; for each action a choice; and of the number that are left a comparison, a difference, and
    # a choice.
    numbers = 4 * 12 * (2 * PLAIN.hidden + 1 + 2 + 3 + 2)
    assert more.by_component["head"] - less.by_component["head"] == numbers + 5 * 12 + 3
    assert state_bytes(blank_policy(replace(PLAIN, chunk=5))) == 4 * (4 * 12 + 1)


@pytest.mark.slow
def test_a_search_searches_all_actions_of_a_chunk():
    config = replace(PLAIN, head="autoregressive")
    one, two, four = (
        count_step(blank_policy(replace(config, chunk=c))).by_component["head"] for c in (1, 2, 4)
    )
    assert two > 2 * one
    assert four > 2 * two


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"history": 0}, "history is 0: it must be a whole number from 1 to 16"),
        ({"history": 17}, "history is 17: it must be a whole number from 1 to 16"),
        ({"history": True}, "history is True: it must be of type int"),
        ({"history": 2, "attention": "none"}, "history is 2: it must be 1 with attention 'none'"),
        ({"chunk": 0}, "chunk is 0: it must be a whole number from 1 to 128"),
        ({"chunk": 100}, "chunk times actions is 1200: it must be a whole number from 1 to 1024"),
        (
            {"images": (ImageInput("image", 2048, 2048),), "patch": 2, "history": 16},
            "history times tokens times width is 134217728: .* from 1 to 67108864",
        ),
    ],
)
def test_bad_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **settings)


def test_langevin_has_a_hundred_steps_by_default():
    inputs = {"image": (24, 24)}, {}, 3
    assert vision_performer_config("softmax", *inputs, head="langevin").iterations == 100
    assert vision_performer_config("softmax", *inputs, head="langevin", iterations=7).iterations == 7
