"""Rounds of DAgger: a policy acts, the demonstrator labels, and rounds that differ are refused."""

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from toy_recordings import ABOUT, OUTCOMES, TASK, digest, spec

from robopolicy.training.datasets import DatasetError, check_alike, open_dataset
from robopolicy.training.demonstration import RecordingConfig
from robopolicy.training.evaluate import EpisodeError
from robopolicy.training.recording import record


@pytest.fixture(scope="module")
def graph():
    """A policy whose action is an eighth everywhere and leaves [-1, 1] at the last number."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    push = helper.make_tensor("push", kind, [12], [0.125] * 11 + [1.5])
    nodes = [
        helper.make_node("Slice", ["poses", "first", "last"], ["felt"]),
        helper.make_node("Mul", ["felt", "none"], ["nothing"]),
        helper.make_node("Add", ["nothing", "push"], ["action"]),
    ]
    ends = [helper.make_tensor(n, onnx.TensorProto.INT64, [1], [v]) for n, v in (("first", 0), ("last", 12))]
    body = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("poses", kind, [14])],
        [helper.make_tensor_value_info("action", kind, [12])],
        [push, helper.make_tensor("none", kind, [], [0.0]), *ends],
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString()


def round_of(graph, out, workers=2, **config):
    settings = {"episodes": 4, "keep_failed": True, "outcomes": OUTCOMES, "beta": 0.5, "noise": 0.1, **config}
    return record(RecordingConfig(**settings), spec(unsolved=3), out, ABOUT, workers, policy=graph)


def test_a_round_has_the_actions_of_the_policy_and_the_labels_of_the_demonstrator(tmp_path, graph):
    played = round_of(graph, tmp_path / "toy-v0", beta=0.0)
    assert [one.seed for one in played.episodes] == [0, 1, 3, 4]
    assert [(one.seed, one.unsolved) for one in played.kept_out] == [(2, "all is lost")]
    opened = open_dataset(tmp_path / "toy-v0", TASK)
    assert opened.about["kept_out"] == {"2": "all is lost"}
    with h5py.File(opened.file) as file:
        actions = file["episode_0/actions"][()]
        np.testing.assert_array_equal(actions[:, :11], 0.125)
        np.testing.assert_array_equal(actions[:, 11], 1.0)
        np.testing.assert_array_equal(file["episode_0/infos/intended_action"][()], 0.0)


@pytest.mark.slow
def test_a_round_does_not_depend_on_the_number_of_its_workers(tmp_path, graph):
    found = {digest(tmp_path / f"{w}-v0") for w in (1, 2) if round_of(graph, tmp_path / f"{w}-v0", w)}
    assert len(found) == 1
    with h5py.File(tmp_path / "1-v0" / "data" / "main_data.hdf5") as file:
        actions = np.concatenate([file[f"episode_{n}/actions"][()] for n in range(4)])
    by_policy = (actions[:, :11] == 0.125).all(axis=1)
    assert 0 < by_policy.sum() < len(by_policy)


def test_a_round_without_labels_is_one_clear_error(tmp_path, graph):
    config = RecordingConfig(2, keep_failed=True, beta=0.0)
    with pytest.raises(EpisodeError, match=r"0 of 20 episodes are labelled, of 2 .* such as: all is lost"):
        record(config, spec(unsolved=1), tmp_path / "toy-v0", ABOUT, 1, policy=graph)


def test_an_interrupted_round_refuses_another_policy(tmp_path, graph):
    out, config = tmp_path / "toy-v0", RecordingConfig(2, keep_failed=True, beta=0.0)
    before, after = ({**ABOUT, "policy": {"run": "runs/clone", "checkpoint": n}} for n in (250, 500))
    with pytest.raises(EpisodeError):
        record(config, spec(raises=1), out, before, 1, policy=graph)
    with pytest.raises(ValueError, match=r"policy checkpoint is 500: the recording .* interrupted has 250"):
        record(config, spec(raises=1), out, after, 1, policy=graph)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"task": "other"}, "it has task 'other', and '.*toy-v0' has 'toy'"),
        (
            {"columns": {"images": {"image": (48, 48, 3)}}},
            r"it has images .*\(48, 48, 3\).* has .*\(40, 40, 3\)",
        ),
        ({"columns": {"vectors": {}}}, "it has vectors {}, and"),
        ({"columns": {"actions": 7}}, "it has actions 7, and '.*toy-v0' has 12"),
        ({"path": None}, "toy-v0' twice: it must be given once"),
    ],
)
def test_rounds_that_differ_are_refused(dataset, changed, words):
    opened = open_dataset(dataset, TASK)
    changed = {"path": Path("other-v0"), **changed}
    changed["path"] = changed["path"] or dataset
    columns = opened.columns._replace(**changed.pop("columns", {}))
    check_alike([opened, replace(opened, path=Path("right-v0"))])
    with pytest.raises(DatasetError, match=words):
        check_alike([opened, replace(opened, columns=columns, **changed)])
