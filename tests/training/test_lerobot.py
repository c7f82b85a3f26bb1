"""Datasets of LeRobot: both ways without loss, read from other programs, and refused if they are wrong."""

import json
import math
import shutil
from pathlib import Path

import cv2
import gymnasium
import h5py
import numpy as np
import pytest
from planar_arm import PlanarArm

from robopolicy.cli import main
from robopolicy.experiments.opened_datasets import opened_datasets
from robopolicy.training.datasets import DatasetError, check_alike, open_dataset

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from toy_lerobot import FILE, JOINTS, LENGTHS, SIDES, VIDEO, change, change_episodes, change_rows, picture  # noqa: E402

from robopolicy.experiments.conversion import as_lerobot, convert  # noqa: E402 (it needs pyarrow)


def arrays(folder):
    found = {}
    with h5py.File(folder / "data/main_data.hdf5") as file:
        file.visititems(lambda name, a: found.update({name: a[()]} if isinstance(a, h5py.Dataset) else {}))
    return found


@pytest.fixture(scope="module")
def written(dataset, tmp_path_factory):
    """The toy's dataset as one of LeRobot."""
    folder = tmp_path_factory.mktemp("lerobot")
    copy = Path(shutil.copytree(dataset, folder / "toy-v0"))
    path = copy / "data/metadata.json"
    metadata = json.loads(path.read_text())
    metadata["robopolicy"] |= {"rate": 10, "robot": "toy", "names": {"action": [f"a{n}" for n in range(12)]}}
    path.write_text(json.dumps(metadata))
    return copy, as_lerobot(copy)


def test_both_ways_keep_every_bit_but_an_episodes_last_observation(written, tmp_path):
    minari, lerobot = written
    convert(lerobot, tmp_path / "back-v0")
    before, after = arrays(minari), arrays(tmp_path / "back-v0")
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert array.dtype == after[name].dtype, name
        if "/observations/" in name:
            np.testing.assert_array_equal(after[name][:-1], array[:-1], name)
            np.testing.assert_array_equal(after[name][-1], array[-2], name)
        elif "/infos/" in name and "intended" not in name:
            np.testing.assert_array_equal(after[name][1:], array[1:], name)
        else:
            np.testing.assert_array_equal(after[name], array, name)
    about = open_dataset(tmp_path / "back-v0", "toy").about
    assert about == open_dataset(minari, "toy").about
    again = convert(tmp_path / "back-v0", tmp_path / "again")
    assert again["format"] == "lerobot"
    for file in (f"data/{FILE}.parquet", "meta/stats.json", "meta/info.json", "meta/tasks.parquet"):
        assert (tmp_path / "again" / file).read_bytes() == (lerobot / file).read_bytes(), file


def test_an_outcome_that_is_whole_in_some_episodes_keeps_its_fractions(written, tmp_path):
    source = Path(shutil.copytree(written[0], tmp_path / "toy-v0"))
    with h5py.File(source / "data/main_data.hdf5", "a") as file:
        for number in range(5):
            steps = len(file[f"episode_{number}/rewards"])
            file[f"episode_{number}/infos/score"] = np.arange(steps + 1) * (0.5 if number == 3 else 1)
    convert(source, tmp_path / "lerobot")
    scores = pq.read_table(tmp_path / f"lerobot/data/{FILE}.parquet")["next.score"]
    data = arrays(source)
    expected = np.concatenate([data[f"episode_{n}/infos/score"][1:] for n in range(5)])
    assert scores.to_pylist() == expected.tolist()


