"""A policy in a process of its own, as the robot's side starts and ends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from robopolicy.runtime.link import LOOPBACK, PATIENCE, Link, accept, listen
from robopolicy.runtime.manifest import Manifest

STARTING = 3 * PATIENCE  # s, to read and check a bundle on a slow disk
ENDING = 5.0  # s


@contextmanager
def policy_process(
    folder: str | Path, manifest: Manifest, on_refused: Callable[[str], None] = lambda _: None
) -> Iterator[Link]:
    """The connection to a process that holds the bundle in `folder` and imports the runtime alone.

    Both ends are on this machine; the process ends with the block. `on_refused` is told of others who
    connected. Raises ConnectionError where the process does not come up; it tells the reason itself.
    """
    with listen(LOOPBACK) as door:
        port = door.getsockname()[1]
        # -P: what lies in the folder that this was started in is not imported.
        words = [sys.executable, "-P", "-m", "robopolicy.runtime", "serve", str(folder), "--port", str(port)]
        process = subprocess.Popen(words)
        try:
            with accept(door, manifest, STARTING, on_refused, lambda: process.poll() is None) as link:
                door.close()
                yield link
                link.close("the drive has ended")
        finally:
            try:
                process.wait(timeout=ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def awaited_policy(
    host: str,
    port: int,
    manifest: Manifest,
    patience: float,
    on_waiting: Callable[[int], None] = lambda _: None,
    on_refused: Callable[[str], None] = lambda _: None,
) -> Iterator[Link]:
    """The connection to a policy that is started by somebody else, as on another computer of the robot.

    `on_waiting` is told the port. Raises ConnectionError where none has come within `patience` seconds.
    """
    with listen(host, port) as door:
        on_waiting(door.getsockname()[1])
        with accept(door, manifest, patience, on_refused) as link:
            door.close()
            yield link
            link.close("the drive has ended")
