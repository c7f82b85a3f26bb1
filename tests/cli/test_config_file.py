"""Options from a TOML file."""

import pytest

from robopolicy.cli import command, commands
from robopolicy.cli.config_file import expanded
from robopolicy.cli.declared import options

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
    assert expanded(["run", "--config", str(path)], command("report")) == ["run", "--video"]
    path.write_text('attention = ["softmax", "positive(m=8)"]')
    words = expanded(["--config", str(path)], command("flops"))
    assert words == ["--attention", "softmax", "--attention", "positive(m=8)"]


def test_a_run_with_the_name_of_an_option_hides_no_setting(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("seed = 5")
    words = expanded(["seed", "--config", str(path)], command("evaluate"))
    assert words == ["seed", "--seed", "5"]


def test_values_may_be_whole_numbers_for_numbers_and_one_value_for_a_list(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('sigma = 1\npreset = "hard"\nadvance-at = [3, 6.5]\nstop-at = "None"')
    words = expanded(["--config", str(path)], command("train es"))
    assert words == ["--sigma", "1", "--preset", "hard", "--advance-at", "3", "6.5", "--stop-at", "None"]


@pytest.mark.parametrize("name", commands())
def test_every_option_refuses_a_value_of_no_type(refused, tmp_path, name):
    path = tmp_path / "mine.toml"
    for option in options(command(name)):
        path.write_text(f"{option.name} = 2026-01-01")
        said = refused(*name.split(), "--config", str(path))
        assert f"mine.toml': {option.name} is datetime.date(2026, 1, 1): it must be " in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[search]\nsigmma = 1", "did you mean 'sigma'?"),
        ("[serch]\nsigma = 1", "did you mean 'search'?"),
        ("sigma = ", "is not TOML"),
        (b"\xff", "is not TOML"),
        ("sigma = 2026-01-01", "sigma is "),
        ("[search.sigma]\nx = 1", "sigma is "),
        ("preset = []", "preset is []: it must be a list of one or more texts"),
        ("preset = [1]", "preset is [1]: it must be a list of one or more texts"),
        ("population = '4'", "mine.toml': population is '4': it must be a whole number"),
        ("population = 4.0", "population is 4.0: it must be a whole number"),
        ("population = [4]", "population is [4]: it must be a whole number"),
        ("population = true", "population is True: it must be a whole number"),
        ("sigma = '0.3'", "sigma is '0.3': it must be a number"),
        ("episodes = [1, '2']", "episodes is [1, '2']: it must be a list of one or more whole numbers"),
        ("normalise = 'true'", "normalise is 'true': it must be true or false"),
        ("engine = 3", "engine is 3: it must be text"),
        ("strategy = '--json'", "strategy is '--json': text must not be empty or begin with -"),
        ("strategy = ''", "strategy is '': text must not be empty or begin with -"),
        ("[search]\nsigma = 1\n[policy]\nsigma = 2", "[search] sigma and [policy] sigma are one setting"),
        ("stop-at = 1\nstop_at = 2", "mine.toml': stop-at and stop_at are one setting: give it once"),
        ("env = 'spot:Spot-v0'\ntask = 'recorded'", "env and task are one setting: give it once"),
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
        (("--config=",), "--config needs the path"),
        (("--config", "--seed", "1"), "--config needs the path"),
        (("--config", "none.toml"), "none.toml"),
        (("--config", "a.toml", "--config", "b.toml"), "--config is given 2 times"),
    ],
)
def test_a_file_must_be_named_once(refused, words, message):
    assert message in refused("train", "es", "--out", "run", *words)
