"""Bundles of the shipped policies: what is written is what was trained, in physical units."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from installed_compilers import needs_compiler

from robopolicy.bundles.outputs import OUTPUTS
from robopolicy.bundles.readme import readme
from robopolicy.cli import main
from robopolicy.envs.registry import TASKS
from robopolicy.envs.task import task_of
from robopolicy.experiments.exporting import export as export_policy
from robopolicy.experiments.runs import find_run, load
from robopolicy.policies.base import parameter_count, unflatten
from robopolicy.policies.catalogue import functions_of
from robopolicy.policies.policy import Policy
from robopolicy.policies.vision_performer_config import ImageInput, VectorInput, VisionPerformerConfig
from robopolicy.runtime import BundlePolicy
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.golden import read_golden

SHIPPED = {"stepping-stones": "stepping-stones-planned", "bimanual-sweep": "bimanual-sweep-angular"}
OBSERVATIONS = {"stepping-stones": 240, "bimanual-sweep": 16}
FILES = ["README.md", "SHA256SUMS", "golden.npz", "manifest.json", "policy.c", "policy.h", "policy.onnx"]
FILES += ["policy.stablehlo"]


@pytest.fixture(scope="module", params=SHIPPED)
def exported(request, tmp_path_factory):
    """Task, and its bundle of a few observations."""
    folder = tmp_path_factory.mktemp("exported") / "bundle"
    assert main(export(request.param, folder)) == 0
    return request.param, folder


def export(task, folder):
    return ["export", SHIPPED[task], "--out", str(folder), "--observations", str(OBSERVATIONS[task])]


@pytest.mark.slow
def test_its_command_is_the_action_of_the_trained_policy_in_physical_units(exported):
    task, folder = exported
    trained = load(SHIPPED[task])
    tree = unflatten(trained.functions)(trained.parameters)
    act = jax.jit(trained.functions.act)
    policy = BundlePolicy.load(folder)
    scale = [0.15] * 4 if task == "stepping-stones" else [*[0.04] * 3, *[0.2] * 3] * 2
    commands = []
    for observation, recorded in read_golden(open_bundle(folder)):
        action = np.asarray(act(tree, trained.features, observation, ())[0])
        commands.append(policy.act(observation))
        np.testing.assert_allclose(commands[-1], np.array(scale) * action, atol=1e-5)
        np.testing.assert_allclose(recorded["command"], np.array(scale) * action, atol=1e-5)
    assert len(commands) == OBSERVATIONS[task]
    assert len(np.unique(commands, axis=0)) > 1


@pytest.mark.slow
def test_an_interrupt_ends_a_drive_with_its_summary(exported):
    words = [sys.executable, "-u", "-m", "robopolicy", "deploy", str(exported[1]), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driving:
        said = []
        while "connected" not in "".join(said[-1:]):
            said.append(driving.stderr.readline())
            assert driving.poll() is None, said
        time.sleep(1.0)  # s, of the drive
        driving.send_signal(signal.SIGTERM)  # acts as Ctrl-C, which a background process may ignore
        out, rest = driving.communicate(timeout=60)
    assert driving.returncode == 130
    summary = json.loads(out)
    assert summary["stopped"] == summary["played"][-1]["cause"].removeprefix("stopped: ") == "interrupted"
    assert rest.count("robopolicy: interrupted") == 1
    assert "Traceback" not in rest


@pytest.mark.slow
def test_readings_beyond_the_reach_of_training_are_clipped_inside(exported):
    task, folder = exported
    policy = BundlePolicy.load(folder)
    observation = {name: array.copy() for name, array in next(read_golden(open_bundle(folder)))[0].items()}
    if task == "stepping-stones":
        observation["front_depth"][:3] = 2.0
        near = policy.run(observation)["scores"]
        observation["front_depth"][:3] = 60.0
        np.testing.assert_array_equal(policy.run(observation)["scores"], near)
        observation["front_depth"][:3] = 400.0  # millimetres
        with pytest.raises(ValueError, match="it must be a number from 0 to 100"):
            policy.act(observation)
        observation["front_depth"][:3] = 0.0
        observation["proprioception"][0] = 5.0  # degrees
        with pytest.raises(ValueError, match="'roll' is 5 rad"):
            policy.act(observation)
    else:
        observation["poses"][0] = 340.0
        with pytest.raises(ValueError, match="'left_x' is 340 m"):
            policy.act(observation)


@pytest.mark.slow
@needs_compiler
def test_c_gives_the_recorded_outputs(exported, capsys):
    _, folder = exported
    words = ["verify", str(folder), "--runtime", "c", "--calls", "3", "--json"]
    assert main(words) in (0, 1)  # latency is not the question
    told = json.loads(capsys.readouterr().out)
    assert told["same"]
    assert told["c"]["outputs"] == told["c"]["expected"]
    assert told["differences"]["scores"] <= 1e-4


@pytest.mark.slow
def test_stablehlo_gives_the_recorded_outputs(exported):
    _, folder = exported
    called = jax.export.deserialize((folder / "policy.stablehlo").read_bytes())
    assert called.platforms == ("cpu", "cuda")
    for number, (observation, recorded) in enumerate(read_golden(open_bundle(folder))):
        made = called.call(*(observation[name] for name in sorted(observation)))
        for found, name in zip(made, ("command", "action", "scores"), strict=True):
            np.testing.assert_allclose(found, recorded[name], atol=1e-4, err_msg=name)
        if number == 3:
            break


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(exported, monkeypatch):
    """Recorded by one process or by three, into the folder of another name."""
    task, folder = exported
    again = folder.parent / "again"
    monkeypatch.setattr("os.cpu_count", lambda: 3 if task == "stepping-stones" else 1)
    assert main(export(task, again)) == 0
    assert sorted(path.name for path in again.iterdir()) == FILES
    for name in FILES:
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name
    assert sorted(path.name for path in folder.parent.iterdir()) == ["again", "bundle"]


@pytest.mark.slow
def test_its_manifest_and_readme_describe_all_that_a_robot_needs(exported):
    task, folder = exported
    described = json.loads((folder / "manifest.json").read_text())
    page = (folder / "README.md").read_text()
    for part in (*described["inputs"].values(), *described["outputs"].values()):
        for one in part.get("entries", [part]):
            assert one["low"] < one["high"]
            assert one["unit"]
            assert "entries" not in part or f"`{one['name']}`" in page
    assert f"Robot: {described['robot']['name']}." in page
    assert "intrinsics" in page
    assert "intrinsics" not in readme({**described, "cameras": {}})
    assert "no stored evaluation of this policy" in readme({**described, "evaluation": {}})
    bare = {name: described["robot"][name] for name in ("name", "safe_stop")}
    assert "## Robot" not in readme({**described, "cameras": {}, "robot": bare})
    card = yaml.safe_load(page.split("---\n")[1])
    assert card["library_name"] == "robopolicy"
    assert {"robotics", task, "onnx"} <= set(card["tags"])
    measured = {m["type"]: m["value"] for r in card["model-index"][0]["results"] for m in r["metrics"]}
    assert measured["success_rate"] in [one["success_rate"] for one in described["evaluation"].values()]
    assert described["control_period"] == (0.05 if task == "stepping-stones" else 0.1)
    assert len(described["robot"]["joint_order"]) == len(described["robot"]["default_pose"]["joints"])
    assert sum(described["flops"]["by_component"].values()) == described["flops"]["total"]
    joints = described["robot"]["joint_order"]
    for name in (*joints, described["attention"], *described["inputs"], "safe stop"):
        assert name.lower() in page.lower()
    assert {"robopolicy", "jax", "jax2onnx", "onnxruntime", "numpy"} <= described["versions"].keys()
    assert described["evaluation"]["bullet"]["episodes"] >= 50
    assert described["training"]["records"] > 1
    assert described["run"]["git"]["commit"]


@pytest.mark.parametrize("name", [*OUTPUTS, "parameters", "normaliser"])
def test_an_observation_has_no_name_of_another_part_of_a_graph(tmp_path, name):
    clone = VisionPerformerConfig("none", (ImageInput("image", 25, 25),), (VectorInput(name, 3),), 2)
    arrays = {f"{name}_{n}": np.zeros(3, np.float32) for n in ("shift", "scale")}
    arrays |= {f"action_{n}": np.zeros(2, np.float32) for n in ("low", "high")}
    functions = functions_of(clone, arrays)
    features = jax.tree.map(jnp.zeros_like, jax.eval_shape(functions.init_features, jax.random.key(0)))
    policy = Policy(clone, np.zeros(parameter_count(functions), np.float32), features, "mine")
    with pytest.raises(ValueError, match=f"^an observation is called '{name}': graphs have action, .*$"):
        export_policy(policy, None, tmp_path / "bundle")


def test_its_evaluation_is_of_its_checkpoint(tmp_path, monkeypatch):
    run = shutil.copytree(find_run(SHIPPED["stepping-stones"])[0], tmp_path / "run")
    kept = json.loads((run / "evaluation.json").read_text())
    (last,) = (int(path.name) for path in (run / "checkpoints").iterdir())
    kept["bullet"]["checkpoint"], kept["mujoco"]["checkpoint"] = last, last - 1
    (run / "evaluation.json").write_text(json.dumps(kept))
    monkeypatch.setattr("robopolicy.experiments.exporting.write_bundle", lambda *parts: parts[-1])
    lines = []
    used = {str(run): ["bullet"], f"{run}@{last}": ["bullet"], f"{run}@best": []}
    for name, engines in used.items():
        about = export_policy(name, None, tmp_path / "bundle", say=lines.append)
        assert list(about["evaluation"]) == engines
    said = f"{run}: its evaluation on mujoco is left out: it is of checkpoint {last - 1}, not {last}"
    assert (lines[0], len(lines)) == (said, 4)


def test_a_bundle_says_which_policy_of_a_run_it_holds(tmp_path, monkeypatch):
    run = shutil.copytree(find_run("stepping-stones-front-no-memory")[0], tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"generation": 26}\n')  # after the last checkpoint
    monkeypatch.setattr("robopolicy.experiments.exporting.write_bundle", lambda *parts: parts[-1])
    for name, last in (("run", 25), ("run@25", 25), ("run@best", None)):
        about = export_policy(str(tmp_path / name), None, tmp_path / "bundle")
        assert about["name"] == name
        assert about["training"]["last"].get("generation") == last
        assert about["training"]["records"] == (0 if last is None else 26)


def test_a_policy_that_was_changed_after_it_was_loaded_has_no_figures_of_its_run(monkeypatch, tmp_path):
    loaded = load("stepping-stones-front-no-memory")
    level = {name: array + 1 for name, array in loaded.features["level"].items()}
    monkeypatch.setattr("robopolicy.experiments.exporting.write_bundle", lambda *parts: parts[-1])
    for changes, has_figures in (
        ({}, True),
        ({"parameters": 0 * loaded.parameters}, False),
        ({"features": {**loaded.features, "level": level}}, False),
    ):
        about = export_policy(replace(loaded, **changes), None, tmp_path / "bundle")
        assert bool(about["evaluation"]) == bool(about["training"]["records"]) == has_figures


def test_numbers_of_a_run_that_are_not_finite_are_left_out(tmp_path, monkeypatch):
    run = shutil.copytree(find_run(SHIPPED["stepping-stones"])[0], tmp_path / "run")
    (run / "metrics.jsonl").write_text('{"generation": 35, "return_mean": NaN, "best": -Infinity}\n')
    kept = json.loads((run / "evaluation.json").read_text())
    kept["bullet"]["distance_mean"], kept["bullet"]["causes"]["fall"] = float("inf"), float("nan")
    (run / "evaluation.json").write_text(json.dumps(kept))
    monkeypatch.setattr("robopolicy.experiments.exporting.write_bundle", lambda *parts: parts[-1])
    about = export_policy(str(run), None, tmp_path / "bundle")
    assert about["training"]["last"] == {"generation": 35}
    assert not {"distance_mean", "causes"} & about["evaluation"]["bullet"].keys()
    json.dumps(about, allow_nan=False)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("evaluation.json", {"mujoco": {}}, "evaluation.json' is no evaluation: episodes is None: it"),
        ("evaluation.json", {"mujoco": {"episodes": 2, "preset": 5}}, "preset is 5: it must be text$"),
        ("metrics.jsonl", 5, r"^line 1 of '.*metrics.jsonl' is no record of a generation$"),
        ("config.json", {"limit": float("inf")}, "cannot hold its run's config.json: .*not JSON compliant"),
    ],
)
def test_a_damaged_file_of_a_run_is_refused_at_once(tmp_path, file, content, words):
    run = shutil.copytree(find_run("stepping-stones-front-no-memory")[0], tmp_path / "run")
    if file == "config.json":
        content = json.loads((run / file).read_text()) | content
    (run / file).write_text(json.dumps(content) + "\n")
    with pytest.raises(ValueError, match=words):
        export_policy(str(run), None, tmp_path / "bundle", on_begin=pytest.fail)


def test_a_policy_that_no_bundle_can_hold_is_refused_at_once(tmp_path):
    trained = load(SHIPPED["stepping-stones"])
    spoilt = trained.parameters.copy()
    spoilt[9] = np.nan
    for policy, words in (
        (replace(trained, name="odd\udcff"), r"'odd\\udcff': its name must be text that UTF-8 can encode$"),
        (replace(trained, parameters=spoilt), r"': its parameters must be finite, and some are not$"),
    ):
        with pytest.raises(ValueError, match=words):
            export_policy(policy, "stepping-stones", tmp_path / "bundle", on_begin=pytest.fail)


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    for name, words in (
        ("link", "link' is a link to 'nowhere', which is not there$"),
        ("link/new", "link' is a link to 'nowhere', which is not there$"),
        (245 * "x", r"nothing can be written there \(File name too long\)$"),
        ("new/" + 245 * "x", r"nothing can be written there \(File name too long\)$"),
    ):
        with pytest.raises(ValueError, match=words):
            export_policy("stepping-stones-planned", None, tmp_path / name, on_begin=pytest.fail)


TIGHT = dict.fromkeys(("command", "action", "scores"), 1e-30)


@pytest.mark.slow
def test_a_graph_that_differs_is_not_shipped(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("robopolicy.bundles.bundle.TOLERANCES", TIGHT)
    words = ["export", "stepping-stones-planned", "--out", str(tmp_path / "bundle"), "--observations", "2"]
    assert main(words) == 1
    assert "ONNX differs from JAX" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_example_of_a_robot_of_ones_own_runs(exported, request):
    task, folder = exported
    if task != "stepping-stones":
        pytest.skip("the example is a legged robot")
    words = [sys.executable, str(request.config.rootpath / "examples" / "own_robot.py"), str(folder)]
    run = subprocess.run([*words, "--seconds", "0.5"], capture_output=True, text=True, timeout=120)
    assert "10 steps of 50 ms" in run.stdout, run.stderr
    assert "stands" in run.stdout


@pytest.mark.parametrize("task", SHIPPED)
def test_observations_lie_within_the_described_limits(task):
    env = gymnasium.make(TASKS[task])
    described = task_of(env).describe()
    json.dumps(described, allow_nan=False)
    observation, _ = env.reset(seed=0)
    for _ in range(10):
        assert described["inputs"].keys() == observation.keys()
        for name, array in observation.items():
            entries = described["inputs"][name].get("entries", [described["inputs"][name]])
            for number, one in enumerate(entries):
                values = array[number] if len(entries) > 1 else array
                assert np.all(values >= one["low"])
                assert np.all(values <= one["high"])
        observation, *_ = env.step(env.unwrapped.oracle_action())
    env.close()
