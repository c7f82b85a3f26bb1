"""The robot's connection to a policy that runs in another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any

from robopolicy.runtime.link import PATIENCE, Link, accept, listen
from robopolicy.runtime.manifest import Manifest
from robopolicy.runtime.policy import ONNX
from robopolicy.runtime.serve import LONGEST_SILENCE

STARTING = 3 * PATIENCE  # s, to read, check and compile a bundle on a slow disk
ENDING = 5.0  # s


@contextmanager
def policy_process(
    folder: str | Path,
    manifest: Manifest,
    on_refused: Callable[[str], None] = lambda _: None,
    policy_runtime: str = ONNX,
) -> Iterator[Link]:
    """Start `robopolicy.runtime serve` for the bundle in `folder` on this machine, and connect to it.

    The process imports the runtime only, and ends with the block. `on_refused` gets a message for every other
    peer. `policy_runtime` is onnx or c. Raises ConnectionError if the process does not start; it prints the
    reason itself.
    """
    with listen() as server:
        # -P keeps Python from importing modules in the current folder.
        runtime = [sys.executable, "-P", "-m", "robopolicy.runtime"]
        # Finding a robot and its rise take long. The policy's process ends with this one anyway.
        words = ["serve", str(folder), "--port", str(server.getsockname()[1]), "--runtime", policy_runtime]
        words += ["--silence", f"{LONGEST_SILENCE:g}"]
        # Ctrl-C in a terminal reaches this process alone, which then ends the policy.
        process = subprocess.Popen([*runtime, *words], start_new_session=True)
        try:
            with _connected(server, manifest, STARTING, on_refused, lambda: process.poll() is None) as link:
                yield link
        except KeyboardInterrupt:
            process.terminate()  # one that has not connected yet would wait for this end
            raise
        finally:
            try:
                process.wait(timeout=ENDING)
            except subprocess.TimeoutExpired:
                pass
            finally:
                process.kill()
                process.wait()


@contextmanager
def remote_policy(
    host: str,
    port: int,
    manifest: Manifest,
    patience: float,
    on_listening: Callable[[int], None] = lambda _: None,
    on_refused: Callable[[str], None] = lambda _: None,
) -> Iterator[Link]:
    """Wait for a policy that was started separately, for example on another computer of the robot.

    `on_listening` gets the port, `on_refused` a message for every other peer. Raises ConnectionError if no
    policy connects within `patience` seconds, and ValueError if it cannot listen at `host` and `port`.
    """
    with listen(host, port) as server:
        on_listening(server.getsockname()[1])
        with _connected(server, manifest, patience, on_refused) as link:
            yield link


@contextmanager
def _connected(server: socket, *settings: Any) -> Iterator[Link]:
    """The link that `accept` returns; the policy gets a STOP at the end of the block."""
    with accept(server, *settings) as link:
        server.close()
        try:
            yield link
        finally:
            link.close("the drive has ended")
