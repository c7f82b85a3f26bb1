"""Valid bundles load and act; invalid ones are refused in one line."""

import json
import os
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from toy_bundle import entries, graph, make_bundle, manifest, observations, outputs, resum, seal

from robopolicy import runtime
from robopolicy.experiments.deployment import deploy
from robopolicy.runtime import BundleError, BundlePolicy
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.golden import read_golden, write_golden
from robopolicy.runtime.manifest import parse
from robopolicy.runtime.verify import verify

FILES = ("README.md", "SHA256SUMS", "golden.npz", "manifest.json", "policy.onnx", "policy.stablehlo")


def use(folder):
    """Load a bundle and act on all its golden vectors."""
    bundle = open_bundle(folder)
    policy = BundlePolicy(bundle)
    for observation, _ in read_golden(bundle):
        policy.act(observation)


def refused(folder):
    """The message of the BundleError that using `folder` raises."""
    with pytest.raises(BundleError) as caught:
        use(folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_a_valid_bundle_acts_in_its_units(bundle):
    policy = BundlePolicy.load(bundle)
    inputs = observations()
    expected = outputs(inputs)
    for row in range(len(inputs["felt"])):
        observation = {name: array[row] for name, array in inputs.items()}
        np.testing.assert_allclose(policy.act(observation), expected["command"][row], atol=1e-6)
        np.testing.assert_allclose(policy.run(observation)["action"], expected["action"][row], atol=1e-6)
    assert policy.manifest.inputs["felt"].entries == ("left", "right")
    assert policy.manifest.outputs["command"].units == ("m", "m")


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_in_any_file_is_refused(bundle, name):
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    assert "SHA256SUMS" in refused(bundle)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(bundle, name):
    (bundle / name).unlink()
    assert f"{name}' is missing" in refused(bundle)


def test_an_extra_file_or_folder_is_refused(bundle):
    (bundle / "extra.bin").write_bytes(b"")
    assert "extra.bin' does not belong" in refused(bundle)
    (bundle / "extra.bin").unlink()
    (bundle / "folder").mkdir()
    assert "folder' does not belong" in refused(bundle)
    (bundle / "folder").rmdir()
    use(bundle)


@pytest.mark.parametrize("name", FILES)
def test_links_and_pipes_are_refused(bundle, tmp_path, name):
    (bundle / name).rename(tmp_path / "elsewhere")
    (bundle / name).symlink_to(tmp_path / "elsewhere")
    assert name in refused(bundle)
    (bundle / name).unlink()
    os.mkfifo(bundle / name)
    assert "not a regular file" in refused(bundle)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{'0' * 64}  ../secret\n", "outside of the bundle"),
        (f"{'0' * 64}  /etc/passwd\n", "outside of the bundle"),
        (f"{'0' * 64}  policy.onnx\n", "again"),
        (f"{'0' * 64} README.md\n", "two spaces and a name"),
        ("half a line", "cut off"),
        ("\n", "two spaces and a name"),
        ("0" * 70_000 + "\n", "too long"),
    ],
)
def test_invalid_lines_of_sha256sums_are_refused(bundle, line, message):
    with (bundle / "SHA256SUMS").open("a") as file:
        file.write(line)
    assert message in refused(bundle)


