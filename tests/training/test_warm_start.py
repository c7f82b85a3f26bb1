"""A training that begins with the weights of another run."""

import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from made_datasets import black_frames

import robopolicy
from robopolicy.experiments.comparison import policies
from robopolicy.experiments.trainings import difference
from robopolicy.policies.base import unflatten
from robopolicy.policies.catalogue import by_path
from robopolicy.training.checkpoint import RunFolder

pytestmark = pytest.mark.slow

CONFIG = robopolicy.BCConfig(steps=4, batch=4, warmup=0, validation=0.5, checkpoint_every=2, mirror=False)
STILL = replace(CONFIG, learning_rate=1e-12)  # no step moves a weight


def cloned(data, out, config=CONFIG, settings=(), **more):
    settings = {"head": "squared_error", "patch": 16, **dict(settings)}
    return robopolicy.train_bc(
        "positive(m=4)", data, config, out=out, preset="tiny", settings=settings, **more
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A folder with two datasets, and a run on the first of them."""
    folder = tmp_path_factory.mktemp("first")
    for seed in (1, 2):
        black_frames(folder / f"round-{seed}-v0", seed)
    cloned(folder / "round-1-v0", folder / "source")
    return folder


@pytest.fixture
def folder(first, tmp_path, monkeypatch):
    """A copy of `first`, the working directory."""
    shutil.copytree(first, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def test_it_begins_at_the_loss_of_the_policy(folder):
    source = robopolicy.load("source")
    run = cloned("round-1-v0", "warm", STILL, init="source")
    before = [json.loads(line) for line in (folder / "source/metrics.jsonl").read_text().splitlines()][-1]
    assert run.record["validation/loss"] == pytest.approx(before["validation/loss"], rel=1e-5)
    np.testing.assert_allclose(run.policy().parameters, source.parameters, atol=1e-9)
    config = RunFolder(run.folder).config()
    assert config["init"]["run"] == "source"
    assert config["init"]["checkpoint"] == 4
    assert "It began with the weights of `source`." in (run.folder / "README.md").read_text()


def test_other_data_and_seeds_leave_features_and_statistics(folder):
    run = cloned("round-2-v0", "warm", replace(CONFIG, seed=7), init="source@2")
    source, warm = robopolicy.load("source@2"), run.policy()
    kept = by_path(source.features)
    assert kept.keys() == by_path(warm.features).keys()
    for path, array in by_path(warm.features).items():
        np.testing.assert_array_equal(array, kept[path])
    assert np.abs(warm.parameters - source.parameters).max() > 1e-5
    assert RunFolder(run.folder).config()["init"]["checkpoint"] == "2"


def test_seeds_from_weights_of_several_seeds_are_one_policy(folder, capsys):
    cloned("round-1-v0", "other", replace(CONFIG, seed=1))
    cloned("round-2-v0", "longer", replace(CONFIG, steps=6))
    for name, first, seed in (("a", "source", 0), ("b", "other", 1), ("c", "other", 0), ("d", "longer", 2)):
        cloned("round-2-v0", name, replace(CONFIG, seed=seed), init=first)
    cloned("round-2-v0", "e", replace(CONFIG, seed=3))
    names = ["a", "b", "c", "d", "e"]
    assert [group for _, group in policies(names)] == [["a", "b", "c"], ["d"], ["e"]]
    assert "stays apart" not in capsys.readouterr().err
    configs = {name: RunFolder(folder / name).config() for name in names}
    longer, random = (difference({name: configs[name] for name in pair}) for pair in ("ad", "ae"))
    assert longer.startswith("steps of init is 6 in the training of 'd' and 4 in that of 'a'")
    assert random == "init is not set in the training of 'e' and source in that of 'a'"


def test_it_resumes_without_the_first_run_to_the_same_bits(folder):
    whole = cloned("round-2-v0", "warm", init="source").policy()
    path = folder / "warm" / "config.json"
    config = json.loads(path.read_text())
    del config["init"]["trained"]  # as older versions wrote it
    for stored in (path.read_text(), json.dumps(config)):
        path.write_text(stored)
        cloned("round-2-v0", "warm", init="source", resume=True, resume_from=0)
        np.testing.assert_array_equal(robopolicy.load("warm").parameters, whole.parameters)
    shutil.rmtree(folder / "source")
    cloned("round-2-v0", "warm", init="source", resume=True, resume_from=2)
    np.testing.assert_array_equal(robopolicy.load("warm").parameters, whole.parameters)
    with pytest.raises(FileNotFoundError, match="run is 'source'"):
        cloned("round-2-v0", "warm", init="source", resume=True, resume_from=0)
    shutil.copytree(folder / "warm", folder / "source")
    with pytest.raises(ValueError, match="init is 'source': it has changed since the run began"):
        cloned("round-2-v0", "warm", init="source", resume=True, resume_from=0)


def test_another_head_is_drawn_and_the_encoder_stays(folder):
    scores = {"head": "derivative_free", "hidden": 16, "samples": 8}
    random = cloned("round-1-v0", "random", STILL, settings=scores).policy()
    lines = []
    hooks = robopolicy.Hooks(on_begin=lines.append)
    warm = cloned("round-2-v0", "warm", STILL, settings=scores, init="source", hooks=hooks).policy()
    assert lines[0].endswith("; without the head of init, squared_error")
    source = robopolicy.load("source")
    trained, drawn, begun = (by_path(unflatten(p.functions)(p.parameters)) for p in (source, random, warm))
    of_head = [path for path in begun if path.startswith("head/")]
    assert drawn.keys() == begun.keys()
    assert len(of_head) == 6
    for path, array in begun.items():
        np.testing.assert_allclose(array, (drawn if path in of_head else trained)[path], atol=1e-9)
    kept, searches = by_path(source.features), by_path(random.features)
    for path, array in by_path(warm.features).items():
        np.testing.assert_array_equal(array, (searches if path.startswith("search/") else kept)[path])
    assert "It began with the encoder's weights of `source`." in (folder / "warm/README.md").read_text()
    cloned("round-2-v0", "warm", STILL, settings=scores, init="source", resume=True, resume_from=0)
    np.testing.assert_array_equal(robopolicy.load("warm").parameters, warm.parameters)


def test_encoders_of_other_heads_are_other_trainings(folder):
    scores = {"head": "autoregressive", "samples": 8}
    cloned("round-1-v0", "scores", settings=scores)
    cloned("round-2-v0", "a", settings=scores, init="source")
    cloned("round-2-v0", "b", settings=scores, init="scores")
    configs = {name: RunFolder(folder / name).config() for name in "ab"}
    assert difference(configs) == (
        "head of init is not set in the training of 'b' and squared_error in that of 'a'"
    )


@pytest.mark.parametrize("name", ["hidden", "samples"])
def test_another_size_of_the_same_head_is_refused(folder, name):
    with pytest.raises(ValueError, match=f"{name} is 7: the policy of init 'source' has"):
        cloned("round-1-v0", "warm", settings={name: 7}, init="source")


@pytest.mark.parametrize("name", ["history", "chunk"])
def test_other_frames_or_actions_are_refused(folder, name):
    with pytest.raises(ValueError, match=f"{name} is 2: the policy of init 'source' has 1"):
        cloned("round-1-v0", "warm", settings={name: 2}, init="source")
    with pytest.raises(ValueError, match=f"{name} is 2: the run to resume has 1"):
        cloned("round-1-v0", "source", settings={name: 2}, resume=True)


def test_a_run_with_frames_and_chunks_resumes_to_the_same_bits(folder):
    settings = {"history": 3, "chunk": 2}
    whole = cloned("round-1-v0", "whole", settings=settings).policy()
    assert whole.has_state
    cloned("round-1-v0", "whole", settings=settings, resume=True, resume_from=2)
    np.testing.assert_array_equal(robopolicy.load("whole").parameters, whole.parameters)
    warm = cloned("round-1-v0", "warm", STILL, settings=settings, init="whole")
    np.testing.assert_allclose(warm.policy().parameters, whole.parameters, atol=1e-9)
    assert "It reads the last 3 frames of each image and chooses 2 actions at once." in (
        (folder / "whole/README.md").read_text()
    )


def test_it_resumes_with_no_other_weights(folder):
    cloned("round-1-v0", "warm", init="source")
    with pytest.raises(ValueError, match="init is None: the run to resume has 'source'"):
        cloned("round-1-v0", "warm", resume=True)
    with pytest.raises(ValueError, match="init is 'warm': the run to resume has None"):
        cloned("round-1-v0", "source", init="warm", resume=True)


def test_it_resumes_with_no_other_frames(folder):
    cloned("round-1-v0", "warm", init="source")
    with h5py.File(folder / "round-1-v0/data/main_data.hdf5", "r+") as file:
        file["episode_0/actions"][0] *= 0.5
    with pytest.raises(ValueError, match=r"data is \['round-1-v0'\]: its frames are not those of the run"):
        cloned("round-1-v0", "warm", init="source", resume=True, resume_from=2)
    assert RunFolder(folder / "warm").generations() == [2, 4]


def test_a_run_of_an_older_version_resumes_to_the_same_bits(folder):
    whole = robopolicy.load("source").parameters
    path = folder / "source/config.json"
    config = json.loads(path.read_text())
    del config["bc"]["least_action"], config["frames_sha256"]
    path.write_text(json.dumps(config))
    cloned("round-1-v0", "source", resume=True, resume_from=2)
    np.testing.assert_array_equal(robopolicy.load("source").parameters, whole)
    other = replace(CONFIG, least_action=0.1)
    with pytest.raises(ValueError, match=r"least_action is 0.1: the run to resume has 0.0"):
        cloned("round-1-v0", "source", other, resume=True)
    path.write_text(json.dumps({**config, "policy": {**config["policy"], "kind": "mlp"}}))
    with pytest.raises(ValueError, match=r"^'source/config.json': policy kind is 'mlp'"):
        cloned("round-1-v0", "source", resume=True)


def test_too_few_frames_with_large_actions_are_refused_before_a_run_exists(folder):
    with pytest.raises(ValueError, match=r"batch is 4: there are 0 frames to train on with a"):
        cloned("round-1-v0", "warm", replace(CONFIG, least_action=0.99))
    assert not (folder / "warm").exists()


def test_the_range_of_actions_has_those_that_chunks_take_from_removed_frames(folder):
    with h5py.File(folder / "round-1-v0/data/main_data.hdf5", "a") as file:
        for episode in file.values():
            episode["actions"][...] = np.array([[0.9], [0.0], [0.9], [0.0]])
    config = replace(CONFIG, batch=2, least_action=0.3)
    policy = cloned("round-1-v0", "moving", config, settings={"chunk": 2}).policy()
    assert (policy.features["statistics"]["action_low"] < 0.0).all()
