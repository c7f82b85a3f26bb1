"""`--robot`: which robot a command plays, and where it is recorded."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import gymnasium
import pytest
from made_runs import PAPER, made_run

from robopolicy.cli import main
from robopolicy.cli.train_es import TrainES
from robopolicy.control.robots import GO2, ROBOTS, robot_of
from robopolicy.experiments.default_policies import new_policy
from robopolicy.experiments.environments import Environment, others_of
from robopolicy.experiments.evaluation import evaluate
from robopolicy.experiments.films import film
from robopolicy.experiments.runs import load, played_on, preset_of, trained_on
from robopolicy.experiments.starting import check_same
from robopolicy.experiments.stored_evaluations import FILE, stored_evaluation


def test_evaluate_plays_the_robot_and_records_it(capsys):
    words = "evaluate blind --robot go2 --engine mujoco --episodes 1 --episode-seconds 0.2 --json".split()
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["robot"] == "go2"
    assert main([*words[:2], *words[4:]]) == 0
    assert "robot" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("evaluate oracle --robot spot", "robot is 'spot': it must be one of laikago, go2"),
        (
            "evaluate oracle --robot go2 --task bimanual-sweep",
            "robot is 'go2': bimanual-sweep takes no robot",
        ),
        ("evaluate oracle --robot go2 --engine jax", "robot is 'go2': the engine jax has laikago alone"),
        (
            "train es --robot go2 --engine jax --out {}/run",
            "robot is 'go2': the engine jax has laikago alone",
        ),
    ],
)
def test_a_robot_that_a_command_does_not_have_is_refused(refused, tmp_path, words, line):
    assert line in refused(*words.format(tmp_path).split())
    assert not list(tmp_path.iterdir())


def test_a_run_is_played_on_its_own_robot(tmp_path):
    environment = {**PAPER, "others": {"robot": "go2"}}
    of_go2, of_laikago = made_run(tmp_path / "go2", environment=environment), made_run(tmp_path / "laikago")
    assert played_on([of_go2, of_laikago], None, None).robot == "go2"
    assert played_on([of_laikago, of_go2], None, None).robot is None
    assert played_on([of_go2], None, None, others=others_of(robot="laikago")).robot == "laikago"
    assert trained_on(load(of_go2)).settings["robot"] == "go2"
    assert played_on([of_go2], None, None).title == "stepping-stones (paper, mujoco, go2)"


def test_a_cloning_is_played_on_the_preset_of_its_demonstrations():
    assert (
        preset_of({"environment": {"engine": "mujoco", "preset": "distracted", "balls": 5}}) == "distracted"
    )
    assert preset_of({"environment": {"engine": "mujoco", "balls": 5}}) is None


def test_other_settings_of_a_run_that_are_damaged_are_refused(tmp_path):
    damaged = made_run(tmp_path / "run", environment={**PAPER, "others": ["go2"]})
    with pytest.raises(ValueError, match=r"^others is \['go2'\] in the run's config.json"):
        played_on([damaged], None, None)


def test_an_evaluation_records_cameras_and_drift_and_is_kept_for_them_alone(tmp_path, capsys):
    settings = {"cameras": ("front",), "drift": 0.01}
    environment = Environment("stepping-stones", "mujoco", "paper", 0.2, settings)
    played = evaluate("blind", environment, [9000]).summary()
    assert (played["cameras"], played["drift"]) == (["front"], 0.01)
    words = "evaluate blind --engine mujoco --episodes 1 --episode-seconds 0.2 --cameras front --drift 0.01"
    assert main([*words.split(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["cameras"], told["drift"]) == (["front"], 0.01)
    assert environment.title == "stepping-stones (paper, mujoco, front, drift 0.01 m a step)"
    run = made_run(tmp_path / "run")
    (tmp_path / "run" / FILE).write_text(json.dumps({"mujoco": played}))
    assert stored_evaluation(run, environment)["returns"] == played["returns"]
    assert stored_evaluation(run, Environment("stepping-stones", "mujoco", "paper", 0.2)) is None


def test_a_short_evaluation_is_not_taken_for_one_of_full_episodes(tmp_path):
    run, short = made_run(tmp_path / "run"), Environment("stepping-stones", "mujoco", "paper", 0.2)
    played = evaluate("blind", short, [9000]).summary()
    assert played["episode_seconds"] == 0.2
    (tmp_path / "run" / FILE).write_text(json.dumps({"mujoco": played}))
    assert stored_evaluation(run, short)["returns"] == played["returns"]
    full = Environment("stepping-stones", "mujoco", "paper")
    assert stored_evaluation(run, full) is None
    del played["episode_seconds"]  # as in files of earlier versions
    (tmp_path / "run" / FILE).write_text(json.dumps({"mujoco": played}))
    assert stored_evaluation(run, full)["returns"] == played["returns"]


def test_a_camera_is_named_once(refused):
    line = refused(
        "evaluate", "blind", "--cameras", "front", "front", "--engine", "mujoco", "--episodes", "1"
    )
    assert "cameras is ('front', 'front'): it must name one or more of front, belly, each once" in line


def test_a_training_records_its_robot():
    command = TrainES(out="unused", robot="go2", engine="mujoco")
    assert command.environment.others == {"robot": "go2"}


def test_a_training_with_a_table_of_ones_own_is_resumed_by_its_run(tmp_path):
    table = json.loads(json.dumps(asdict(replace(GO2, name="mine"))))
    run = made_run(tmp_path / "run", environment={**PAPER, "others": {"robot": table}})
    begun = TrainES(out=Path(run)).stored_command()
    assert begun.robot == str(Path(run) / "config.json")
    assert json.loads(json.dumps(begun.environment.others["robot"])) == table
    assert played_on([run], None, None).title == "stepping-stones (paper, mujoco, mine)"


@pytest.mark.slow
def test_a_policy_reads_images_of_the_size_that_its_robot_has():
    front, belly = (replace(camera, width=64, height=48) for camera in (GO2.front, GO2.belly))
    robot = replace(GO2, name="fine", front=front, belly=belly)
    env = gymnasium.make("robopolicy:robopolicy/SteppingStones-v0", engine="mujoco", robot=robot)
    policy = new_policy(env, "trigonometric(m=8)")
    observation, _ = env.reset(seed=0)
    assert observation["belly_depth"].shape == (48, 64)
    assert policy.act(observation).shape == env.action_space.shape
    assert policy.inspect(observation)["kept/belly_depth"].shape == (48, 64)
    other = replace(robot, name="other", belly=GO2.belly)
    env = gymnasium.make("robopolicy:robopolicy/SteppingStones-v0", engine="mujoco", robot=other)
    with pytest.raises(
        ValueError, match=r"^robot has front_depth of 48 x 64 and belly_depth of 24 x 32 pixels"
    ):
        new_policy(env, "all")


@pytest.mark.parametrize("robot", ROBOTS.values(), ids=str)
def test_a_table_is_json_without_infinity(robot):
    """A bundle's manifest holds the table of its run, and takes no other JSON."""
    table = json.dumps(asdict(replace(robot, name="mine")), allow_nan=False)
    assert robot_of(json.loads(table)) == replace(robot, name="mine")


