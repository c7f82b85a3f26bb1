"""`robopolicy report`: a page about runs that needs nothing else."""

import json
import shutil
from html.parser import HTMLParser

import pytest
from installed_engines import needs_bullet
from made_runs import evaluation

from robopolicy.cli import main
from robopolicy.costs.flops import count_step
from robopolicy.experiments import reporting
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluation import Evaluation
from robopolicy.experiments.runs import find_run
from robopolicy.policies.catalogue import blank_policy, restore
from robopolicy.training.rollout import Episode

ANGULAR, SOFTMAX, SWEEP = "stepping-stones-angular-8x8", "stepping-stones-softmax", "bimanual-sweep-angular"
EVIL = '"><script>document.title="owned"</script><img src=x onerror=alert(1)>$a_$'
QUICK = ("--no-video", "--episodes", "0")


class Page(HTMLParser):
    """The tags of a page, what they refer to, and its words."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.words = set(), [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.links += [v for name, v in attributes if name in ("src", "srcset", "href", "poster")]
        assert not [name for name, _ in attributes if name.startswith("on")]

    def handle_data(self, data):
        self.words += data


@pytest.fixture
def copied(tmp_path):
    """Copies a shipped policy under a name, its config changed; returns the folder."""

    def copy(name, run, change=lambda config: None):
        folder = tmp_path / run
        shutil.copytree(find_run(name)[0], folder)
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return copy


@pytest.fixture
def reported(capsys, tmp_path):
    """Writes a report; returns its page, and what the command says as JSON."""

    def run(*words):
        capsys.readouterr()
        out = tmp_path / "pages" / "report.html"
        out.parent.mkdir(exist_ok=True)
        assert main(["report", *words, "--out", str(out), "--json"]) == 0
        assert [path.name for path in out.parent.iterdir()] == ["report.html"]
        return Page(out.read_text()), json.loads(capsys.readouterr().out)

    return run


@needs_bullet
@pytest.mark.slow
def test_a_page_is_self_contained_and_describes_its_run(reported):
    page, said = reported(SWEEP, "--no-video")
    assert page.links
    assert all(link.startswith("data:") for link in page.links)
    kept = json.loads((find_run(SWEEP)[0] / "evaluation.json").read_text())["bullet"]
    (evaluation,) = said["evaluations"]
    assert evaluation["returns"] == kept["returns"]
    config = json.loads((find_run(SWEEP)[0] / "config.json").read_text())
    price = f"{count_step(blank_policy(restore(config['policy']))).total:,}"
    rates = [f"{100 * kept[name]:.1f}%" for name in ("success_rate", "fraction_in_bowls_mean")]
    for words in (*rates, "9000 to 9049", "cloning, 2000 steps", price, "bc/negatives",
                  config["git"]["commit"][:12], config["versions"]["jax"]):  # fmt: skip
        assert words in page.words, words


@pytest.mark.slow
def test_runs_stand_side_by_side_and_seeds_have_a_spread(reported, copied):
    second = copied(ANGULAR, "second", lambda config: config["es"].update(seed=1))
    page, said = reported(ANGULAR, SOFTMAX, second, "--no-video", "--engine", "mujoco")
    assert [evaluation["policy"] for evaluation in said["evaluations"]] == [ANGULAR, SOFTMAX, second]
    for words in (
        "softmax",
        "seeds of training",
        "0, 1",
        "100.0% ± 0.0%",
        "Settings in which the runs differ",
    ):
        assert words in page.words, words


@pytest.mark.slow
def test_a_copy_of_a_run_is_no_second_seed(reported, copied):
    page, _ = reported(ANGULAR, copied(ANGULAR, "copy"), "--no-video", "--engine", "mujoco")
    assert "seeds of training" not in page.words


@pytest.mark.slow
def test_no_word_of_a_run_becomes_code(reported, copied):
    def change(config):
        config["es"]["shaping"] = config["versions"]["numpy"] = config["git"]["commit"] = EVIL
        config["es"][EVIL] = [EVIL, {EVIL: EVIL}]
        config["es"]["seed"] = EVIL

    page, _ = reported(copied(ANGULAR, EVIL.replace("/", ""), change), *QUICK)
    assert not page.tags & {"script", "iframe", "object", "link rel=stylesheet"}
    assert all(link.startswith("data:") for link in page.links)
    assert EVIL in page.words


@pytest.mark.slow
def test_the_same_runs_give_the_same_page(tmp_path):
    pages = []
    for _ in range(2):
        assert main(["report", SOFTMAX, *QUICK, "--out", str(tmp_path / "report.html")]) == 0
        pages.append((tmp_path / "report.html").read_bytes())
    assert pages[0] == pages[1]


@pytest.mark.slow
def test_missing_evaluations_are_played(reported, monkeypatch):
    asked = []

    def evaluate(policy, environment, seeds, **hooks):
        asked.append((policy, environment, list(seeds)))
        infos = [{"success": total > 1, "cause": "goal", "distance": 4.0} for total in (1.0, 3.0)]
        episodes = tuple(
            Episode(total, 1, info, 0.1, {}) for total, info in zip((1.0, 3.0), infos, strict=True)
        )
        return Evaluation(policy, environment, tuple(seeds), episodes, ("distance",), 0.1)

    monkeypatch.setattr(reporting, "evaluate", evaluate)
    page, said = reported(SOFTMAX, "--no-video", "--preset", "hard", "--seed", "7", "--engine", "mujoco")
    page, said = reported(
        SOFTMAX, "--no-video", "--episodes", "2", "--episode-seconds", "1", "--engine", "mujoco"
    )
    hard = Environment("stepping-stones", "mujoco", "hard")
    short = Environment("stepping-stones", "mujoco", "paper", 1.0)
    assert asked == [(SOFTMAX, hard, list(range(7, 27))), (SOFTMAX, short, [9000, 9001])]
    assert said["evaluations"][0]["returns"] == [1.0, 3.0]
    for words in ("50.0%", "2.00 ± 1.00", "9000 to 9001", "goal 2"):
        assert words in page.words, words


@pytest.mark.slow
def test_a_stored_evaluation_of_another_checkpoint_is_left_out(capsys, tmp_path, copied, monkeypatch):
    runs = {name: copied(ANGULAR, name) for name in ("same", "other")}
    for name, checkpoint in (("same", 45), ("other", 44)):
        path = tmp_path / name / "evaluation.json"
        kept = json.loads(path.read_text())
        kept["mujoco"]["checkpoint"] = checkpoint
        path.write_text(json.dumps(kept))
    monkeypatch.setattr(reporting, "evaluate", lambda *asked, **hooks: evaluation(*asked, 1.0))
    out = str(tmp_path / "report.html")
    assert main(["report", *runs.values(), "--no-video", "--engine", "mujoco", "--out", out, "--json"]) == 0
    out, err = capsys.readouterr()
    same, other = json.loads(out)["evaluations"]
    assert same["returns"] == kept["mujoco"]["returns"]
    assert other["returns"][:2] == [1.0, 1.01]
    assert f"{runs['other']}: its evaluation on mujoco is left out: it is of checkpoint 44, not 45\n" in err
    assert "same: " not in err
    again = f"report {runs['same']} --no-video --engine mujoco --seed 5 --out {tmp_path / 'two.html'} --json"
    assert main(again.split()) == 0
    (asked,) = json.loads(capsys.readouterr().out)["evaluations"]
    assert asked["returns"][:2] == [1.0, 1.01]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "runs is empty"),
        (("nobody",), "run is 'nobody'"),
        ((ANGULAR, SWEEP), "trained by"),
        ((ANGULAR, ANGULAR), "each may occur once"),
        ((ANGULAR, "--episodes", "-1"), "episodes is -1"),
        ((ANGULAR, "--seed", "-1"), "seed is -1"),
        ((ANGULAR, "--size", "321", "240"), "size is (321, 240)"),
        ((ANGULAR, "--engine", "havok"), "havok"),
        ((ANGULAR, "--preset", "lava"), "lava"),
        ((ANGULAR, "--out", "report.pdf"), "out is 'report.pdf': its name must end in .html"),
        ((ANGULAR, "--out", "nowhere/report.html"), "does not exist"),
    ],
)
def test_bad_input_of_report_is_refused(refused, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused("report", *words, *(() if "--out" in words else ("--out", "report.html")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda kept: kept.pop("returns"), "lacks 'returns'"),
        (lambda kept: kept["returns"].pop(), "do not add up"),
        (lambda kept: kept.update(success_rate="high"), "holds 'high', which must be a finite number"),
        (lambda kept: kept.update(returns="1" * len(kept["returns"])), "holds '1', which must be"),
        (lambda kept: kept.update(return_mean=999.0), "its return_mean is 999.0, not the mean"),
        (lambda kept: kept.update(success_rate=7), "its success_rate is 7: it must be a share"),
        (lambda kept: kept["causes"].update(x=-1), "they must be counts"),
        (lambda kept: kept.pop("engine"), "is no evaluation: it lacks 'engine'"),
        (lambda kept: kept.update(causes=7), "is no evaluation: it must hold results by engine"),
    ],
)
def test_a_damaged_evaluation_is_refused(refused, tmp_path, copied, change, said):
    run = copied(ANGULAR, "run")
    path = tmp_path / "run" / "evaluation.json"
    kept = json.loads(path.read_text())
    change(kept["mujoco"])
    path.write_text(json.dumps(kept))
    out = str(tmp_path / "report.html")
    line = refused("report", run, "--no-video", "--engine", "mujoco", "--out", out)
    assert said in line
    assert str(path) in line


def test_a_run_without_a_policy_is_refused_before_any_work(refused, tmp_path, copied):
    run = copied(SOFTMAX, "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert "no checkpoint" in refused("report", run, "--out", str(tmp_path / "report.html"))
