"""Bad input to the functions of the library's face: one line that names the argument, and nothing written."""

import re
from pathlib import Path

import numpy as np
import pytest
from made_datasets import black_frames

import robopolicy
from robopolicy.attention.positive import positive
from robopolicy.experiments.demonstrations import record_demonstrations
from robopolicy.experiments.deployment import deploy
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluators import EvaluatorConfig

SHIPPED, TASK, SWEEP = "stepping-stones-softmax", "stepping-stones", "bimanual-sweep"
SWEEP_SHIPPED = "bimanual-sweep-angular"
UNDER_A_FILE = "/etc/hostname/run"


@pytest.fixture(scope="module")
def policy():
    return robopolicy.new_policy(TASK, "softmax")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Two episodes of black images and zeros, with the columns of the sweep."""
    return black_frames(tmp_path_factory.mktemp("datasets") / "sweep-v0")


def refused(tmp_path, monkeypatch, call, *arguments, **named):
    """The message of the error that a call raises, which leaves nothing behind."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError, FileExistsError)) as caught:
        call(*arguments, **named)
    message = str(caught.value)
    assert "\n" not in message
    assert not list(tmp_path.iterdir())
    return message


def name(value):
    """The same in every process: no addresses."""
    return value.__name__ if callable(value) else re.sub(r" at 0x\w+", "", str(value))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"policy": None}, "policy is None: it must be"),
        ({"policy": "softmx"}, "did you mean 'softmax'"),
        ({"data": None}, "data is None: it must be a path"),
        ({"data": 3}, "data is 3: it must be a path"),
        ({"data": "nowhere"}, "data is 'nowhere': it must be the folder of a dataset"),
        ({"config": 3}, "config is 3: it must be of type BCConfig"),
        ({"config": robopolicy.ESConfig()}, "it must be of type BCConfig"),
        ({"config": robopolicy.BCConfig(rollout_every=5)}, "rollout_every is 5: it needs rollouts"),
        ({"settings": {"nonsense": 1}}, "settings has 'nonsense'"),
        ({"settings": {"images": ()}}, "settings has 'images'"),
        ({"settings": 3}, "settings is 3: it must be settings by name"),
        ({"settings": {"samples": "many"}}, "samples is 'many': it must be of type int"),
        ({"command": {"key": object()}}, "command holds what JSON cannot hold"),
        ({"settings": {"history": 0}}, "history is 0: it must be a whole number from 1 to 16"),
        (
            {"settings": {"history": 5}},
            "history is 5: it must be at most 4, the steps of the longest episode",
        ),
        ({"settings": {"chunk": 5}}, "chunk is 5: it must be at most 4, the steps of the longest episode"),
        ({"init": 3}, "run is 3: it must be"),
        ({"init": "nowhere"}, "run is 'nowhere': it must be"),
        (
            {"init": SHIPPED},
            f"init is {SHIPPED!r}: its policy is of the kind 'iap', and not 'vision-performer'",
        ),
        ({"init": SWEEP_SHIPPED}, "attention is 'softmax': the policy of init"),
        ({"command": 3}, "command is 3: it must be settings by name"),
        ({"preset": 3}, "preset is 3: it must be one of"),
        ({"precision": None}, "precision is None: it must be one of"),
        ({"resume_from": "x"}, "resume_from is 'x': it must be a whole number"),
        ({"resume_from": 1}, "resume_from is 1: it needs resume=True"),
        ({"resume": True}, "no run"),
        ({"resume": "yes"}, "resume is 'yes': it must be of type bool"),
        ({"workers": "many"}, "workers is 'many'"),
        ({"hooks": print}, "it must be of type Hooks"),
        ({"env": 3}, "env is 3"),
        ({"env": TASK}, "stepping-stones"),
        ({"out": None}, "out is None: it must be a path"),
        ({"out": UNDER_A_FILE}, f"out is '{UNDER_A_FILE}': '/etc/hostname' is a file"),
        ({"out": "/dev/null"}, "'/dev/null' exists"),
    ],
    ids=name,
)
def test_cloning_refuses(tmp_path, monkeypatch, dataset, changed, text):
    named = {
        "policy": "softmax",
        "data": dataset,
        "config": robopolicy.BCConfig(steps=1, batch=2, warmup=0, validation=0.5, mirror=False),
        "out": "run",
        "preset": "tiny",
    }
    assert text in refused(tmp_path, monkeypatch, robopolicy.train_bc, **{**named, **changed})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"policy": None}, "policy is None: it must be a Policy"),
        ({"env": 3}, "env is 3"),
        ({"env": None}, "env is None"),
        ({"config": 3}, "config is 3: it must be of type ESConfig"),
        ({"presets": "paper"}, "presets is 'paper': it must be"),
        ({"presets": 3}, "presets is 3: it must be"),
        ({"presets": ["papr"]}, "did you mean 'paper'?"),
        ({"evaluator": "local"}, "evaluator is 'local': it must be of type EvaluatorConfig"),
        ({"evaluator": EvaluatorConfig("device"), "env": SWEEP}, "bimanual-sweep is no JAX program"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": "many"}, "workers is 'many'"),
        ({"resume": True}, "no run"),
        ({"resume_from": 1}, "resume_from is 1: it needs resume=True"),
        ({"hooks": print}, "it must be of type Hooks"),
        ({"out": 3}, "out is 3: it must be a path"),
        ({"out": UNDER_A_FILE}, f"out is '{UNDER_A_FILE}': '/etc/hostname' is a file"),
    ],
    ids=name,
)
def test_evolution_refuses(tmp_path, monkeypatch, policy, changed, text):
    named = {"policy": policy, "env": TASK, "out": "run"}
    assert text in refused(tmp_path, monkeypatch, robopolicy.train_es, **{**named, **changed})


