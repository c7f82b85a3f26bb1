"""A bundle's C files: compiled, compared and refused as the runtime in Python does it."""

import ctypes
import hashlib
import json
import re
import shutil
import subprocess
import threading
from contextlib import nullcontext

import numpy as np
import onnx
import pytest
from installed_compilers import needs_compiler, needs_gcc
from onnx import TensorProto
from test_remembering import bundle_of, remembering
from toy_bundle import ROWS, STEP, ToyRobot, graph, manifest, observations, played, seal, stepping, write_c

from robopolicy.bundles.c_source.interface import c_files, identifiers
from robopolicy.bundles.c_source.tensors import UnsupportedError
from robopolicy.cli import main
from robopolicy.experiments.deployment import deploy
from robopolicy.runtime import BundlePolicy, proof
from robopolicy.runtime.__main__ import main as runtime_main
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.compiled import CompiledPolicy, outputs_digest
from robopolicy.runtime.compiler import CompilerError, footprint, library
from robopolicy.runtime.manifest import BundleError, parse
from robopolicy.runtime.process import policy_process
from robopolicy.runtime.robot import Driver
from robopolicy.runtime.verify import verify


@needs_compiler
def test_c_computes_what_onnxruntime_computes(with_c):
    for found, wanted in zip(played(with_c, "c")[1], played(with_c, "onnx")[1], strict=True):
        for name in ("command", "action", "scores"):
            np.testing.assert_allclose(found[name], wanted[name], atol=1e-6)


@needs_compiler
def test_verify_compares_c_with_onnx_and_with_the_hash(with_c, capsys):
    policy, rows = played(with_c, "c")
    digest = outputs_digest(policy.manifest, rows)
    verdict = verify(with_c, 5, runtime="c")
    assert verdict.same
    assert (verdict.c.outputs, verdict.c.expected) == (digest, None)
    assert set(verdict.c.from_onnx) == {"command", "action", "scores"}
    assert verdict.c.readings == 4 * (20 + 2)
    assert verdict.c.work > 0
    for expected, same in ((digest, True), ("0" * 64, False)):
        seal(with_c, {**manifest(), "c": {"outputs_sha256": expected}})
        assert verify(with_c, 5, runtime="c").same is same
        for run in (main, runtime_main):
            assert run(["verify", str(with_c), "--calls", "5", "--runtime", "c", "--json"]) == 1 - same
            told = json.loads(capsys.readouterr().out)
            assert (told["c"]["outputs"], told["c"]["expected"]) == (digest, expected)


def test_a_bundle_without_c_files_says_so(bundle):
    with pytest.raises(BundleError, match=r"has no policy\.c"):
        BundlePolicy.load(bundle, "c")
    with pytest.raises(ValueError, match="runtime is 'fortran': it must be one of onnx, c"):
        verify(bundle, 5, runtime="fortran")


def test_one_c_file_without_the_other_is_refused(with_c):
    (with_c / "policy.h").unlink()
    seal(with_c, manifest())
    with pytest.raises(BundleError, match=r"'policy\.h' is not listed"):
        open_bundle(with_c)