def test_a_film_has_room_for_images_of_any_size(tmp_path):
    large = replace(GO2.front, width=128, height=400)
    environment = Environment(
        "stepping-stones", "mujoco", "paper", 0.1, {"robot": replace(GO2, name="fine", front=large)}
    )
    film("blind", environment, sheet=tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").is_file()


def test_settings_of_an_environment_hold_the_table_and_not_its_file(tmp_path):
    table = json.loads(json.dumps(asdict(replace(GO2, name="mine"))))
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(table))
    env = gymnasium.make("robopolicy:robopolicy/SteppingStones-v0", engine="mujoco", robot=str(path))
    settings = Environment.of(env)
    env.close()
    assert json.loads(json.dumps(settings.others["robot"])) == table
    assert settings.recorded["robot"] == "mine"


@pytest.mark.parametrize(
    ("robot", "words"),
    [
        ({"mass": 12.0}, "others robot mass is 12.0: the run to resume has 15.21"),
        ("go2", "others robot is 'go2': the run to resume has 'mine'"),
        (None, "others robot is None: the run to resume has 'mine'"),
    ],
)
def test_a_resume_with_another_table_names_what_differs(robot, words):
    mine = {"name": "mine", "mass": 15.21}
    before = {"environment": {"others": {"robot": mine}}}
    others = {"robot": mine | robot if isinstance(robot, dict) else robot}
    with pytest.raises(ValueError, match=f"^{words}$"):
        check_same("the run to resume", ("environment",), before, {"environment": {"others": others}})


@pytest.mark.parametrize(
    ("part", "had", "has", "words"),
    [
        (
            "environment",
            {},
            {"others": {"robot": "go2"}},
            "others robot is 'go2': the run to resume has None",
        ),
        ("environment", {"others": {"drift": 0.1}}, {}, "others drift is None: the run to resume has 0.1"),
        (
            "policy",
            {"cameras": [{"lowest": 0.0}], "variant": "mask", "fade": 0.5},
            {"cameras": [{"lowest": -1.0}], "variant": "rank", "fade": 0.05},
            "variant is 'rank': the run to resume has 'mask'",
        ),
    ],
)
def test_a_resume_names_the_setting_that_was_given(part, had, has, words):
    with pytest.raises(ValueError, match=f"^{words}$"):
        check_same("the run to resume", (part,), {part: had}, {part: has})


@pytest.mark.parametrize(
    ("pace", "words"), [(1.0, "in real time"), (0.0, "in lock step"), (0.5, "at 0.5 of real time")]
)
def test_a_drive_names_its_pace_and_no_times_that_it_lacks(monkeypatch, capsys, pace, words):
    counts = (
        "steps",
        "control_period",
        "deadlines_missed",
        "deadline",
        "share_missed",
        "begun_late",
        "episodes",
    )
    result = (
        dict.fromkeys(counts, 0)
        | dict.fromkeys(("round_trip", "thinking", "jitter", "stopped"))
        | {
            "pace": pace,
            "low_level": {"periods": 0, "bridged": 0, "late": 0, "ignored": {}, "spent": None},
        }
    )
    monkeypatch.setattr("robopolicy.cli.deploy.deploy_simulated_unitree", lambda *_, **__: result)
    assert main(["deploy", "bundle", "--robot", "go2-sim", "--pace", str(pace)]) == 0
    steps, low_level = capsys.readouterr().out.splitlines()
    assert steps.startswith(f"0 steps of 0 ms {words}, 0 deadlines")
    assert low_level.endswith("messages ignored: none")
