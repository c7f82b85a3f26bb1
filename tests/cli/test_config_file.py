"""Options from a TOML file."""

import pytest

from robopolicy.cli import command
from robopolicy.cli.config_file import expanded

CONFIG = """
task = "stepping-stones"
[policy]
attention = "positive(m=64)"
head-dim = 4
normalise = true
[search]
population = 16
advance-at = [3.2, 6.0]
[environment]
preset = ["painted", "paper", "hard"]
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(CONFIG)
    return path


def pairs(words):
    """The words of each option."""
    found = {}
    for word in words:
        if word.startswith("--"):
            values = found[word] = []
        else:
            values.append(word)
    return found


def test_options_come_from_the_file_and_the_command_line_wins(config):
    words = ["--config", str(config), "--population", "4", "--out", "run"]
    assert pairs(expanded(words, command("train es"))) == {
        "--task": ["stepping-stones"],
        "--attention": ["positive(m=64)"],
        "--head-dim": ["4"],
        "--normalise": [],
        "--advance-at": ["3.2", "6.0"],
        "--preset": ["painted", "paper", "hard"],
        "--population": ["4"],
        "--out": ["run"],
    }
    words = expanded([f"--config={config}", "--env", "mine:Task-v0"], command("train es"))
    assert "--task" not in words  # --env is another spelling of it
    config.write_text('env = "mine:Task-v0"')
    assert expanded(["oracle", f"--config={config}"], command("evaluate"))[1:] == ["--task", "mine:Task-v0"]


def test_switches_and_repeated_options(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("video = false")
    assert expanded(["run", "--config", str(path)], command("report")) == ["run", "--no-video"]
    path.write_text("video = true")
    assert expanded(["run", "--config", str(path)], command("report")) == ["run"]
    path.write_text('attention = ["softmax", "positive(m=8)"]')
    words = expanded(["--config", str(path)], command("flops"))
    assert words == ["--attention", "softmax", "--attention", "positive(m=8)"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[search]\nsigmma = 1", "did you mean 'sigma'?"),
        ("[serch]\nsigma = 1", "did you mean 'search'?"),
        ("sigma = ", "is not TOML"),
        (b"\xff", "is not TOML"),
        ("sigma = 2026-01-01", "sigma is "),
        ("[search.sigma]\nx = 1", "sigma is "),
        ("preset = []", "preset is []"),
        ("[search]\npopulation = 'many'", "population"),
        ("[search]\npopulation = 1", "population is 1"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(refused, tmp_path, content, message):
    path = tmp_path / "mine.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refused("train", "es", "--out", str(tmp_path / "run"), "--config", str(path))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--config",), "--config needs the path"),
        (("--config", "none.toml"), "none.toml"),
        (("--config", "a.toml", "--config", "b.toml"), "--config is given 2 times"),
    ],
)
def test_a_file_must_be_named_once(refused, words, message):
    assert message in refused("train", "es", "--out", "run", *words)
