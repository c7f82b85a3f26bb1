"""A page about runs as one file: film, curves, evaluation, FLOPs, settings, versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2

from robopolicy.envs.registry import task_class
from robopolicy.experiments import report_sections as sections
from robopolicy.experiments.environments import Environment, others_of
from robopolicy.experiments.evaluation import FIRST_SEED, evaluate, seeds_from
from robopolicy.experiments.films import check_size, film
from robopolicy.experiments.flop_table import row, subject
from robopolicy.experiments.learning_curves import Run, all_logged, groups
from robopolicy.experiments.output_files import check_file
from robopolicy.experiments.provenance import git_revision, versions
from robopolicy.experiments.runs import check_no_baseline, load, played_on
from robopolicy.experiments.stored_evaluations import stored_evaluation
from robopolicy.viz.report import Film, page
from robopolicy.viz.video import still
from robopolicy.writing import scratch, write_atomically

PLAYED = 20  # episodes of a run without a stored evaluation


def report(
    names: Sequence[str],
    out: Path,
    *,
    episodes: int | None = None,
    seed: int = FIRST_SEED,
    engine: str | None = None,
    preset: str | None = None,
    episode_seconds: float | None = None,
    renderer: str | None = None,
    robot: str | None = None,
    video: bool = True,
    size: tuple[int, int] = (640, 360),
    command: Callable[[str | None], str] = lambda engine: "robopolicy.experiments.reporting.report",
    on_play: Callable[[int], None] = lambda episodes: None,
    on_episode: Callable[[], None] = lambda: None,
    on_film: Callable[[str], None] = lambda name: None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Write a page about runs as one file that loads nothing else.

    Args:
      names: runs of one task, all trained in the same way.
      out: the .html to write.
      episodes: unseen episodes of each run; 0 for none. Default: the evaluation stored beside a run, unless
        other settings are given, or 20.
      seed: seed of the first episode, which is also the one in the film.
      engine, preset, episode_seconds, renderer, robot: of the episodes; None for those of the first run and
        its task.
      video: make films.
      size: width and height of a film, both even, in pixels.
      command: from the engine to the command line that the page shows.
      on_play: called with the number of episodes before they are played.
      on_episode: called after each episode.
      on_film: called with a run's name before it is filmed.
      say: called with a line about each stored evaluation of another checkpoint, which is left out.

    Returns the page's path and size and the evaluations. Raises ValueError or FileNotFoundError, in one line,
    for bad input.
    """
    check_file("out", out, (".html",))
    seeds = seeds_from(seed, PLAYED if episodes is None else episodes, fewest=0)
    check_size(size)
    runs = all_logged(names)
    check_no_baseline(names, runs[0].config["task"])
    environment = played_on(names, None, engine, preset, episode_seconds, renderer, others_of(robot=robot))
    for run in runs:
        load(run.name)
    environment.showing({}).make().close()
    evaluations: list[dict[str, Any] | None] = [None] * len(runs)
    if episodes is None and episode_seconds is None and renderer is None and seed == FIRST_SEED:
        evaluations = [stored_evaluation(run.name, environment, say) for run in runs]
    missing = [place for place, result in enumerate(evaluations) if result is None] if seeds else []
    if missing:
        on_play(len(missing) * len(seeds))
    for place in missing:
        evaluations[place] = evaluate(runs[place].name, environment, seeds, on_episode=on_episode).summary()
    with scratch() as folder:
        films: list[Film | None] = [None] * len(runs)
        for number, run in enumerate(runs if video else ()):
            on_film(run.name)
            films[number] = _film(run, environment, folder / f"{number}.mp4", seed, size)
        prices = [row(subject(run.name), per_second=False) for run in runs]
        grouped = groups(runs)
        parts = [
            sections.curves(grouped, folder),
            *sections.evaluation(grouped, runs, evaluations),
            sections.flops(runs, prices, folder),
            sections.settings(runs),
            sections.made_with(runs, versions(), git_revision()),
        ]
        cards = [sections.card(*card) for card in zip(runs, evaluations, prices, films, strict=True)]
        count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
        lead = f"{'; '.join(group.label for group in grouped)}: {count}"
        foot = f"Written by robopolicy {versions()['robopolicy']}: {command(environment.engine)}"
        write_atomically(out, page(environment.task, lead, cards, parts, foot))
    return {
        "out": str(out),
        "bytes": out.stat().st_size,
        "task": runs[0].config["task"],
        "evaluations": [
            evaluation and evaluation | {"policy": run.name}
            for run, evaluation in zip(runs, evaluations, strict=True)
        ],
    }


def _film(run: Run, environment: Environment, video: Path, seed: int, size: tuple[int, int]) -> Film:
    (episode,) = film([run.name], environment, video, seed=seed, size=size)
    poster = video.with_suffix(".jpg")
    poster.write_bytes(cv2.imencode(".jpg", still(video)[..., ::-1])[1].tobytes())
    declared = task_class(environment.task).outcomes
    outcomes = ", ".join(outcome.phrase.format(episode[outcome.name]) for outcome in declared)
    ending = f"return {episode['return']:.2f}, ended by {episode['cause']}"
    return Film(video, poster, f"Seed {seed}: {outcomes}, {ending}")