def test_whole_rewards_become_floats_and_no_outcome_called_reward_replaces_them(written, tmp_path):
    source = Path(shutil.copytree(written[0], tmp_path / "toy-v0"))
    with h5py.File(source / "data/main_data.hdf5", "a") as file:
        for episode in file.values():
            steps = len(episode["rewards"])
            del episode["rewards"]
            episode["rewards"], episode["infos/reward"] = np.arange(steps), np.full(steps + 1, 7.0)
    convert(source, tmp_path / "lerobot")
    rewards = pq.read_table(tmp_path / f"lerobot/data/{FILE}.parquet")["next.reward"]
    data = arrays(source)
    assert rewards.type == pa.float64()
    assert rewards.to_pylist() == np.concatenate([data[f"episode_{n}/rewards"] for n in range(5)]).tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"rate": rate} for rate in (0, -5, math.nan, 1e9, [10], "fast")),
        *({"names": names} for names in (["a"], {"action": 5}, {"action": ["one"]})),
        *({"lerobot": {"tasks": tasks}} for tasks in (["a"], "sweep", [1] * 5)),
        *({"lerobot": {"scale": scale}} for scale in ("x", [1.0], [0.0] * 12, [math.nan] * 12)),
    ],
)
def test_metadata_that_lerobot_cannot_hold_are_refused(written, tmp_path, wrong):
    source = Path(shutil.copytree(written[0], tmp_path / "toy-v0"))
    metadata = json.loads((source / "data/metadata.json").read_text())
    metadata["robopolicy"] |= wrong
    (source / "data/metadata.json").write_text(json.dumps(metadata))
    name, value = next(iter(wrong.items()))
    name = next(iter(value)) if name == "lerobot" else name
    with pytest.raises(DatasetError, match=f"toy-v0' has {name} .*: it must be .*"):
        convert(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_observations_that_lerobot_cannot_hold_are_refused_before_the_recording(tmp_path, capsys):
    class Deep(PlanarArm):
        def __init__(self):
            super().__init__()
            depth = gymnasium.spaces.Box(0, 2, (4, 6), np.float32)
            self.observation_space = gymnasium.spaces.Dict({**self.observation_space, "eye": depth})

    gymnasium.register(id="Deep-v0", entry_point=Deep)
    out = str(tmp_path / "deep")
    assert main(["demos", "--env", "Deep-v0", "--episodes", "1", "--format", "lerobot", "--out", out]) == 2
    said = "format is 'lerobot': Deep-v0 has 'eye' of float32[4, 6], and colour images"
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_metadata_and_statistics_are_those_of_the_data(written):
    minari, lerobot = written
    info, stats = (json.loads((lerobot / f"meta/{name}.json").read_text()) for name in ("info", "stats"))
    data = arrays(minari)
    actions = np.concatenate([data[f"episode_{n}/infos/intended_action"] for n in range(5)])
    executed = np.concatenate([data[f"episode_{n}/actions"] for n in range(5)]).astype(float)
    images = np.concatenate([data[f"episode_{n}/observations/image"][:-1] for n in range(5)]) / 255
    assert (info["fps"], info["total_frames"], info["robot_type"]) == (10, len(actions), "toy")
    assert info["features"]["action"]["names"] == [f"a{n}" for n in range(12)]
    np.testing.assert_allclose(stats["executed_action"]["std"], executed.std(axis=0))
    np.testing.assert_allclose(stats["executed_action"]["q10"], np.quantile(executed, 0.1, axis=0))
    for name, value in (("mean", images.mean((0, 1, 2))), ("std", images.std((0, 1, 2)))):
        np.testing.assert_allclose(np.ravel(stats["observation.images.image"][name]), value, err_msg=name)
    assert stats["observation.images.image"]["max"] == (images.max((0, 1, 2)).reshape(3, 1, 1)).tolist()


def test_lerobots_own_loader_reads_the_same(written):
    pytest.importorskip("lerobot")
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    minari, folder = written
    loaded, data = LeRobotDataset("robopolicy/toy", root=folder), arrays(minari)
    steps = [len(data[f"episode_{n}/actions"]) for n in range(5)]
    assert (loaded.num_episodes, len(loaded), loaded.fps) == (5, sum(steps), 10)
    for index, (episode, step) in enumerate((e, t) for e, count in enumerate(steps) for t in range(count)):
        item = loaded[index]
        image = (item["observation.images.image"].numpy().transpose(1, 2, 0) * 255).round().astype(np.uint8)
        np.testing.assert_array_equal(image, data[f"episode_{episode}/observations/image"][step])
        for key, path in (("observation.state", "observations/poses"), ("executed_action", "actions")):
            np.testing.assert_array_equal(item[key].numpy(), data[f"episode_{episode}/{path}"][step])
        assert item["task"] == "toy"
        assert item["timestamp"] == np.float32(step / 10)


@pytest.mark.parametrize("camera", ["front", "observation.images.wrist"])
def test_a_dataset_of_another_program_is_read(arm, tmp_path, camera):
    result = convert(arm, tmp_path / "arm-v0", cameras=[camera])
    assert (result["episodes"], result["steps"]) == (2, sum(LENGTHS))
    dataset, data = open_dataset(tmp_path / "arm-v0", None), arrays(tmp_path / "arm-v0")
    name = camera.rpartition(".")[2]
    assert dataset.task == "recorded"
    assert dataset.columns.images == {name: (*SIDES, 3)}
    assert dataset.environment.settings["dataset"] == str(arm)
    for episode, length in enumerate(LENGTHS):
        images = data[f"episode_{episode}/observations/{name}"].astype(int)
        wanted = [picture(episode, step) for step in range(length)]
        assert np.abs(images[:length] - wanted).max() <= (4 if name == "front" else 0)
        state = [[10 * episode, step] for step in range(length)]
        np.testing.assert_array_equal(data[f"episode_{episode}/observations/state"][:length], state)
        # Of an action, one stands for the largest of the dataset.
        np.testing.assert_allclose(
            data[f"episode_{episode}/actions"] * [20, 10], -2 * np.array(state), atol=1e-5
        )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: change(f, lambda i: i.update(codebase_version="v2.1")), "'v2.1': v3.0 was expected"),
        (
            lambda f: change(f, lambda i: i.update(fps=0)),
            "has fps 0: a number above 0, at most 1000, was expected",
        ),
        (lambda f: change(f, lambda i: i.update(total_episodes=3)), "describes 2 episodes: 3 were expected"),
        (
            lambda f: change(f, lambda i: i["features"]["observation.state"].update(shape=[3])),
            "observation.state of [2] numbers: float32[3] was expected",
        ),
        (
            lambda f: change(f, lambda i: i["features"]["action"].update(dtype="float64")),
            "action of 'float': float64[2] was expected",
        ),
        (
            lambda f: change(f, lambda i: i["features"]["observation.images.wrist"].update(shape=[8, 8, 3])),
            "observation.images.wrist [16, 32, 3] at frame 0: [8, 8, 3] was expected",
        ),
        (
            lambda f: change(f, lambda i: i["features"]["observation.images.wrist"].update(shape=[])),
            "of shape []: [H, W, C] was expected",
        ),
        (lambda f: change_episodes(f, tasks="pick"), "has an episode with tasks 'pick': a list of texts was"),
        (lambda f: change_episodes(f, length=4.0), "has an episode of 4.0 frames"),
        (lambda f: change_episodes(f, **{"data/chunk_index": np.inf}), "is damaged in meta/episodes"),
        (
            lambda f: change_episodes(f, **{f"{VIDEO}/from_timestamp": np.nan}),
            "observation.images.front from nan s on",
        ),
        (lambda f: (f / "meta/robopolicy.json").write_text('{"keys": [1]}'), "has keys [1]: {} was expected"),
        (
            lambda f: (f / "meta/robopolicy.json").write_text('{"keys": {}, "minari": {}}'),
            "arm': episode 0 has actions of 6",
        ),
        (lambda f: change(f, lambda i: i["features"].pop("action")), "has action none"),
        (
            lambda f: change(f, lambda i: i["features"].update({"observation.x": i["features"]["action"]})),
            "lacks the column 'observation.x'",
        ),
        (lambda f: (f / f"data/{FILE}.parquet").unlink(), f"holds no data/{FILE}.parquet"),
        (lambda f: (f / VIDEO / f"{FILE}.mp4").unlink(), f"holds no {VIDEO}/{FILE}.mp4"),
        (lambda f: (f / f"data/{FILE}.parquet").write_bytes(b"PAR1"), "is damaged"),
        (lambda f: shutil.rmtree(f / "meta/episodes"), "holds no meta/episodes"),
        (
            lambda f: change_rows(f, frame_index=[0, 1, 3, 2, *range(6)]),
            "has frame_index of episode 0 out of order: 0 to 3 was expected",
        ),
    ],
)
def test_a_wrong_dataset_is_refused_in_one_line(arm, tmp_path, capsys, spoil, said):
    spoil(arm)
    assert main(["convert", str(arm), "--cameras", "wrist", "--out", str(tmp_path / "arm-v0")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["arm"]


@pytest.mark.parametrize(("rate", "count"), [(10, 5), (60, 2)])
def test_a_video_with_other_frames_than_its_episodes_is_refused(arm, tmp_path, capsys, rate, count):
    change(arm, lambda i: i.update(fps=rate))
    assert main(["convert", str(arm), "--cameras", "front", "--out", str(tmp_path / "arm-v0")]) == 2
    assert f"episode 0 has {count} frames of observation.images.front: 4" in capsys.readouterr().err


def test_numbers_beyond_float32_are_refused(arm, tmp_path):
    path = arm / f"data/{FILE}.parquet"
    table = pq.read_table(path)
    huge = pa.FixedSizeListArray.from_arrays(pa.array(np.full(2 * len(table), 1e200)), 2)
    pq.write_table(table.set_column(table.column_names.index("action"), "action", huge), path)
    change(arm, lambda i: i["features"]["action"].update(dtype="float64"))
    with pytest.raises(ValueError, match="action that are not finite in float32"):
        convert(arm, tmp_path / "arm-v0", cameras=["wrist"])
    with pytest.raises(ValueError, match=r"^cameras is 'wrist': it must be"):
        convert(arm, tmp_path / "arm-v0", cameras="wrist")


def test_a_picture_without_names_may_have_its_channels_first(arm, tmp_path):
    shape = {"shape": [3, *SIDES], "names": None}
    change(arm, lambda i: i["features"]["observation.images.wrist"].update(shape))
    convert(arm, tmp_path / "arm-v0", cameras=["wrist"])
    assert open_dataset(tmp_path / "arm-v0", None).columns.images == {"wrist": (*SIDES, 3)}


def test_a_column_with_a_name_of_graphs_gets_another_one(arm, tmp_path):
    (path,) = (arm / "data").rglob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.append_column("observation.command", table["observation.state"]), path)
    added = {"dtype": "float32", "shape": [2], "names": JOINTS}
    change(arm, lambda i: i["features"].update({"observation.command": added}))
    convert(arm, tmp_path / "arm-v0", cameras=["wrist"])
    assert open_dataset(tmp_path / "arm-v0", None).columns.vectors == {"state": 2, "x_command": 2}


@pytest.mark.parametrize(("part", "value"), [("fps", 15), ("action", ["gripper.pos", "shoulder_pan.pos"])])
def test_datasets_of_other_rates_or_joints_are_not_mixed(arm, tmp_path, part, value):
    other = Path(shutil.copytree(arm, tmp_path / "other"))
    change(other, lambda i: i.update(fps=value) if part == "fps" else i["features"][part].update(names=value))
    with (
        opened_datasets([arm, other], None, ["wrist"]) as datasets,
        pytest.raises(ValueError, match=r"other': it has (rate 15\.0|names)"),
    ):
        check_alike(datasets)


def test_datasets_with_other_largest_actions_are_not_mixed(arm, tmp_path):
    other = Path(shutil.copytree(arm, tmp_path / "other"))
    path = other / f"data/{FILE}.parquet"
    table = pq.read_table(path)
    actions = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(2 * len(table), np.float32)), 2)
    pq.write_table(table.set_column(table.column_names.index("action"), "action", actions), path)
    with (
        opened_datasets([arm, other], None, ["wrist"]) as datasets,
        pytest.raises(ValueError, match=r"largest actions \[1\.0, 1\.0\], and .* has \[20\.0, 10\.0\]"),
    ):
        check_alike(datasets)


