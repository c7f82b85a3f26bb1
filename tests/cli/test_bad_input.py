"""One battery over all commands: what they refuse, in one line and before they touch anything."""

import json
import sys
from importlib.util import find_spec

import pytest

from robopolicy.envs.physics import default_engine
from robopolicy.experiments.default_policies import policy_config
from robopolicy.experiments.runs import played_on
from robopolicy.policies.catalogue import describe

SHIPPED, CLONED = "stepping-stones-softmax", "bimanual-sweep-angular"
# Ray is an extra.
DEVICE = ("--evaluator", "device")
NO_CLUSTER = "no Ray cluster answers there" if find_spec("ray") else "it needs Ray"
COMPLETE = (
    ("train", "es", "--out", "run"),
    ("train", "bc", "--data", "sweep-v0", "--out", "run"),
    ("grid", "table"),
    ("demos", "--out", "sweep-v0"),
    ("convert", "sweep-v0", "--out", "sweep"),
    ("evaluate", "oracle"),
    ("rollout", "oracle", "--video", "walk.mp4"),
    ("flops",),
    ("plot", "run", "--out", "curves.svg"),
    ("report", "run", "--out", "report.html"),
    ("runs",),
    ("inspect", "run"),
    ("export", "run", "--out", "bundle"),
    ("verify", "bundle"),
    ("deploy", "bundle"),
    ("doctor",),
)


