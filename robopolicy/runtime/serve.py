"""The policy's side: answers a robot's observations until the robot sends STOP."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.golden import read_golden
from robopolicy.runtime.link import LOOPBACK, PATIENCE, Link, connect
from robopolicy.runtime.policy import ONNX, BundlePolicy, C
from robopolicy.runtime.proof import prove
from robopolicy.runtime.protocol import Kind, ProtocolError, encode, pack, unpack
from robopolicy.settings import check_count, check_number

SILENCE, SHORTEST_SILENCE, LONGEST_SILENCE = 5.0, 1e-3, 1e6  # s
WARM_UP = 5  # calls


def serve(
    folder: str | Path,
    port: int,
    host: str = LOOPBACK,
    silence: float = SILENCE,
    patience: float = PATIENCE,
    on_progress: Callable[[str], None] = lambda _: None,
    runtime: str = ONNX,
) -> int:
    """Connect to the robot at `host`:`port`, answer it with the bundle in `folder`, and count the commands.

    The robot is lost after `silence` seconds without a message, or if it does not accept the connection
    within `patience` seconds. `on_progress` is called with a short text before each stage. The `runtime` c
    compiles the policy, and checks its outputs over the golden vectors by the manifest's hash; see `proof`.

    Raises ValueError for a port, silence or runtime out of range, CompilerError without a C compiler or if it
    fails, BundleError or FileNotFoundError for a bad bundle or other outputs than the hash's,
    ConnectionError if the robot is lost, ProtocolError for a bad message or observation, and ArithmeticError
    if the policy fails. The robot gets the last two as a STOP.
    """
    check_count("port", port, 1, 2**16 - 1)
    check_number("silence", silence, SHORTEST_SILENCE, LONGEST_SILENCE)
    on_progress(f"loading {folder}")
    bundle = open_bundle(folder)
    policy = BundlePolicy(bundle, runtime)
    if runtime == C:
        prove(bundle, policy)
    warm_up = policy.replay()
    for observation, _ in islice(read_golden(bundle), WARM_UP):
        warm_up(observation)
    policy.reset()
    gc.collect()
    gc.freeze()  # so that no collection in a step walks through all modules
    on_progress(f"connecting to {host}:{port}")
    with connect(bundle.manifest, host, port, patience) as link:
        on_progress("connected, answering observations")
        try:
            return _answer(link, policy, silence)
        except (ProtocolError, ArithmeticError) as error:
            link.close(str(error))
            raise


def _answer(link: Link, policy: BundlePolicy, silence: float) -> int:
    manifest = policy.manifest
    command_of = {"command": manifest.outputs["command"]}
    sequence = answered = 0
    while True:
        message = link.receive(time.monotonic() + silence)
        if message is None:
            raise ConnectionError(f"the robot has been silent for {silence:g} s")
        message = link.newest(message)  # an answer to an older observation would be too late
        if message.kind is Kind.STOP:
            return answered
        if message.kind is Kind.BEGIN:
            policy.reset()
            continue
        began = time.monotonic_ns()
        if message.kind is not Kind.OBSERVATION or message.sequence <= sequence:
            raise ProtocolError(
                f"{message.kind.name} {message.sequence} must not follow observation {sequence}"
            )
        sequence = message.sequence
        try:
            command = policy.act(unpack(manifest.inputs, message.payload))
        except ValueError as error:
            raise ProtocolError(f"the policy refuses an observation: {error}") from error
        payload = pack(command_of, {"command": command})
        link.send(encode(Kind.COMMAND, sequence, time.monotonic_ns() - began, payload))
        answered += 1