def scaled(scale):
    """The change to a manifest that gives the command this scale."""
    outputs = manifest()["outputs"]
    return {"outputs": {**outputs, "command": {**outputs["command"], "scale": scale}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 3}, "schema is 3: this robopolicy reads 2; a newer robopolicy reads it"),
        ({"schema": 1}, "export the run again"),
        ({"schema": "2"}, "schema is '2'"),
        ({"schema": True}, "schema is True"),
        ({"control_period": 0}, "control_period is 0"),
        ({"control_period": "fast"}, "control_period is 'fast'"),
        ({"deadline": 1.0}, "deadline is 1.0"),
        ({"golden": {"observations": -1}}, "observations is -1"),
        ({"golden": {"observations": 7}}, "golden.npz"),
        (
            {"golden": {"observations": 5, "begins": [5]}},
            "begins is [5]: it must be a list of rows from 0 to 4",
        ),
        ({"tolerances": {"command": 1e-5}}, "tolerance of action is None"),
        ({"requires": {"onnxruntime": "99.0"}}, "it requires onnxruntime 99.0"),
        ({"requires": None}, "which onnxruntime"),
        ({"outputs": {**manifest()["outputs"], "felt": manifest()["inputs"]["felt"]}}, "input and an output"),
        (
            {
                "inputs": {
                    **manifest()["inputs"],
                    "more": {"shape": [9], "dtype": "uint8", "low": -1, "high": 9},
                }
            },
            "it must be two numbers from 0 to 255",
        ),
        ({"inputs": {}}, "inputs is empty"),
        ({"inputs": {**manifest()["inputs"], "more": {"shape": [1]}}}, "dtype is None"),
        ({"inputs": {"../up": manifest()["inputs"]["image"]}}, "letters, digits and underscores"),
        ({"outputs": {"action": manifest()["outputs"]["action"]}}, "'command' with entries"),
        ({"inputs": {**manifest()["inputs"], "felt": {"shape": [2**40], "dtype": "float32"}}}, "shape"),
        ({"inputs": {**manifest()["inputs"], "felt": {"shape": [3], "dtype": "float32"}}}, "low and high"),
        (
            {"inputs": {**manifest()["inputs"], "felt": {"shape": [2], "dtype": "uint8", "entries": []}}},
            "inputs 'felt': dtype is 'uint8': numbers with entries must be float32",
        ),
        *((scaled(one), f"outputs 'command': scale is {one!r}: it must") for one in ("x", [0.15], None)),
        (scaled([0.3, 0.0]), "outputs 'command': scale is 0.0: it must be a number from 1e-30 to 1e+30"),
    ],
)
def test_an_invalid_manifest_is_refused(tmp_path, change, message):
    assert message in refused(make_bundle(tmp_path / "bundle", **change))


def test_a_bundle_of_another_period_or_scale_than_the_task_is_not_deployed(tmp_path):
    make_bundle(tmp_path / "fast", task="stepping-stones")
    with pytest.raises(ValueError, match=r"^bundle has the control_period 0\.02, and the task has 0\.05$"):
        deploy(tmp_path / "fast")
    make_bundle(tmp_path / "bare", task="stepping-stones", control_period=0.05)
    with pytest.raises(ValueError, match=r"^bundle has the scale of the command None, and the task has \["):
        deploy(tmp_path / "bare")


def test_all_that_both_ends_of_a_drive_agree_on_is_in_the_digest():
    described = {**manifest(), "files": {}}
    digests = {parse(json.dumps(described).encode()).digest}
    for part, name in (("inputs", "felt"), ("outputs", "command")):
        described[part][name]["entries"][0]["name"] = "other"
        digests.add(parse(json.dumps(described).encode()).digest)
    for time in ("deadline", "control_period"):
        described[time] *= 0.99 if time == "deadline" else 1.01
        digests.add(parse(json.dumps(described).encode()).digest)
    assert len(digests) == 5


def test_a_tolerance_is_1_or_a_limit_of_its_output_at_most():
    described = {**manifest(), "files": {}}
    described["outputs"]["command"]["entries"] = entries("mdeg", 1e6)
    described["tolerances"]["command"] = 10.0
    assert parse(json.dumps(described).encode()).tolerances["command"] == 10.0
    described["tolerances"]["action"] = 1.5
    with pytest.raises(BundleError, match=r"tolerance of action is 1.5: it must be a number from 0 to 1$"):
        parse(json.dumps(described).encode())


@pytest.mark.parametrize(
    "text",
    [
        b"\xff{}",
        "",
        "[]",
        "{",
        "null",
        "NaN",
        '{"schema": NaN}',
        "[" * 100_000,
        '{"schema": 1' + "0" * 5000 + "}",
    ],
)
def test_a_manifest_that_is_not_a_json_object_is_refused(bundle, text):
    (bundle / "manifest.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    resum(bundle)
    assert "manifest.json" in refused(bundle)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (graph(inputs=("picture", "felt")), "'image'"),
        (graph(image_type=TensorProto.UINT8), "'image'"),
        (b"no graph", "not an ONNX graph"),
        (b"", "not an ONNX graph"),
    ],
)
def test_a_graph_that_differs_from_the_manifest_is_refused(bundle, content, message):
    (bundle / "policy.onnx").write_bytes(content)
    seal(bundle, manifest())
    assert message in refused(bundle)