def test_one_of_several_cameras_has_to_be_chosen(arm, tmp_path, capsys):
    for words, said in ((), "cameras is ()"), (("--cameras", "top"), "cameras has 'top'"):
        line = ["train", "bc", "--data", str(arm), "--out", str(tmp_path / "run"), *words]
        assert main(line) == 2
        error = capsys.readouterr().err
        assert said in error
        assert "front, wrist" in error
        assert not (tmp_path / "run").exists()


def test_a_dataset_of_another_program_is_inspected(arm, tmp_path, capsys):
    sheet = tmp_path / "episode.png"
    assert main(["inspect", str(arm), "--cameras", "wrist", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["path"], seen["task"], seen["episodes"]) == (str(arm), "recorded", len(LENGTHS))
    assert seen["lengths"] == list(LENGTHS)
    assert seen["observations"]["wrist"]["shape"] == [*SIDES, 3]
    assert seen["returns"] is None  # the dataset has no rewards
    assert main(["inspect", str(arm), "--cameras", "wrist", "--sheet", str(sheet)]) == 0
    assert cv2.imread(str(sheet)) is not None
    assert main(["inspect", str(arm)]) == 2
    assert "front, wrist" in capsys.readouterr().err


def test_a_camera_may_be_given_by_the_end_of_its_key(arm, tmp_path):
    wrist, other = "observation.images.wrist", "observation.images.wrist-cam.2"
    path = arm / f"data/{FILE}.parquet"
    pq.write_table(pq.read_table(path).rename_columns({wrist: other}), path)
    change(arm, lambda i: i["features"].update({other: i["features"].pop(wrist)}))
    convert(arm, tmp_path / "arm-v0", cameras=["wrist-cam.2"])
    assert [*open_dataset(tmp_path / "arm-v0", None).columns.images] == ["wrist_cam_2"]


def test_only_lerobot_datasets_have_a_choice_of_cameras(dataset):
    with (
        pytest.raises(ValueError, match=r"^cameras is \('front',\): only LeRobot datasets have a choice"),
        opened_datasets([dataset], "toy", ["front"]),
    ):
        pass


def test_the_current_folder_may_be_the_dataset(arm, monkeypatch):
    monkeypatch.chdir(arm)
    with opened_datasets([Path(".")], None, ["wrist"]) as (dataset,):
        assert (dataset.path, dataset.steps) == (Path("."), LENGTHS)
