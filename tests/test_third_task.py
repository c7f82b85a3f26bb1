"""A task that the package does not know goes through every command, and through the same calls in Python."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest

import robopolicy
from robopolicy.cli import main
from robopolicy.experiments.evaluators import EvaluatorConfig

ARM = "planar_arm:PlanarArm-v0"
SHORT = "--population 4 --generations 2 --held-out 2 --workers 1"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(once):
    """A folder with demonstrations of the arm, a run of each trainer, and a bundle."""

    def make(folder):
        commands = (
            f"demos --env {ARM} --episodes 8 --workers 1 --out {folder}/arm-v0",
            f"train es --env {ARM} --attention positive(m=8) {SHORT} --out {folder}/es",
            f"train bc --env {ARM} --data {folder}/arm-v0 --preset tiny --steps 20 --batch 8 --rollouts 2 "
            f"--workers 1 --out {folder}/bc",
            f"export {folder}/es --observations 20 --out {folder}/bundle",
        )
        for command in commands:
            assert main(command.split()) == 0, command

    import_module("planar_arm")  # another process may have made the folder
    return once("arm", make)


@pytest.mark.parametrize(
    "words",
    [
        "evaluate RUN --episodes 2",
        f"evaluate oracle --env {ARM} --episodes 2",
        "rollout RUN oracle --video OUT/arm.mp4 --size 320 240",
        "rollout CLONE --sheet OUT/arm.png --size 320 240",
        "flops RUN CLONE --per-second",
        f"flops --env {ARM}",
        f"plan --env {ARM} --policy RUN --budget 100000000",
        "compare RUN CLONE --episodes 2",
        "train es --resume --generations 3 --workers 1 --out COPY",
        "inspect DATA --episode 1 --sheet OUT/episode.png",
        "report CLONE --episodes 1 --no-video --out OUT/page.html",
        "deploy BUNDLE --robot sim --episodes 1",
    ],
)
def test_a_command_accepts_it(folder, tmp_path, fewer_plans, capsys, words):
    if "COPY" in words:
        shutil.copytree(folder / "es", tmp_path / "es")
    places = {
        "RUN": folder / "es",
        "CLONE": folder / "bc",
        "DATA": folder / "arm-v0",
        "BUNDLE": folder / "bundle",
        "COPY": tmp_path / "es",
        "OUT": tmp_path,
    }
    line = re.sub("|".join(places), lambda name: str(places[name[0]]), words)
    assert main(line.split()) == 0, capsys.readouterr().err


def test_a_dataset_that_does_not_say_its_task(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent / "envs")  # of the task of another arm
    foreign = Path(shutil.copytree(folder / "arm-v0", tmp_path / "arm-v0"))
    file = foreign / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    del metadata["robopolicy"]
    file.write_text(json.dumps(metadata))
    for words, said in (
        (f"inspect {foreign}", "does not say its task"),
        (
            f"train bc --data {foreign} --env toy_arm:Arm-v0 --out {tmp_path}/run",
            "it has camera [24, 32, 3], and ",
        ),
    ):
        assert main(words.split()) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    words = (
        f"inspect {foreign} --env {ARM} --episode 1 --sheet {tmp_path}/sheet.png --video {tmp_path}/film.mp4"
    )
    assert main(words.split()) == 0, capsys.readouterr().err


def test_the_oracle_does_it_and_an_action_of_zeros_does_not(capsys):
    rates = {}
    for player in ("oracle", "blind"):
        assert main(["evaluate", player, "--env", ARM, "--episodes", "20", "--json"]) == 0
        rates[player] = json.loads(capsys.readouterr().out)["success_rate"]
    assert rates["oracle"] >= 0.8
    assert rates["blind"] == 0.0


def test_a_bundle_of_it_verifies(folder):
    assert main(["verify", str(folder / "bundle"), "--calls", "50"]) in (0, 1)  # 1: the machine is too slow


def test_workers_do_not_run_the_script_that_trains(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        f"import robopolicy\n"
        f"print('once')\n"
        f"policy = robopolicy.new_policy({ARM!r}, 'positive(m=4)')\n"
        f"config = robopolicy.ESConfig(generations=1, population=2, held_out=1)\n"
        f"robopolicy.train_es(policy, {ARM!r}, config, out={str(tmp_path / 'run')!r}, workers=2)\n"
    )
    path = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, str(script)], env=path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "once\n"), done.stderr


def test_python_does_what_commands_do(folder, tmp_path):
    env = robopolicy.make(ARM)
    policy = robopolicy.new_policy(env, attention="positive(m=8)", hidden=8)
    config = robopolicy.ESConfig(generations=1, population=4, held_out=2)
    run = robopolicy.train_es(policy, ARM, config, out=tmp_path / "run", workers=1)
    trained = robopolicy.load(run.folder)
    evaluation = robopolicy.evaluate(trained, env, seeds=range(2))
    assert 0.0 <= evaluation.success_rate <= 1.0
    robopolicy.film(
        [trained, "oracle", lambda seen: policy.act(seen)], env, tmp_path / "arm.mp4", size=(320, 240)
    )
    assert (tmp_path / "arm.mp4").stat().st_size > 0
    assert robopolicy.flops(trained).total > 0
    robopolicy.export(policy, env, tmp_path / "bundle", observations=5)  # it has no run
    assert main(["flops", str(tmp_path / "bundle")]) == 0
    config = robopolicy.BCConfig(steps=4, batch=8, validate_every=4, mirror=False)
    data, playing = folder / "arm-v0", replace(config, rollouts=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvaluatorConfig, "make", Mock(side_effect=RuntimeError("no worker")))
        with pytest.raises(RuntimeError, match="no worker"):
            robopolicy.train_bc("positive(m=8)", data, playing, out=tmp_path / "none", preset="tiny")
    assert not (tmp_path / "none").exists()
    clone = robopolicy.train_bc("positive(m=8)", data, config, out=tmp_path / "clone", preset="tiny")
    assert robopolicy.evaluate(clone.policy(), env, seeds=range(1)).returns.shape == (1,)