@pytest.mark.parametrize("place", ["secret.bin", "../secret.bin", "/etc/passwd"])
def test_a_graph_that_reads_other_files_is_refused(bundle, monkeypatch, place):
    monkeypatch.chdir(bundle.parent)
    (bundle.parent / "secret.bin").write_bytes(b"1234")
    model = onnx.load_from_string(graph())
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", place), ("offset", "0"), ("length", "4")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    (bundle / "policy.onnx").write_bytes(model.SerializeToString())
    seal(bundle, manifest())
    assert "not an ONNX graph that can be run" in refused(bundle)


def test_a_file_that_is_too_large_is_not_read(bundle):
    for name, size in (("README.md", 2**40), ("manifest.json", 2**31), ("golden.npz", 2**33)):
        content = (bundle / name).read_bytes()
        with (bundle / name).open("r+b") as file:
            file.truncate(size)  # a sparse file: it needs no disk space
        assert f"has {size} bytes, and may have" in refused(bundle)
        (bundle / name).write_bytes(content)
    use(bundle)


@pytest.mark.parametrize(
    "header",
    [b"{'descr': (" + b" " * 60, b"(" * 5000, b"{[]:1}", b"-" * 9000 + b"1", b"__import__('os').abort()"],
)
def test_headers_of_golden_vectors_are_not_parsed(bundle, header):
    with zipfile.ZipFile(bundle / "golden.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["command.npy"] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(bundle / "golden.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    seal(bundle, manifest())
    assert "the header of command does not match the manifest" in refused(bundle)


def test_numpy_reads_golden_vectors(bundle):
    with np.load(bundle / "golden.npz", allow_pickle=False) as golden:
        for name, array in {**observations(), **outputs(observations())}.items():
            np.testing.assert_array_equal(golden[name], array)
            assert golden[name].dtype == np.float32


def test_control_characters_are_removed_from_onnxruntimes_messages(bundle):
    model = onnx.load_from_string(graph())
    model.graph.node[0].op_type = "Evil\x1b[31m\x1b]0;owned\x07"
    (bundle / "policy.onnx").write_bytes(model.SerializeToString())
    seal(bundle, manifest())
    assert refused(bundle).isprintable()


def test_an_error_inside_the_graph_raises_arithmetic_error(bundle):
    model = onnx.load_from_string(graph())
    del model.graph.node[-1]
    hundred = onnx.helper.make_node("Div", ["felt", "tenth"], ["tenfold"])
    places = onnx.helper.make_node("Cast", ["tenfold"], ["places"], to=TensorProto.INT64)
    model.graph.node.extend(
        [hundred, places, onnx.helper.make_node("Gather", ["felt", "places"], ["scores"])]
    )
    (bundle / "policy.onnx").write_bytes(model.SerializeToString())
    seal(bundle, manifest())
    with pytest.raises(ArithmeticError) as caught:
        use(bundle)
    assert str(caught.value).startswith("the policy failed:")
    assert str(caught.value).isprintable()


def test_an_output_out_of_its_limits_raises_arithmetic_error(bundle):
    (bundle / "policy.onnx").write_bytes(graph(largest=3.0))
    seal(bundle, manifest())
    with pytest.raises(ArithmeticError, match="the policy failed: command 'left' is"):
        use(bundle)


def test_pickled_objects_in_golden_vectors_are_refused(bundle):
    with zipfile.ZipFile(bundle / "golden.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    np.save(bundle / "felt.npy", np.array([print] * 6, object), allow_pickle=True)
    members["felt.npy"] = (bundle / "felt.npy").read_bytes()
    (bundle / "felt.npy").unlink()
    with zipfile.ZipFile(bundle / "golden.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    seal(bundle, manifest())
    assert "golden.npz" in refused(bundle)


IMAGE, FELT = np.full((4, 5), 0.5, np.float32), np.zeros(2, np.float32)


def with_one(array, value, at=(1,)):
    changed = array.copy()
    changed[at] = value
    return changed


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"image": IMAGE}, "it must hold ['felt', 'image']"),
        ({"image": IMAGE, "felt": FELT, "more": FELT}, "it must hold ['felt', 'image']"),
        (None, "observation holds None"),
        ([IMAGE, FELT], "it must hold ['felt', 'image']"),
        ([np.ones((40, 50), np.float32)], "observation holds [array([[1."),
        ({"image": IMAGE, "felt": FELT.tolist()}, "felt is of type list: it must be float32[2]"),
        ({"image": IMAGE, "felt": FELT.astype(float)}, "felt is float64[2]: it must be float32[2]"),
        ({"image": IMAGE.T, "felt": FELT}, "image is float32[5, 4]: it must be float32[4, 5]"),
        ({"image": IMAGE, "felt": FELT[:1]}, "felt is float32[1]"),
        ({"image": IMAGE, "felt": with_one(FELT, np.nan)}, "felt 'right' is nan rad: it must be a number"),
        ({"image": IMAGE, "felt": with_one(FELT, np.inf)}, "felt 'right' is inf rad"),
        ({"image": IMAGE, "felt": with_one(FELT, 57.3)}, "felt 'right' is 57.3 rad: it must be a"),
        ({"image": with_one(IMAGE, -1.0, (2, 3)), "felt": FELT}, "image [2, 3] is -1 m: it must be a number"),
        ({"image": with_one(IMAGE, np.nan, (0, 0)), "felt": FELT}, "image [0, 0] is nan m"),
        ({"image": np.ma.masked_invalid(IMAGE), "felt": FELT}, "image is of type MaskedArray"),
    ],
)
def test_an_invalid_observation_is_refused_by_name(bundle, observation, message):
    policy = BundlePolicy.load(bundle)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked below)
        policy.act(observation)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    policy.act({"image": IMAGE, "felt": FELT})


