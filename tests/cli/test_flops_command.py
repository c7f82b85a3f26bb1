"""`robopolicy flops`: runs, bundles and specs side by side, and the files that it writes."""

import csv
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from robopolicy import load
from robopolicy.cli import main
from robopolicy.costs.flops import ARITHMETIC, count_step
from robopolicy.envs.registry import TASKS, task_class
from robopolicy.experiments.default_policies import policy_config
from robopolicy.policies.catalogue import blank_policy, describe

SHIPPED = "stepping-stones-softmax"


def rows_of(capsys, *words):
    capsys.readouterr()
    assert main(["flops", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@cache
def flops_of(config):
    return json.dumps(count_step(blank_policy(config)).summary())


def bundle_of(folder, config, task, /, **changes):
    """The manifest of a bundle, without its graph."""
    price = json.loads(flops_of(config))
    manifest = {"schema": 1, "policy": describe(config), "flops": price, "task": task, **changes}
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)


def sweep_bundle(tmp_path):
    config = policy_config("positive(m=8)", "bimanual-sweep", preset="tiny")
    return bundle_of(tmp_path / "sweep", config, "bimanual-sweep")


def test_runs_bundles_and_specs_stand_side_by_side(capsys, tmp_path):
    config = replace(load(SHIPPED).config, attention="angular_hybrid(m=8, n=8)")
    bundle = bundle_of(tmp_path / "bundle", config, "stepping-stones")
    rows = rows_of(capsys, SHIPPED, bundle, "--attention", "positive(m=16)", "--attention", "softmax")
    assert [(row["policy"], row["label"]) for row in rows] == [
        (SHIPPED, "softmax"),
        (bundle, "angular_hybrid(m=8, n=8)"),
        (None, "positive(m=16)"),
        *((None, control) for control in ("all", "all, relu", "all, cnn", "none")),
    ]
    assert rows[1]["total"] == count_step(blank_policy(config)).total
    for row in rows:
        assert sum(row["by_component"].values()) == row["total"]
        assert row["traffic_bytes"] == sum(row["traffic_by_component"].values())
        assert row["peak_bytes"] > 0
        assert "other" not in row["by_component"]


@pytest.mark.slow
def test_exact_softmax_is_a_row_for_each_settings(capsys, tmp_path):
    fine = bundle_of(
        tmp_path / "fine", policy_config("positive(m=8)", "stepping-stones", patch=1), "stepping-stones"
    )
    sweep = sweep_bundle(tmp_path)
    rows = rows_of(capsys, fine, sweep, "stepping-stones-angular-8x8", "--attention", "positive(m=4)")
    exact = [row for row in rows if row["attention"] == "softmax"]
    assert [(row["task"], row["tokens"]) for row in exact] == [
        ("stepping-stones", 1536),
        ("bimanual-sweep", 400),
        ("stepping-stones", 384),
    ]
    assert [row["tokens"] for row in rows if row["attention"] == "positive(m=4)"] == [1536, 400, 384]


def test_a_bundle_has_the_flops_of_its_export(capsys, tmp_path):
    config = policy_config("positive(m=8)", "stepping-stones", patch=4)
    price = json.loads(flops_of(config))
    price["by_component"]["head"] += 1
    price["by_class"]["multiply-add"] += 1
    price["total"] += 1
    bundle = bundle_of(tmp_path / "bundle", config, "stepping-stones", flops=price)
    assert rows_of(capsys, bundle)[0]["total"] == price["total"]


@pytest.mark.slow
def test_flops_a_second_follow_the_control_rate_of_the_task(capsys, tmp_path):
    sweep = sweep_bundle(tmp_path)
    rows = rows_of(capsys, SHIPPED, sweep, "--per-second")
    assert [(row["task"], row["control_rate"]) for row in rows[:2]] == [
        ("stepping-stones", 20),
        ("bimanual-sweep", 10),
    ]
    assert all(row["total_per_second"] == row["control_rate"] * row["total"] for row in rows)
    assert "control_rate" not in rows_of(capsys, SHIPPED)[0]


@pytest.mark.parametrize("name", TASKS)
def test_the_rate_of_a_task_is_its_frame_rate(name):
    assert task_class(name).metadata["render_fps"] == task_class(name).rate


@pytest.mark.slow
def test_the_table_has_all_numbers(capsys, tmp_path):
    sweep = sweep_bundle(tmp_path)
    words = ["flops", SHIPPED, sweep, "--per-second"]
    assert main(words) == 0
    table = capsys.readouterr().out
    rows = rows_of(capsys, *words[1:])
    for row in rows:
        for number in (row["total"], row["total_per_second"], row["traffic_bytes"], row["peak_bytes"]):
            assert f"{number:,}" in table
        assert row["attention"] in table
        assert f"{row['tokens']} tokens" in table
    lines = table.splitlines()
    order = [line[:17].strip() for line in lines if line[:1].strip()]
    assert order.index("patches") < order.index("ranking") < order.index("head") < order.index("total")


@pytest.mark.slow
def test_a_state_has_its_bytes(capsys):
    words = ("--preset", "front", "--variant", "memory", "--attention", "trigonometric(m=32)")
    rows = {row["label"]: row for row in rows_of(capsys, *words)}
    expected = {
        "trigonometric(m=32)": 4 * (2 * 2 * 32 + 2),  # two sums of each feature, their scale and weight
        "softmax": 4 * 40 * 192 * (16 + 1 + 1),  # keys, values and weights of the tokens of 40 steps
        "all, map": 4 * 64 * 32 * 2,
        "all, gru": 4 * 2 * 16,
    }
    assert {label: row["state_bytes"] for label, row in rows.items() if row["state_bytes"]} == expected
    assert not any("other" in row["by_component"] for row in rows.values())
    assert main(["flops", *words]) == 0
    assert "bytes of the state" in capsys.readouterr().out
    assert main(["flops", "--patch", "4"]) == 0
    assert "bytes of the state" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_history_of_frames_has_a_price_and_a_control_without_images(capsys):
    words = ("--task", "bimanual-sweep", "--preset", "tiny", "--attention", "none")
    plain, several = (rows_of(capsys, *words, *more) for more in ((), ("--history", "3", "--chunk", "2")))
    assert [row["label"] for row in several] == ["none", "softmax", "all", "all, relu", "all, cnn"]
    assert all(row["total"] > before["total"] for row, before in zip(several, plain, strict=True))
    chunk = 4 * (12 + 1)
    assert [row["state_bytes"] for row in several] == [chunk, *[chunk + 4 * (2 * 400 * 32 + 1)] * 4]


def test_a_control_may_be_named_as_grids_name_it(capsys, refused):
    rows = rows_of(capsys, "--patch", "4", "--attention", "all, cnn", "--attention", "positive(m=4)")
    assert [row["label"] for row in rows] == [
        *("all, cnn", "positive(m=4)", "softmax"),
        *("all", "all, relu", "none"),
    ]
    found = rows_of(capsys, "--patch", "4", "--encoder", "cnn")[0]
    assert rows[0]["total"] == found["total"]
    line = refused("flops", "--attention", "all, map")
    assert "attention is 'all, map': the controls of this policy are all; all, relu; all, cnn; none" in line
    assert "or a control: none; all; all, relu;" in refused("flops", "--attention", "all, snn")


def test_encoders_are_counted_with_a_mechanism_where_policies_have_both(capsys, refused):
    encoder = ("--patch", "4", "--encoder", "relu", "--attention", "softmax")
    assert rows_of(capsys, *encoder)[0]["label"] == "softmax, relu"
    line = refused("flops", "--task", "bimanual-sweep", *encoder)
    assert "encoder is 'relu': it has no attention, so attention must be 'all'" in line
    for control in ("none", "all, cnn"):
        line = refused("flops", "--encoder", "relu", "--attention", control)
        assert f"encoder is 'relu': leave it out with attention '{control}'" in line


def test_files_hold_what_is_printed(capsys, tmp_path):
    paths = [tmp_path / "flops.csv", tmp_path / "flops.png"]
    rows = rows_of(capsys, "--patch", "4", "--csv", str(paths[0]), "--picture", str(paths[1]), "--per-second")
    with paths[0].open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["attention"] for line in lines] == [row["attention"] for row in rows]
    for line, row in zip(lines, rows, strict=True):
        for part, flops in row["by_component"].items():
            assert int(line[part]) == flops
        for number in ("total", "total_per_second", "traffic_bytes", "peak_bytes", "parameters", "tokens"):
            assert int(line[number]) == row[number]
        assert line["state_bytes"] == "0"
        assert {kind: int(line[kind]) for kind in row["by_class"]} == row["by_class"]
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    assert sorted(tmp_path.iterdir()) == paths