@pytest.mark.parametrize("words", COMPLETE, ids=" ".join)
def test_an_unknown_option_is_one_line(refused, words):
    assert "--nonsense" in refused(*words, "--nonsense", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "a command is needed: train es, train bc, grid, demos"),
        (("walk",), "'walk' is no command (see --help)"),
        (("evlauate", "oracle"), "did you mean evaluate?"),
        (("--json",), "'--json' is no command"),
        (("train",), "train es"),
        (("train", "es"), "--out"),
        (("evaluate", "oracle", "--episods", "3"), "did you mean --episodes?"),
        (("flops", "--jso"), "did you mean --json?"),
        (("train", "bc", "--out", "run", "--no-miror"), "did you mean --no-mirror?"),
        (("evaluate", "oracle", "--episodes", "many"), "many"),
        (("evaluate", "oracle", "--episodes", "0"), "episodes is 0"),
        (("evaluate", "oracle", "--cameras"), "--cameras is empty"),
        (("evaluate", "--cameras", "front"), "|random is missing: it goes before the"),
        (("evaluate", "oracle", "--env", "spot:S-v0", "--task", "recorded"), "--env and --task are one"),
        (("plan", "--budget", "671046", "--policy", ""), "--policy is '': it must not be empty"),
        (("evaluate", "oracle", "--engine="), "--engine is '': it must not be empty"),
        (("evaluate", "oracle", "--task", "steping-stones"), "did you mean 'stepping-stones'?"),
        (("evaluate", "oracle", "--preset", "papr"), "did you mean 'paper'?"),
        (("evaluate", "oracle", "--engine", "bulet"), "did you mean 'bullet'?"),
        (("evaluate", "oracle", "--renderer", "softwere"), "did you mean 'software'?"),
        (
            ("evaluate", "oracle", "--engine", "mujoco", "--renderer", "tiny"),
            "it must be 'software' or 'opengl'",
        ),
        (("evaluate", "oracle", "--seed", "-1"), "seed is -1"),
        (
            ("evaluate", "oracle", "--preset", "hard", "--episode-seconds", "1e15"),
            "it must be a number from 0.05 to 86400",
        ),
        (("evaluate", "nobody"), "run is 'nobody'"),
        (("evaluate", SHIPPED, "--task", "bimanual-sweep"), "was trained on 'stepping-stones'"),
        (("evaluate", "oracle", "--task", "bimanual-sweep", "--preset", "hard"), "preset is 'hard'"),
        (("train", "es", "--task", "bimanual-sweep", "--out", "run"), "task is 'bimanual-sweep'"),
        (("train", "bc", "--out", "run"), "data is missing"),
        (("train", "bc", "--out", "run", "--data", "sweep-v0"), "data is 'sweep-v0': it must be the folder"),
        (("train", "bc", "--out", "run", "--data", "sweep-v0", "--negatives", "0"), "negatives is 0"),
        (("train", "bc", "--out", "run", "--data", "sweep-v0", "--task", "stepping-stones"), "task is"),
        (("train", "bc", "--out", "run", "--resume"), "no run"),
        (("train", "bc", "--out", "run", "--data", "sweep-v0", "--cameras", "top"), "data is 'sweep-v0'"),
        (("demos", "--out", "sweep-v0", "--format", "hdf5"), "format is 'hdf5'"),
        (("demos",), "--out"),
        (("demos", "--out", "sweep"), "such as sweep-v0"),
        (("demos", "--out", "/dev/null/sweep-v0"), "'/dev/null' is a file, and holds no folders"),
        (("demos", "--out", f"{300 * 'x'}-v0"), "nothing can be written there (File name too long)"),
        (("inspect", "stepping-stones-planned@"), "must have best or the number of a checkpoint"),
        (("demos", "--out", "/proc/x-v0"), "out is '/proc/x-v0': nothing can be written there"),
        (("demos", "--out", ".", "--format", "lerobot"), "out is '.': it must be the name of a new folder"),
        (
            ("demos", "--out", "sweep-v0", "--task", "stepping-stones"),
            "demonstrator: it must be bimanual-sweep",
        ),
        (("demos", "--out", "sweep-v0", "--episodes", "0"), "episodes is 0"),
        (("demos", "--out", "sweep-v0", "--seed", "4294967295", "--episodes", "2"), "seed is 42949"),
        (("export", "stepping-stones-planned", "--out", "/"), "out is '/': it exists"),
        (("demos", "--out", "sweep-v0", "--balls", "0"), "balls is 0"),
        (("demos", "--out", "sweep-v0", "--image-size", "5"), "image_size is 5"),
        (("demos", "--out", "sweep-v0", "--noise", "2"), "noise is 2"),
        (("demos", "--out", "sweep-v0", "--seed", "-1"), "seed is -1"),
        (("demos", "--out", "sweep-v0", "--workers", "0"), "workers is 0"),
        (("demos", "--out", "sweep-v0", "--beta", "0.5"), "beta is 0.5: it needs a run"),
        (("demos", "--out", "sweep-v0", "--from", "nowhere"), "run is 'nowhere'"),
        (("demos", "--out", "sweep-v0", "--from", CLONED, "--noise", "0.1"), "noise is 0.1: with beta 0"),
        (("demos", "--out", "sweep-v0", "--from", CLONED, "--keep-failed"), "keep_failed is True"),
        (("demos", "--out", "sweep-v0", "--from", CLONED, "--image-size", "96"), "reads image [500, 500, 3]"),
        (("demos", "--out", "sweep-v0", "--from", SHIPPED), "was trained on 'stepping-stones'"),
        (("demos", "--out", "sweep-v0", "--engine", "bulet"), "did you mean 'bullet'?"),
        (("demos", "--out", "sweep-v0", "--renderer", "gpu"), "renderer is 'gpu'"),
        (("flops", "--attention", "angular_hybird(m=8, n=8)"), "did you mean 'angular_hybrid'"),
        (("flops", "--attention", "angular_hybrid(m=8, k=8)"), "k"),
        (("flops", "--attention", "positive(m=0)"), "m"),
        (("flops", "--patch", "7"), "patch is 7"),
        (("flops", "nobody"), "run is 'nobody'"),
        (("flops", "--task", "bimanual-sweep", "--patch", "7"), "patch is 7: it must divide"),
        (("flops", "--task", "bimanual-sweep", "--variant", "mask"), "variant is 'mask'"),
        (("flops", "--task", "bimanual-sweep", "--preset", "smal"), "did you mean 'small'?"),
        (("flops", "--head", "langevin"), "the policy of stepping-stones has no such setting"),
        (("flops", "stepping-stones-softmax", "--patch", "4"), "patch is 4"),
        (("flops", "stepping-stones-softmax", "nobody"), "run is 'nobody'"),
        (("flops", "--task", "dancing"), "task is 'dancing'"),
        (("flops", "--csv", "flops.txt"), "csv is 'flops.txt': its name must end in .csv"),
        (("flops", "--csv", "nowhere/flops.csv"), "the folder 'nowhere' does not exist"),
        (("flops", "--picture", "flops.pdf"), "picture is 'flops.pdf': its name must end in .png or .svg"),
        (("flops", "--csv", "flops.csv", "--picture", "nowhere/flops.png"), "picture is 'nowhere/flops.png'"),
        (("flops", "--csv", "flops.csv", "--attention", "softmx"), "did you mean 'softmax'"),
        (("runs",), "folder is 'runs': it must be a folder of runs"),
        (("runs", "/dev/null"), "folder is '/dev/null': it must be a folder, and is a file"),
        (("rollout", "oracle", "--video", "walk.avi"), ".mp4"),
        (("rollout", "oracle", "--video", "nowhere/walk.mp4"), "nowhere"),
        (("rollout", "oracle", "--video", "walk.mp4", "--size", "321", "240"), "size"),
        (("rollout", "oracle"), "give video, sheet or rerun"),
        (("rollout", "--video", "walk.mp4"), "players is 0 players"),
        (("rollout", *["random"] * 10, "--video", "walk.mp4"), "players is 10 players"),
        (("rollout", *["random"] * 2, "--sheet", "a.png"), "'random' twice: each must have its own name\n"),
        (("rollout", "oracle", "--sheet", "walk.jpg"), ".png"),
        (("rollout", "oracle", "--rerun", "walk.mp4"), ".rrd"),
        (("rollout", "oracle", "--sheet", "walk.png", "--size", "6000", "240"), "size is (6000, 240)"),
        (("rollout", "oracle", "--video", "walk.mp4", "--slow", "0.5"), "slow is 0.5"),
        (("rollout", "oracle", "--video", "walk.mp4", "--slow", "nan"), "slow is nan"),
        (("rollout", "oracle", "nobody", "--video", "walk.mp4"), "run is 'nobody'"),
        (
            ("rollout", "stepping-stones-softmax", "bimanual-sweep-angular", "--video", "walk.mp4"),
            "task is 'stepping-stones'",
        ),
        (("export", "nobody", "--out", "bundle"), "run is 'nobody'"),
        (
            ("export", "stepping-stones-softmax", "--out", "bundle", "--observations", "0"),
            "observations is 0",
        ),
        (("verify", "bundle"), "no bundle at 'bundle'"),
        (("verify", "."), "SHA256SUMS' is missing"),
        (("deploy", "bundle"), "no bundle at 'bundle'"),
        (("evaluate", "oracle", "--env", ".x:Foo-v0"), "task is '.x:Foo-v0': it must be one of"),
        (("evaluate", "oracle", "--episodes", "x"), "--episodes is 'x': it must be a whole number"),
        (("grid", "table", "--seeds", "0", "1.5"), "--seeds is '0', '1.5': it must be whole numbers (see"),
        (("grid", "table", "--advance-at", "x"), "--advance-at is 'x': it must be numbers (see --help)"),
        (("rollout", "oracle", "--size", "640", "x"), "--size is '640', 'x': it must be whole numbers"),
        (("evaluate", "oracle", "--drift", "x"), "--drift is 'x': it must be a number (see --help)"),
        (("deploy", "bundle", "--robot", "spot"), "robot is 'spot'"),
        (("deploy", "bundle", "--robot", "go2", "--pace", "0.5"), "pace is 0.5: the robot go2 has no such"),
        (("deploy", "bundle", "--robot", "go2-sim", "--wait"), "wait is True: the robot go2-sim has no such"),
        (("evaluate", ""), "run is '': it must be a run folder or a shipped policy"),
        (("evaluate", "@best"), "run is '': it must be a run folder or a shipped policy"),
        (("deploy", "bundle", "--interface", "eth0"), "interface is 'eth0': the robot sim has no such"),
        (("deploy", "bundle", "--robot", "go2"), "interface is missing"),
        (("deploy", "bundle", "--seconds", "0"), "seconds is 0"),
        (("deploy", "bundle", "--seconds", "nan"), "seconds is nan"),
        (("deploy", "bundle", "--episodes", "0"), "episodes is 0"),
        (
            ("deploy", "bundle", "--episodes", "2", "--seconds", "3"),
            "seconds is 3.0 and episodes 2",
        ),
        (("deploy", "bundle", "--misses", "0"), "misses is 0"),
        (("deploy", "bundle", "--seed", "-1"), "seed is -1"),
        (("deploy", "bundle", "--port", "8000"), "port is 8000: it needs --wait"),
        (("deploy", "bundle", "--host", "0.0.0.0"), "host is '0.0.0.0': it needs --wait"),
        (("deploy", "bundle", "--robot", "go2-sim", "--port", "5"), "port is 5: the robot go2-sim has no"),
        (("deploy", "bundle", "--wait", "--port", "70000"), "port is 70000"),
        (("deploy", "bundle", "--engine", "bulet"), "did you mean 'bullet'?"),
    ],
)
def test_bad_input_is_one_line_that_names_it(refused, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused(*words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", SHIPPED),
        ("rollout", SHIPPED, "--video", "walk.mp4"),
        ("compare", SHIPPED, "stepping-stones-planned"),
        ("report", SHIPPED, "--out", "report.html"),
    ],
)
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--engine", "MuJoCo"), "engine is 'MuJoCo'"),
        (("--preset", "papr"), "preset is 'papr'"),
        (("--episode-seconds", "-1"), "episode_seconds is -1.0"),
    ],
)
def test_settings_are_refused_before_a_policy_is_converted(refused, tmp_path, monkeypatch, words, more, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("robopolicy.bundles.onnx.export_policy", None)
    assert said in refused(*words, *more)


def test_a_budget_below_a_step_without_attention_is_refused_before_frames_are_recorded(refused, monkeypatch):
    monkeypatch.setattr("robopolicy.experiments.recorded_heads.recorded_heads", None)
    said = refused("plan", "--tokens", "96", "--budget", "1")
    assert "budget is 1: it must be above " in said


@pytest.mark.parametrize(
    ("names", "given", "chosen"),
    [
        (["stepping-stones-softmax"], (None, None), ("stepping-stones", "mujoco")),
        (["oracle", "bimanual-sweep-angular"], (None, None), ("bimanual-sweep", default_engine())),
        (["stepping-stones-softmax"], (None, "bullet"), ("stepping-stones", "bullet")),
        (["oracle"], (None, None), ("stepping-stones", default_engine())),
        (["blind"], ("bimanual-sweep", "mujoco"), ("bimanual-sweep", "mujoco")),
    ],
)
def test_a_run_is_played_on_its_own_task_and_engine(names, given, chosen):
    environment = played_on(names, *given)
    assert (environment.task, environment.engine) == chosen


def test_long_foreign_text_is_shortened_and_has_no_control_characters(refused, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"task": "x\x1b[2J" * 1000, "policy": {}, "es": {}}))
    line = refused("plot", str(tmp_path), "--out", str(tmp_path / "curves.svg"))
    assert line.startswith(f"robopolicy: task of the run {str(tmp_path)!r} is 'x")
    assert line.endswith("it must be one of stepping-stones, bimanual-sweep, module:Name-v0\n")
    assert len(line) < 1050
    assert line[:-1].isprintable()


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ((), ""),
        (("evaluate", "oracle", "--task"), "task is"),
        (("evaluate", "oracle", "--episodes"), "--episodes"),
        (("flops", "--attention"), "attention"),
        (("plot", "--out", "curves.svg"), ""),
        (("plot", "oracle", "--out"), "out is"),
        (("verify",), "no bundle at"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["x" * 5000, "x/" * 2500, "x " * 2500], ids=["word", "path", "words"])
