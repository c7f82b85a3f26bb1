"""The task of LeRobot datasets: episodes that were recorded, of one dataset or of several."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import robopolicy
from robopolicy.cli import main
from robopolicy.experiments.runs import played_on

pytest.importorskip("pyarrow")

from toy_lerobot import JOINTS, LENGTHS, change, change_rows


@pytest.fixture
def pair(arm, tmp_path):
    """The arm's dataset, and one with other states and the same actions."""
    other = Path(shutil.copytree(arm, tmp_path / "other"))
    change_rows(other, **{"observation.state": np.full((sum(LENGTHS), 2), 70, np.float32)})
    return [str(arm), str(other)]


def test_several_datasets_are_one_task_with_the_readings_of_all(pair):
    env = robopolicy.make("recorded", dataset=pair, cameras=["wrist"])
    first, last = (env.reset(seed=seed)[0] for seed in (0, 3))
    np.testing.assert_array_equal(first["state"], [0, 0])
    np.testing.assert_array_equal(last["state"], [70, 70])
    limits = env.observation_space["state"]
    np.testing.assert_array_equal([limits.low, limits.high], [[-70, -70], [140, 140]])
    assert robopolicy.evaluate("oracle", env, seeds=range(4)).mean("action_error") == 0


def test_the_control_acts_by_the_mean_of_all_actions(arm):
    env = robopolicy.make("recorded", dataset=str(arm), cameras=["wrist"])
    # Six of ten frames have -20, the largest action; the other joint has 0 to -6 and 0 to -10.
    np.testing.assert_allclose(env.unwrapped.privileged_action("mean"), [-0.6, -0.42], rtol=1e-6)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda f: change(f, lambda i: i.update(fps=15)),
        lambda f: change(f, lambda i: i["features"]["action"].update(names=JOINTS[::-1])),
        lambda f: change_rows(f, action=np.ones((sum(LENGTHS), 2), np.float32)),
    ],
)
def test_datasets_that_differ_are_no_one_task(pair, spoil):
    spoil(Path(pair[1]))
    with pytest.raises(ValueError, match=r"^dataset has '.*other': its rate, observations, joints and .* be"):
        robopolicy.make("recorded", dataset=pair, cameras=["wrist"])


def test_the_task_of_the_first_run_has_the_players_that_are_named(tmp_path):
    config = {"task": "recorded", "policy": {}, "environment": {"others": {"dataset": "arm"}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    environment = played_on([str(tmp_path), "mean"], None, None)
    assert (environment.task, environment.others) == ("recorded", {"dataset": "arm"})
    with pytest.raises(FileNotFoundError, match=r"^run is 'median': .* or blind, mean, oracle, random"):
        played_on([str(tmp_path), "median"], None, None)


@pytest.mark.parametrize("wrong", [None, [], 5, ["a", 5]])
def test_a_task_without_a_folder_is_refused(wrong):
    with pytest.raises(ValueError, match=r"^dataset is .*: it must be the folder of a LeRobot dataset"):
        robopolicy.make("recorded", dataset=wrong)


def test_a_dataset_of_depth_images_has_no_colour_images(arm, tmp_path, capsys):
    def deepen(info):
        del info["features"]["observation.images.front"]
        info["features"]["observation.images.wrist"]["info"] = {"is_depth_map": True}

    change(arm, deepen)
    assert main(["train", "bc", "--data", str(arm), "--out", str(tmp_path / "run")]) == 2
    assert "it has no colour images (depth and grey ones are not read)" in capsys.readouterr().err


@pytest.mark.slow
def test_a_clone_of_an_arm_is_trained_resumed_and_evaluated(pair, tmp_path, capsys):
    run = str(tmp_path / "run")
    small = "--preset tiny --patch 8 --samples 8 --batch 4 --validation 0.5 --steps 2 --workers 1"
    line = ["train", "bc", "--data", *pair, "--cameras", "wrist", "--out", run, *small.split()]
    assert main([*line, "--attention", "positive(m=4)"]) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["task"] == "recorded"
    assert config["environment"]["others"] == {"dataset": pair, "cameras": ["wrist"]}
    assert [v["name"] for v in config["policy"]["vectors"]] == ["state"]
    assert main(["train", "bc", "--resume", "--resume-from", "0", "--out", run]) == 0
    capsys.readouterr()
    assert main(["evaluate", "oracle", "--task", "recorded"]) == 2
    assert "dataset is None" in capsys.readouterr().err
    assert main(["evaluate", run, "--episodes", "2", "--json"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["action_error_mean"] < 2
    page, copy = tmp_path / "page.html", shutil.copytree(run, tmp_path / "copy")
    for words, said in (
        (("evaluate", run, "--episodes", "2"), "action error"),
        (
            ("compare", run, str(copy), "--episodes", "2"),
            "2 recorded episodes each, those of the training among them",
        ),
        (("report", run, "--no-video", "--episodes", "2", "--out", str(page)), str(page)),
    ):
        assert main([*words]) == 0
        out = capsys.readouterr().out
        assert said in out
        assert "success" not in out
    assert "Recorded episodes, those of the training among them, of the seeds below" in page.read_text()
    assert "success" not in page.read_text()
    env = robopolicy.make("recorded", dataset=pair[0], cameras=["wrist"])
    oracle, mean = (robopolicy.evaluate(player, env, seeds=[0, 1]) for player in ("oracle", "mean"))
    assert oracle.mean("action_error") == 0 < mean.mean("action_error")