def test_a_limit_itself_is_allowed(bundle):
    largest = np.full(2, 0.3, np.float32)  # a little more than the 0.3 of the manifest
    policy = BundlePolicy.load(bundle)
    np.testing.assert_array_equal(policy.act({"image": np.full_like(IMAGE, 10.0), "felt": FELT}), largest)


def test_readme_files_of_older_bundles_import_policy():
    assert runtime.Policy is BundlePolicy


def test_verify_names_the_row_of_a_golden_vector_out_of_its_limits(bundle):
    seen = observations()
    seen["felt"][2, 0] = 5.0
    write_golden(bundle / "golden.npz", {**seen, **outputs(seen)})
    seal(bundle, manifest())
    with pytest.raises(BundleError, match=r"^golden\.npz, row 2: felt 'left' is 5 rad: it must be"):
        verify(bundle, 5)


def test_verify_detects_a_changed_policy(bundle):
    verdict = verify(bundle, 50)
    assert verdict.same
    assert verdict.observations == 6
    assert verdict.calls == 50
    assert json.loads(json.dumps(verdict.as_dict()))["same"] is True
    for slowest, in_time in ((0.019, True), (0.021, False)):
        latency = {"p50": 0.001, "p99": slowest, "max": 1.0}
        assert verdict._replace(latency=latency).in_time is in_time
    (bundle / "policy.onnx").write_bytes(graph(largest=0.2999))
    seal(bundle, manifest())
    changed = verify(bundle, 5)
    assert not changed.same
    assert "do not run it" in changed.as_text()
    with pytest.raises(ValueError, match="calls is 0"):
        verify(bundle, 0)


def test_a_nan_in_a_recorded_output_fails_verify(bundle):
    inputs = observations()
    recorded = outputs(inputs)
    recorded["action"][0, 0] = np.nan
    write_golden(bundle / "golden.npz", {**inputs, **recorded})
    seal(bundle, manifest())
    assert not verify(bundle, 5).same