def test_a_name_of_thousands_of_characters_is_shortened(refused, words, argument, name):
    said = refused(*words, name)
    assert argument in said
    assert len(said) < 2500


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--attention", "softmx"), "did you mean 'softmax'"),
        (("--strategy", "pgpe", "--population", "7"), "population is 7"),
        (("--population", "0"), "population is 0"),
        (("--generations", "0"), "generations is 0"),
        (("--strategy", "opn_es"), "did you mean 'open_es'?"),
        (("--workers", "0"), "workers is 0"),
        (("--workers", "100000"), "workers is 100000: it must be a whole number from 1 to "),
        (("--population", "1000000000000"), "population is 1000000000000: a generation of 258 parameters"),
        (("--held-out", "1001"), "held_out is 1001: it must be a whole number from 1 to 1000"),
        (("--episodes", "10000000000"), "held_out is 20: what their episodes return needs 120,000 GB"),
        (
            ("--attention", "positive(m=100000000000)"),
            "m is '100000000000'; it must be a positive integer of",
        ),
        (
            ("--attention", "softmax", "--evaluator", "vector", "--places", "1000000000"),
            "places is 1000000000",
        ),
        (("--episode-seconds", "0"), "episode_seconds is 0"),
        (("--preset", "painted", "painted"), "painted, painted"),
        (("--preset", "painted", "--preset", "paper"), "--preset is given 2 times"),
        (("--preset", "--cameras", "front"), "--preset is empty: it needs one or more values"),
        (("--preset=painted", "--preset", "paper"), "--preset is given 2 times"),
        (("--advance_at", "--preset", "paper"), "--advance-at is empty"),
        (("--cameras",), "--cameras is empty"),
        (
            ("--preset", "painted", "paper", "--advance-at", "1", "2"),
            "advance_at",
        ),
        (("--engine", ""), "--engine is '': it must not be empty"),
        (("--variant", "msk"), "did you mean 'mask'?"),
        (("--evaluator", "cloud"), "evaluator is 'cloud'"),
        (("--evaluator", "locl"), "did you mean 'local'?"),
        (("--evaluator", "ray", "--address", "127.0.0.1:1"), NO_CLUSTER),
        (("--address", "127.0.0.1:1"), "only the evaluator ray takes one"),
        (("--evaluator", "vector", "--places", "0"), "places is 0"),
        ((*DEVICE, "--places", "0"), "places is 0"),
        (("--engine", "mujoco", "--places", "4"), "places is 4: the processes of local play one episode at"),
        (
            (*DEVICE, "--device", "cpu", "--places", "1025"),
            "places is 1025: on a CPU it must be from 1 to 1024",
        ),
        ((*DEVICE, "--engine", "mujoco"), "engine is 'mujoco': the evaluator device has 'jax'"),
        ((*DEVICE, "--strategy", "evojax_cma_es"), "strategy is 'evojax_cma_es': the evaluator device comp"),
        ((*DEVICE, "--device", "tpu"), "device is 'tpu': JAX finds"),
        ((*DEVICE, "--device", "gpus"), "did you mean 'gpu'?"),
        (("--device", "gpu"), "only the evaluator device takes one"),
        (("--deadline", "0"), "deadline is 0"),
        (("--deadline", "inf"), "deadline is inf"),
        (("--seed", "99999999999999999999"), "seed is 99999999999999999999"),
        (("--shaping", "rank"), "did you mean 'ranks'?"),
        (("--decay", "0"), "decay is 0"),
        (("--stop-at", "nan"), "stop_at is nan"),
        (("--wandb", "project", "--population", "1"), "population is 1"),
        (("--seed", "-2"), "seed is -2"),
        (("--sigma", "0"), "sigma is 0"),
        (("--resume",), "no run"),
    ],
)
def test_bad_settings_are_refused_before_the_run_folder_is_made(refused, tmp_path, words, said):
    assert said in refused("train", "es", "--out", str(tmp_path / "run"), *words)
    assert not list(tmp_path.iterdir())