def test_a_task_may_be_named_beside_its_run(capsys, refused):
    assert rows_of(capsys, SHIPPED, "--task", "stepping-stones")[0]["policy"] == SHIPPED
    line = refused("flops", SHIPPED, "--task", "bimanual-sweep")
    assert "task is 'bimanual-sweep'" in line
    assert "'stepping-stones'" in line


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"flops": None}, "lacks flops"),
        ({"task": "dancing"}, "is 'dancing': it must be one of stepping-stones, bimanual-sweep"),
        ({"task": None}, "is None"),
        ({"policy": {"kind": "iap"}}, "policy, of kind iap, lacks the settings"),
        ({"flops": {"total": 3}}, "by_component is None"),
    ],
)
def test_a_damaged_bundle_is_refused(refused, tmp_path, changes, said):
    bundle = bundle_of(
        tmp_path / "bundle", policy_config("softmax", "stepping-stones"), "stepping-stones", **changes
    )
    line = refused("flops", bundle, "--csv", str(tmp_path / "flops.csv"))
    assert said in line
    assert bundle in line
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("total", 1, "total is 1"),
        ("total", "many", "total is 'many'"),
        ("by_component", {"head": 1.5}, "by_component is"),
        ("by_component", {"tail": 1}, "tail"),
        ("by_class", {"memory": 1}, "add up"),
        ("by_class", dict.fromkeys([*ARITHMETIC, "memory"], 1), "add up"),
        ("peak_bytes", -1, "peak_bytes is -1"),
        ("traffic_bytes", 1, "traffic_bytes is 1"),
    ],
)
def test_flops_that_do_not_add_up_are_refused(refused, tmp_path, name, value, said):
    config = policy_config("softmax", "stepping-stones")
    price = {**json.loads(flops_of(config)), name: value}
    bundle = bundle_of(tmp_path / "bundle", config, "stepping-stones", flops=price)
    assert said in refused("flops", bundle)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b'{"policy": {}}'])