@pytest.mark.parametrize(
    ("call", "arguments", "named", "text"),
    [
        (robopolicy.load, (3,), {}, "run is 3: it must be"),
        (robopolicy.load, ("nowhere",), {}, "run is 'nowhere'"),
        (robopolicy.load, (SHIPPED,), {"which": "nonsense"}, "which is 'nonsense': it must be last, best"),
        (robopolicy.load, (SHIPPED,), {"which": 3}, "has no checkpoint 3"),
        (robopolicy.make, (3,), {}, "task is 3: it must be one of"),
        (robopolicy.make, (TASK,), {"nonsense": 1}, "nonsense is 1"),
        (robopolicy.make, (SWEEP,), {"engine": "jax"}, "engine is 'jax': it must be one of bullet, mujoco"),
        (robopolicy.make, (TASK,), {"engine": "jax", "renderer": "opengl"}, "renderer is 'opengl'"),
        (robopolicy.new_policy, (3,), {}, "env is 3"),
        (robopolicy.new_policy, (TASK,), {"attention": None}, "attention is of type NoneType: it must be"),
        (robopolicy.new_policy, (TASK, positive(4)), {}, "attention is of type FeatureMap: it must be"),
        (robopolicy.new_policy, (TASK,), {"nonsense": 1}, "settings has 'nonsense'"),
        (robopolicy.new_policy, (TASK,), {"patch": "x"}, "patch is 'x'"),
        (robopolicy.new_policy, (TASK,), {"variant": "memory"}, "needs the stepping stones with the front"),
        (robopolicy.new_policy, (TASK,), {"seed": -1}, "seed is -1"),
        (robopolicy.new_policy, (TASK,), {"seed": "x"}, "seed is 'x'"),
        (robopolicy.flops, (3,), {}, "policy is 3: it must be a Policy"),
        (robopolicy.flops, (SHIPPED,), {}, f"policy is '{SHIPPED}': it must be a Policy"),
        (robopolicy.flops, (np.eye(2),), {}, "policy is array([[1., 0.], [0., 1.]]): it must be a Policy"),
        (robopolicy.evaluate, ("blind", TASK), {"seeds": 5}, "seeds is 5"),
        (robopolicy.evaluate, ("blind", TASK), {"seeds": [1.5]}, "seeds has 1.5: each must be"),
        (robopolicy.evaluate, ("blind", TASK), {"seeds": []}, "seeds is []"),
        (robopolicy.evaluate, ("blind", TASK), {"seeds": "9000"}, "seeds has '9': each must be"),
        (robopolicy.evaluate, (3, TASK), {}, "player is 3"),
        (robopolicy.evaluate, (Path("nowhere"), TASK), {}, "run is 'nowhere': it must be a run folder"),
        (robopolicy.evaluate, ("blind", None), {}, "env is None"),
        (robopolicy.evaluate, ("blind", Environment(TASK, others=3)), {}, "others is 3: it must be settings"),
        (record_demonstrations, (SWEEP, "sweep-v0"), {"settings": 3}, "settings is 3: it must be settings"),
        (deploy, ("bundle",), {"seconds": "x"}, "seconds is 'x': it must be a number above 0"),
        (deploy, (5,), {}, "bundle is 5: it must be a path"),
        (robopolicy.film, ([], TASK, "a.mp4"), {}, "players is 0 players"),
        (robopolicy.film, (None, TASK, "a.mp4"), {}, "players is None"),
        (robopolicy.film, ([3], TASK, "a.mp4"), {}, "player is 3"),
        (robopolicy.film, (Path("nowhere"), TASK, "a.mp4"), {}, "run is 'nowhere': it must be a run folder"),
        (robopolicy.film, ("blind", TASK), {}, "video is None"),
        (robopolicy.film, ("blind", TASK, 3), {}, "video is 3: it must be a path"),
        (robopolicy.film, ("blind", TASK, "a.mp4"), {"size": (1, 2, 3)}, "size is (1, 2, 3)"),
        (robopolicy.film, ("blind", TASK, "a.mp4"), {"size": 240}, "size is 240"),
        (robopolicy.film, ("blind", TASK, "a.mp4"), {"slow": "x"}, "slow is 'x'"),
        (robopolicy.film, ("blind", TASK, "a.mp4"), {"seed": 1.5}, "seed is 1.5"),
        (robopolicy.film, ("blind", TASK, "a.mp4"), {"sheet": "a.jpg"}, "sheet is 'a.jpg'"),
        (robopolicy.export, (3, TASK, "bundle"), {}, "policy is 3: it must be"),
        (robopolicy.export, (SHIPPED, 3, "bundle"), {}, "env is 3"),
        (robopolicy.export, (SHIPPED, TASK, 3), {}, "out is 3: it must be a path"),
        (robopolicy.export, (SHIPPED, TASK, UNDER_A_FILE), {}, "'/etc/hostname' is a file"),
        (robopolicy.export, (SHIPPED, TASK, "/dev/null"), {}, "out is '/dev/null': it exists"),
        (robopolicy.export, (SHIPPED, TASK, "bundle"), {"observations": "x"}, "observations is 'x'"),
        (EvaluatorConfig, (), {"workers": "x"}, "workers is 'x': it must be of type int"),
        (EvaluatorConfig, (), {"evaluator": 3}, "evaluator is 3: it must be of type str"),
        (EvaluatorConfig, (), {"deadline": None}, "deadline is None: it must be of type float"),
        (EvaluatorConfig, (), {"address": 3}, "address is 3: it must be of type str | None"),
        (EvaluatorConfig, (), {"places": 1.5}, "places is 1.5: it must be of type int"),
        (robopolicy.evaluate, (SHIPPED, "bimanual-sweep"), {}, "reads front_depth [24, 32]: the task"),
        (robopolicy.export, (SHIPPED, "bimanual-sweep", "bundle"), {}, "reads front_depth"),
        (robopolicy.film, ([SHIPPED, SHIPPED], TASK, "a.mp4"), {}, "must have its own name"),
        (robopolicy.load, (f"{SHIPPED}@40",), {"which": "best"}, "has an ending of its own"),
        (robopolicy.make, (".x:Foo-v0",), {}, "task is '.x:Foo-v0': it must be one of"),
        (Environment.of, (3,), {}, "env is 3"),
    ],
    ids=name,
)
def test_a_call_refuses(tmp_path, monkeypatch, call, arguments, named, text):
    assert text in refused(tmp_path, monkeypatch, call, *arguments, **named)