@needs_compiler
def test_c_files_of_another_graph_are_refused(with_c):
    (with_c / "policy.onnx").write_bytes(graph(largest=0.2))
    seal(with_c, manifest())
    with pytest.raises(BundleError, match="it was made from another graph"):
        BundlePolicy.load(with_c, "c")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-cc", "CC is 'no-such-cc'"),
        ("false", "false fails"),
        ("true", "true is no C compiler: it ends without an error, and writes nothing"),
        ("'gcc", 'CC is "\'gcc": it must be a command, with quotation marks in pairs'),
    ],
)
def test_a_compiler_that_is_missing_or_fails_is_one_line(with_c, monkeypatch, capsys, command, words):
    monkeypatch.setenv("CC", command)
    assert main(["verify", str(with_c), "--runtime", "c"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert words in line
    monkeypatch.setenv("PATH", str(with_c))
    monkeypatch.delenv("CC")
    with pytest.raises(CompilerError, match="there is no C compiler: install one of cc, gcc, clang"):
        library({"policy.c": ""})


@needs_compiler
def test_a_folder_of_temporary_files_with_noexec_needs_the_cache(tmp_path, monkeypatch):
    load = ctypes.CDLL

    def refusing(path, *more):
        if path.startswith(str(tmp_path / "temporary")):
            raise OSError(f"{path}: failed to map segment from shared object")
        return load(path, *more)

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("ctypes.CDLL", refusing)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert library({"policy.c": "int number(void) { return 7; }"}).number() == 7
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    words = r"cannot be loaded from '.*/temporary': failed to map segment .* set TMPDIR to another one$"
    with pytest.raises(CompilerError, match=words):
        library({"policy.c": "int number(void) { return 8; }"})


@needs_compiler
def test_source_of_the_same_length_is_compiled_anew():
    for number in (1, 2, 1):
        text = f"int number(void);\nint number(void) {{ return {number}; }}\n"
        assert library({"policy.c": text}).number() == number


@needs_gcc
def test_the_stack_is_that_of_the_deepest_functions():
    made = [
        f"{'int' if name == 'policy_run' else 'static __attribute__((noinline)) int'} {name}(void)\n"
        f"{{ volatile char kept[{size}]; kept[{size - 1}] = 1; return kept[{size - 1}] + {inner}; }}\n"
        for name, size, inner in (
            ("most", 10_000, "0"),
            ("graph", 1_000, "most()"),
            ("policy_run", 100, "graph()"),
        )
    ]
    found = footprint({"policy.c": "".join(made)})
    assert found.stack == pytest.approx(11_100, abs=300)  # calls take some, and the last function needs less


@needs_gcc
@pytest.mark.parametrize("flag", ["-ffast-math", "-funsafe-math-optimizations", "-ffinite-math-only"])
def test_flags_that_change_arithmetic_are_refused(with_c, monkeypatch, flag):
    monkeypatch.setenv("CC", f"gcc {flag}")
    with pytest.raises(CompilerError, match=r"gcc fails: .*: compile it without -ff"):
        BundlePolicy.load(with_c, "c")


@needs_compiler
def test_a_c_file_without_its_functions_is_refused(with_c):
    (with_c / "policy.c").write_text("typedef int nothing;\n")
    seal(with_c, manifest())
    with pytest.raises(BundleError, match=r"policy\.c: it has no function policy_reset"):
        BundlePolicy.load(with_c, "c")


class Library:
    """The functions of policy.c as C calls them."""

    def __init__(self, bundle):
        texts = {name: (bundle / name).read_text() for name in ("policy.c", "policy.h")}
        names = ("readings", "results", "state", "work")
        sizes = ", ".join(f"sizeof(policy_{name})" for name in names)
        texts["more.c"] = f'#include "policy.h"\nconst uint64_t sizes[] = {{{sizes}}};\n'
        self.c = library(texts)
        counts = (ctypes.c_uint64 * 4).in_dll(self.c, "sizes")
        self.memory = {
            name: np.zeros(int(size) // 4, np.float32) for name, size in zip(names, counts, strict=True)
        }

    def pointer(self, name):
        return self.memory[name].ctypes.data_as(ctypes.c_void_p)

    def reset(self):
        return self.c.policy_reset(self.pointer("state"))

    def run(self, image, felt):
        self.memory["readings"][:] = np.concatenate([np.ravel(image), felt])
        names = ("state", "work", "readings", "results")
        return self.c.policy_run(*map(self.pointer, names))


IMAGE, FELT = np.full((4, 5), 0.5, np.float32), np.zeros(2, np.float32)


@needs_compiler
def test_codes_say_what_is_wrong_and_change_nothing(bundle):
    seal(bundle, stepping())
    write_c(bundle, stepping())
    policy = Library(bundle)
    assert policy.run(IMAGE, FELT) == 2
    assert policy.reset() == 0
    assert policy.run(IMAGE, FELT) == 0
    kept = {name: policy.memory[name].tobytes() for name in ("results", "state")}
    for place in range(20):
        for value in (np.nan, np.inf, -np.inf, -0.01, 10.1):
            image = IMAGE.copy()
            image.flat[place] = value
            assert policy.run(image, FELT) == 3
    for value in (np.nan, np.inf, -np.inf, 3.01, -3.01):
        assert policy.run(IMAGE, np.array([0.0, value], np.float32)) == 3
    assert policy.run(IMAGE, np.array([0.0, STEP + 0.01], np.float32)) == 4
    assert policy.run(IMAGE, np.array([-STEP - 0.01, 0.0], np.float32)) == 4
    assert kept == {name: policy.memory[name].tobytes() for name in kept}
    assert policy.run(IMAGE, np.array([STEP, -STEP], np.float32)) == 0
    assert policy.run(IMAGE, np.array([2 * STEP, -2 * STEP], np.float32)) == 0
    assert policy.reset() == 0
    assert policy.run(IMAGE, np.array([-3.0, 3.0], np.float32)) == 0
    for place in range(4):
        names = ["state", "work", "readings", "results"]
        pointers = [None if at == place else policy.pointer(name) for at, name in enumerate(names)]
        assert policy.c.policy_run(*pointers) == 1
    assert policy.c.policy_reset(None) == 1
    assert policy.c.policy_check(None, None) == 1


@needs_compiler
def test_a_step_is_rounded_down_to_its_type(bundle):
    described = manifest()
    for entry in described["inputs"]["felt"]["entries"]:
        entry["step"] = 0.1
    seal(bundle, described)
    write_c(bundle, described)
    policy, far = Library(bundle), np.array([0.1, 0.0], np.float32)  # a little more than 0.1
    policy.reset()
    assert [policy.run(IMAGE, felt) for felt in (FELT, far, np.nextafter(far, FELT))] == [0, 4, 0]


@needs_compiler
def test_bytes_are_within_their_limits(bundle):
    described = manifest()
    described["inputs"]["image"] = {"shape": [4, 5], "dtype": "uint8", "unit": "1", "low": 10, "high": 200}
    model = graph(image_type=TensorProto.UINT8)
    (bundle / "policy.onnx").write_bytes(model)
    seal(bundle, described)
    write_c(bundle, described, model)
    policy = CompiledPolicy(open_bundle(bundle))
    for byte, is_within in ((9, False), (10, True), (200, True), (201, False)):
        image = np.full((4, 5), 100, np.uint8)
        image[3, 4] = byte
        context = nullcontext() if is_within else pytest.raises(ArithmeticError, match="out of its limits")
        with context:
            policy.run({"image": image, "felt": FELT}, lambda outputs: None)


@needs_compiler
def test_a_result_out_of_its_limits_is_a_code(bundle):
    (bundle / "policy.onnx").write_bytes(graph(largest=3.0))
    seal(bundle, manifest())
    write_c(bundle, manifest(), graph(largest=3.0))
    policy = Library(bundle)
    policy.reset()
    assert policy.run(IMAGE, FELT) == 5
    assert not policy.memory["results"].any()
    with pytest.raises(ArithmeticError, match="the policy failed: a result or an index is out of its"):
        played(bundle, "c")


NOT_FINITE = (np.nan, np.inf, -np.inf)


@needs_compiler
@pytest.mark.parametrize("number", NOT_FINITE)
def test_a_state_that_is_not_finite_is_a_code(tmp_path, number):
    bundle = bundle_of(tmp_path, remembering())
    write_c(bundle, open_bundle(bundle).manifest.data, remembering())
    policy = Library(bundle)
    policy.reset()
    for place in (1, 2):  # after the word that tells whether the state was reset
        assert policy.run(IMAGE, FELT) == 0
        kept = policy.memory["state"].copy()
        policy.memory["state"][place] = number
        spoilt = {name: policy.memory[name].tobytes() for name in ("results", "state")}
        assert policy.c.policy_check(policy.pointer("state"), policy.pointer("readings")) == 6
        assert policy.run(IMAGE, FELT) == 6
        assert spoilt == {name: policy.memory[name].tobytes() for name in spoilt}
        policy.memory["state"][:] = kept
    assert policy.run(IMAGE, FELT) == 0


@needs_compiler
@pytest.mark.parametrize(
    ("runtime", "words"),
    [("onnx", "state_total would hold a number that is not finite"), ("c", "the next state is not finite")],
)
@pytest.mark.parametrize("number", NOT_FINITE)
def test_a_next_state_that_is_not_finite_is_refused_though_no_result_shows_it(
    tmp_path, runtime, words, number
):
    model = onnx.load_from_string(remembering(times=number))
    model.graph.node[-1].input[0] = "felt"  # as scores, in place of the state
    bundle = bundle_of(tmp_path, model.SerializeToString())
    write_c(bundle, open_bundle(bundle).manifest.data, model.SerializeToString())
    policy = BundlePolicy.load(bundle, runtime)
    for _ in range(2):
        with pytest.raises(ArithmeticError, match=words):
            policy.run({"image": IMAGE, "felt": np.ones(2, np.float32)})


def test_fields_have_names_of_c(bundle):
    assert identifiers(["left", "int", "2nd", "a b", "a-b"]) == ["left", "int_", "_2nd", "a_b", "a_b_"]
    header = c_files(graph(), open_bundle(bundle).manifest, "a */ b").header
    assert "float left; /* rad, from -3 to 3 */" in header
    assert header.count("*/") == header.count("/*")
    assert hashlib.sha256(graph()).hexdigest() in header
    assert identifiers(["new", "class"]) == ["new_", "class_"]  # of C++
    seal(bundle, stepping())
    header = c_files(graph(), open_bundle(bundle).manifest, "toy").header
    assert "float left; /* rad, from -3 to 3, at most 1.5 in a step */" in header


@needs_gcc
def test_numbers_with_names_of_compilers_and_headers_are_fields(tmp_path):
    described = {**manifest(), "files": {}}
    names = iter(["_Bool", "__LINE__", "unix", "NULL", "INT32_MAX", "FLT_MAX"])
    for value in (
        described["inputs"]["felt"],
        described["outputs"]["command"],
        described["outputs"]["action"],
    ):
        value["entries"] = [{**entry, "name": next(names)} for entry in value["entries"]]
    made = c_files(graph(), parse(json.dumps(described).encode()), "toy")
    (tmp_path / "policy.h").write_text(made.header)
    (tmp_path / "policy.c").write_text(made.source)
    words = ["gcc", "-std=gnu11", "-fsyntax-only", "-include", "float.h", tmp_path / "policy.c"]
    subprocess.run(words, check=True)


@pytest.mark.parametrize(
    "name", ["BEGUN", "X", "INT32_MAX", "class", "linux", "POLICY_PROTOCOL_DIGEST", "uint8_t"]
)
def test_an_input_that_c_would_take_for_something_else_is_named(name):
    described = {**manifest(), "files": {}}
    described["inputs"][name] = described["inputs"].pop("image")
    with pytest.raises(UnsupportedError, match=f"^'{name}' of the graph has another meaning in the C files$"):
        c_files(graph((name, "felt")), parse(json.dumps(described).encode()), "toy")


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_header_serves_a_program_of_cpp(with_c, tmp_path):
    flags = ["-O0", f"-I{with_c}", "-c", "-o"]
    subprocess.run(["gcc", with_c / "policy.c", *flags, tmp_path / "policy.o"], check=True)
    main_of = '#include "policy.h"\nint main() { return policy_reset(nullptr) != POLICY_NULL; }\n'
    (tmp_path / "main.cc").write_text(main_of)
    subprocess.run(["g++", tmp_path / "main.cc", *flags, tmp_path / "main.o"], check=True)
    subprocess.run(["g++", *tmp_path.glob("*.o"), "-o", tmp_path / "main"], check=True)
    subprocess.run([tmp_path / "main"], check=True)


@needs_compiler
def test_threads_run_one_policy_with_memory_of_their_own(with_c):
    seen = observations()
    wanted, wrong = played(with_c, "c")[1], []

    def run():
        policy = Library(with_c)
        policy.reset()
        for _ in range(300):
            for row in range(ROWS):
                code = policy.run(seen["image"][row], seen["felt"][row])
                if code or policy.memory["results"][:2].tobytes() != wanted[row]["command"].tobytes():
                    wrong.append(row)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_compiler
def test_other_outputs_than_those_of_the_hash_are_refused_before_a_drive(with_c, capsys, monkeypatch):
    seal(with_c, {**manifest(), "c": {"outputs_sha256": "0" * 64}})
    words = rf"policy\.c: compiled here, it gives .* and the manifest has {'0' * 16}\.\.\.: do not run it"
    with pytest.raises(BundleError, match=words):
        deploy(with_c, runtime="c")
    assert runtime_main(["serve", str(with_c), "--port", "9", "--runtime", "c"]) == 2
    assert re.search(words, capsys.readouterr().err.splitlines()[-1])
    monkeypatch.setattr(proof, "MOST_BYTES", 1)  # then only `verify` compares
    bundle = open_bundle(with_c)
    proof.prove(bundle, BundlePolicy(bundle, "c"))


@needs_compiler
def test_a_policy_process_runs_c(with_c):
    policy, rows = played(with_c, "c")
    seal(with_c, {**manifest(), "c": {"outputs_sha256": outputs_digest(policy.manifest, rows)}})
    opened, robot = open_bundle(with_c), ToyRobot()
    with policy_process(with_c, opened.manifest, policy_runtime="c") as link:
        assert Driver(link, opened.manifest, misses=1000).run(robot, 20.0) is None
    assert any(command is not None for command in robot.commands)