def test_an_invalid_manifest_is_refused(refused, tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    assert "manifest.json" in refused("flops", str(tmp_path))


def test_a_folder_without_run_or_bundle_is_refused(refused, tmp_path):
    assert "config.json" in refused("flops", str(tmp_path))
    assert "bundle" in refused("flops", "nobody")


@pytest.mark.rest_slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture_is_the_same_for_the_same_rows(capsys, tmp_path, suffix):
    pictures = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for picture in pictures:
        rows_of(capsys, SHIPPED, "--attention", "positive(m=8)", "--picture", str(picture))
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_nothing_is_left_of_a_picture_that_fails(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    from robopolicy.viz.stacked_bars import stacked_bars

    def fail(self, path, **settings):
        path.write_bytes(b"half")
        raise OSError("no more")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="no more"):
        stacked_bars(tmp_path / "a.png", [("one", {"head": 1})], ("head",), "title", "FLOPs")
    assert not list(tmp_path.iterdir())


def test_bars_are_as_long_as_their_parts(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    from robopolicy.viz.stacked_bars import stacked_bars

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: drawn.append(self) or path.touch())
    bars = [("one " * 60, {"query map": 30, "head": 10}), ("two", {"head": 25}), ("three", {"head": 5})]
    stacked_bars(tmp_path / "a.svg", bars, ("patches", "query map", "head"), "title", "FLOPs")
    (figure,) = drawn
    (axes,) = figure.axes
    widths = {c.get_label(): [bar.get_width() for bar in c] for c in axes.containers}
    starts = {c.get_label(): [bar.get_x() for bar in c] for c in axes.containers}
    assert widths == {"query map": [30, 0, 0], "head": [10, 25, 5]}
    assert starts["head"] == [30, 0, 0]
    assert [text.get_text() for text in axes.texts[::2]] == ["40", "25", "5"]
    # Every text lies within the picture, and none on another or on a bar.
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    whole = figure.bbox
    for index, box in enumerate(boxes):
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1
        assert not any(box.overlaps(other) for other in boxes[:index])
        for container in axes.containers:
            for bar in container:
                assert bar.get_width() == 0 or not box.overlaps(bar.get_window_extent())
    assert np.unique([bar.get_facecolor() for c in axes.containers for bar in c], axis=0).shape[0] == 2