@pytest.mark.slow
def test_an_evaluation_does_not_depend_on_the_number_of_workers():
    env = Environment(TASK, preset="hard", episode_seconds=0.5)
    alone, shared = (robopolicy.evaluate(SHIPPED, env, range(3), workers=workers) for workers in (1, 2))
    assert alone.summary() == shared.summary()
    assert len(set(alone.returns)) == 3


@pytest.mark.slow
def test_an_existing_run_is_not_overwritten_or_resumed_with_other_settings(tmp_path, policy):
    config = robopolicy.ESConfig(generations=1, population=2, held_out=1, episodes=(1,), advance_at=())
    env = Environment(TASK, preset="painted", episode_seconds=0.5)
    settings = {"config": config, "out": tmp_path / "run", "workers": 1}
    robopolicy.train_es(policy, env, **settings)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileExistsError, match="exists"):
        robopolicy.train_es(policy, env, **settings)
    with pytest.raises(ValueError, match=r"resume_from is 7"):
        robopolicy.train_es(policy, env, **settings, resume=True, resume_from=7)
    longer = Environment(TASK, preset="painted", episode_seconds=1.0)
    with pytest.raises(ValueError, match=r"episode_seconds is 1\.0"):
        robopolicy.train_es(policy, longer, **settings, resume=True)
    assert sorted(tmp_path.rglob("*")) == files
