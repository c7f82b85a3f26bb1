"""Live progress on stderr: a bar on a terminal, one line a generation anywhere else."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Record = dict[str, Any]


class TrainingProgress:
    """Told of episodes and generations, it shows returns, speed and the time that is left."""

    def __init__(self, config: Any, environments: int, title: str) -> None:
        self._console = Console(file=sys.stderr)
        self._total = config.generations
        self._per_generation = config.population * config.episodes * environments
        self._title = title
        self._began = time.monotonic()
        self._generations = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} episodes"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        self.say(f"Training {self._title}: {self._total} generations of {self._per_generation} episodes")
        self._bar.start()
        self._task = self._bar.add_task("generation 1", total=self._total * self._per_generation)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def episode(self) -> None:
        """One more episode is in."""
        self._bar.advance(self._task)

    def generation(self, record: Record) -> None:
        """One more generation is done."""
        self._generations += 1
        number = record["generation"]
        per_generation = (time.monotonic() - self._began) / self._generations
        left = per_generation * (self._total - number)
        parts = [f"generation {number:4d}/{self._total}"]
        parts.append(f"return mean {record['return_mean']:6.2f} best {record['return_best']:6.2f}")
        for name, value in record.items():
            if name.endswith("/distance"):
                parts.append(f"{name.removesuffix('/distance')} {value:.2f} m")
        parts.append(f"{record['episodes_per_second']:.1f} episodes/s")
        parts.append(f"left {int(left) // 60}:{int(left) % 60:02d}")
        self.say("  ".join(parts))
        self._bar.update(
            self._task,
            completed=number * self._per_generation,
            description=f"generation {min(number + 1, self._total)}",
        )
