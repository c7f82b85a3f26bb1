"""Benchmarks that measure speed: each keeps its process on one core."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from installed_engines import each_engine

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(script, words):
    command = [sys.executable, str(BENCHMARKS / script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def measured(script, words):
    result = run(script, words)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
def test_attention_speed_compares_mechanisms_with_exact_softmax():
    words = "--attention positive(m=8) --tokens 16 1536 2048 --dims 4 --seconds 0.001 --json".split()
    rows = measured("attention_speed.py", words)
    timed = {(r["attention"], r["op"], r["tokens"]): r for r in rows}
    library = "jax.nn.dot_product_attention"
    operations = [("positive(m=8)", op) for op in ("map", "rank", "apply")]
    operations += [("softmax", "rank"), ("softmax", "apply"), (library, "apply")]
    assert set(timed) == {(*operation, tokens) for operation in operations for tokens in (16, 1536, 2048)}
    for (_, op, tokens), row in timed.items():
        assert row["dim"] == 4
        assert min(row["time_ms"], row["flops"], row["memory_bytes"]) > 0
        if op != "map":
            exact = timed["softmax", op, tokens]["time_ms"]
            assert row["vs_softmax"] == pytest.approx(exact / row["time_ms"])
    # Exact attention grows with the square of the tokens, the other in proportion.
    for name, power in (("softmax", 2), ("positive(m=8)", 1)):
        long, short = (timed[name, "apply", tokens]["flops"] for tokens in (2048, 1536))
        assert long / short == pytest.approx((2048 / 1536) ** power, rel=0.01)


@pytest.mark.slow
@each_engine
def test_env_speed_compares_the_stack_with_its_engine(engine):
    words = f"--engine {engine} --patch 4 --seconds 1 --preset painted --json".split()
    timed = measured("env_speed.py", words)
    assert timed["engine"] == engine
    assert timed["simulated_seconds"] >= 1.0
    assert timed["engine_real_time_factor"] > timed["real_time_factor"] > 0
    assert timed["ratio"] == pytest.approx(timed["engine_real_time_factor"] / timed["real_time_factor"])
    assert sum(timed["shares"].values()) == pytest.approx(1.0)
    assert min(timed["shares"].values()) > 0


def computed(program):
    """The JSON that a program prints last, beside the benchmarks."""
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
def test_batched_stones_times_a_step_and_its_parts():
    program = "import json; from batched_stones import by_batch; print('', json.dumps(by_batch([1], 0.01)))"
    (row,) = computed(program)
    assert min(row["milliseconds"], *row["parts_milliseconds"].values()) > 0
    assert row["steps_per_second"] == pytest.approx(1e3 / row["milliseconds"])


@pytest.mark.slow
def test_deployment_compares_onnx_with_jax_on_other_observations():
    program = "from deployment import *; print(json.dumps(compared('stepping-stones-planned', 3)))"
    found = computed(program)
    assert found["seeds"] == [100_000, 100_000]
    assert found["command"]["max"] <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words", "message"),
    [
        ("env_speed.py", ("--engine", "bulet"), "did you mean 'bullet'?"),
        ("env_speed.py", ("--seconds", "0"), "seconds is 0"),
        ("attention_speed.py", ("--attention", "positve(m=8)"), "did you mean 'positive'?"),
        ("attention_speed.py", ("--dims", "-8"), "dims is -8"),
    ],
)
def test_bad_input_is_one_line(script, words, message):
    result = run(script, words)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
