"""`robopolicy inspect`, on runs and bundles; what it says of datasets is tested beside them."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import robopolicy
from robopolicy.cli import main

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from toy_bundle import make_bundle, manifest

SHIPPED = "stepping-stones-softmax"
FOLDER = Path(robopolicy.__file__).parent / "assets" / "policies" / SHIPPED


def result_of(capsys, *words):
    capsys.readouterr()
    assert main(["inspect", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def printed(capsys, *words):
    capsys.readouterr()
    assert main(["inspect", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_a_run_lists_its_parameters_by_name_and_shape(capsys):
    run = result_of(capsys, SHIPPED)
    assert (run["kind"], run["status"], run["done"], run["total"]) == ("run", "finished", 40, 80)
    sizes = [len(p["shape"]) and p["shape"][0] * (p["shape"] + [1])[1] for p in run["parameters"].values()]
    assert sum(sizes) == run["parameter_count"] == 392
    assert all(p["rms"] > 0 for p in run["parameters"].values())
    assert run["features"]["level/front_depth"] == [24, 32]
    assert run["flops"] == 1742988
    assert list(run["checkpoints"]) == ["40"]
    assert run["records"] == 41
    held_out = run["metrics"]["held_out/return"]
    assert held_out["last"] == pytest.approx(run["best"])
    assert held_out["least"] <= held_out["first"] < held_out["most"] == held_out["last"]
    assert run["config"]["policy"]["attention"] == "softmax"
    assert run["written"] is None  # the package is installed later than its policies were trained


def test_the_text_has_the_numbers_of_the_json(capsys):
    run, out = result_of(capsys, f"{SHIPPED}@best"), printed(capsys, f"{SHIPPED}@best")
    for words in ("finished at generation 40 of 80", "1,742,988", "parameters of best: 392", "softmax"):
        assert words in out
    for name, parameter in run["parameters"].items():
        assert any(
            line.split()[:1] == [name] and f"{parameter['rms']:.3g}" in line for line in out.splitlines()
        )


def test_a_run_without_a_checkpoint_is_shown(capsys, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(FOLDER / "config.json", run)
    assert result_of(capsys, run)["status"] == "starting"
    assert "checkpoints   none yet" in printed(capsys, run)


def test_a_bundle_lists_its_inputs_and_outputs_with_units(capsys, tmp_path):
    bundle = make_bundle(tmp_path / "bundle", attention="soft\x1b[2Jmax", flops={"total": 12345})
    seen = result_of(capsys, bundle)
    assert seen["kind"] == "bundle"
    assert seen["control_period"] == 0.02
    for part in ("inputs", "outputs"):
        assert seen[part].keys() == manifest()[part].keys()
    assert seen["inputs"]["felt"]["units"] == ["rad", "rad"]
    assert seen["outputs"]["command"]["high"] == [0.3, 0.3]
    out = printed(capsys, bundle)
    for words in ("20 ms", "all 5 files are as SHA256SUMS lists them", "12,345", "left", "rad"):
        assert words in out
    assert "\x1b" not in out


def test_a_bundle_that_was_changed_is_refused(refused, tmp_path):
    bundle = make_bundle(tmp_path / "bundle")
    (bundle / "README.md").write_text("other words")
    assert "it was changed or damaged" in refused("inspect", str(bundle))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"{", "is not JSON"),
        ("config.json", b'{"es": {"generations": 80}}', "describes no policy"),
        ("metrics.jsonl", b"{}\n", "is no record of a generation"),
        ("metrics.jsonl", b'{"generation": 0, "x": 1' + b"0" * 400 + b"}\n", "metrics.jsonl': x is 1000"),
        ("checkpoints/40/index/metadata", b"", "checkpoints/40 cannot be read"),
        ("checkpoints/40/arrays/manifest.ocdbt", b"x" * 99, "checkpoints/40"),
    ],
)
def test_a_damaged_run_is_one_line(refused, tmp_path, name, content, said):
    run = Path(shutil.copytree(FOLDER, tmp_path / "run"))
    (run / name).write_bytes(content)
    line = refused("inspect", str(run))
    assert said in line
    assert str(run) in line


def test_a_run_whose_name_looks_like_an_ending_is_read(capsys, tmp_path):
    run = shutil.copytree(FOLDER, tmp_path / "a@3")
    for ending, which in (("", "last"), ("@best", "best"), ("@40", "40")):
        assert main(["inspect", f"{run}{ending}", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["path"], found["checkpoint"]) == (str(run), which)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody",), "run is 'nobody'"),
        (("nobody",), "or the folder of a bundle or of a dataset"),
        (("nobody", "--sheet", "a.png"), "run is 'nobody'"),
        (("nobody", "--cameras", "front"), "run is 'nobody'"),
        ((".",), "it must hold config.json as a run does"),
        ((SHIPPED, "--episode", "3"), "episode is 3: only a dataset has episodes"),
        ((SHIPPED, "--video", "a.mp4"), "video is 'a.mp4': only a dataset has episodes"),
        ((f"{SHIPPED}@7",), "has no checkpoint 7"),
        ((f"{SHIPPED}@³",), "checkpoint is '³': it must be last, best or a generation"),
    ],
)
def test_bad_input_of_inspect_is_refused(refused, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused("inspect", *words)
    assert not list(tmp_path.iterdir())