def test_existing_folders_are_not_overwritten(refused, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years")
    assert "--resume" in refused("train", "es", "--out", str(tmp_path / "run"))
    assert "exists" in refused("export", str(tmp_path / "run"), "--out", str(tmp_path / "run"))
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("part", "name", "value", "said"),
    [
        ("es", "population", "x", "population is 'x': it must be of type int"),
        ("es", "episodes", "3", "episodes is '3': it must be of type tuple[int, ...]"),
        ("es", "episodes", ["3"], "episodes is ('3',): it must be of type tuple[int, ...]"),
        ("es", "advance_at", 3.85, "advance_at is 3.85: it must be of type tuple[float, ...]"),
        ("es", "stop_at", "never", "stop_at is 'never': it must be of type float | None"),
        ("es", "seed", 1.5, "seed is 1.5: it must be of type int"),
        ("es", "stop_at", 10**400, "stop_at is 1000"),
        ("es", "advance_at", [10**400], "advance_at is "),
        ("es", "generations", True, "generations is True: it must be of type int"),
        ("es", "population", 0, "population is 0"),
        ("environment", "presets", "paper", "presets is 'paper': it must be of type tuple[str, ...]"),
        ("environment", "engine", 2, "engine is 2: it must be of type str"),
        ("policy", "attention", 1, "attention is 1: it must be of type str"),
        ("policy", "normalise", 1, "normalise is 1: it must be of type bool"),
        (None, "task", 5, "task is 5: it must be of type str"),
        (None, "task", "this:Poem-v0", "import this first, or give --env this:Poem-v0"),
        (None, "es", [], "config.json is not of a run: it has no settings of es"),
        (None, "environment", "paper", "config.json is not of a run: it has no settings of environment"),
        (None, "policy", {"patch": 4}, "policy kind is None"),
    ],
)
def test_a_damaged_run_is_not_resumed(refused, tmp_path, part, name, value, said):
    config = {
        "task": "stepping-stones",
        "environment": {"engine": "bullet", "presets": ["painted"], "episode_seconds": 0.5},
        "policy": describe(policy_config("softmax", "stepping-stones", patch=4)),
        "es": {"population": 2, "episodes": [1], "advance_at": []},
    }
    (config if part is None else config[part])[name] = value
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    line = refused("train", "es", "--out", str(tmp_path), "--resume")
    assert said in line
    assert str(path) in line or "of type" not in said
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    "words",
    [("train", "bc", "--data", "arm", "--out", "run"), ("convert", "arm", "--out", "arm-v0")],
    ids=" ".join,
)
def test_without_pyarrow_a_lerobot_dataset_names_the_extra(refused, monkeypatch, tmp_path, words):
    theirs = (
        "robopolicy.training.lerobot.",
        "robopolicy.experiments.conversion",
        "robopolicy.experiments.recorded",
    )
    for name in [name for name in sys.modules if name.startswith(theirs)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.chdir(tmp_path)
    info = tmp_path / "arm" / "meta" / "info.json"
    info.parent.mkdir(parents=True)
    info.write_text("{}")
    assert "pyarrow" in (line := refused(*words))
    assert line.endswith("; install the extra lerobot: pip install '.[all,lerobot]'\n")
