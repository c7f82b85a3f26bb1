"""The policy's side: answers a robot's observations until it hangs up."""

from __future__ import annotations

import gc
import time
from itertools import islice
from pathlib import Path

from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.golden import read_golden
from robopolicy.runtime.link import LOOPBACK, PATIENCE, Link, connect
from robopolicy.runtime.policy import Policy
from robopolicy.runtime.protocol import Kind, ProtocolError, encode, pack, unpack

SILENCE, LONGEST_SILENCE = 5.0, 1e6  # s
WARM_UP = 5  # calls


def serve(
    folder: str | Path,
    port: int,
    host: str = LOOPBACK,
    silence: float = SILENCE,
    patience: float = PATIENCE,
) -> int:
    """Answer the robot at `host`:`port` by the bundle in `folder`; returns how many commands were given.

    Raises ValueError for arguments that cannot be, BundleError or FileNotFoundError for what is no sound
    bundle, ConnectionError where the robot is gone or silent for `silence` seconds, ProtocolError for what it
    must not send, observations that the policy refuses included, of which the robot is told, ArithmeticError
    where the policy fails.
    """
    if not 0 < port < 2**16:
        raise ValueError(f"port is {port}: it must be from 1 to 65535")
    if not 0 < silence <= LONGEST_SILENCE:
        raise ValueError(
            f"silence is {silence}: it must be a number of seconds above 0, at most {LONGEST_SILENCE:g}"
        )
    bundle = open_bundle(folder)
    policy = Policy(bundle)
    for observation, _ in islice(read_golden(bundle), WARM_UP):
        policy.act(observation)
    gc.collect()
    gc.freeze()  # what was loaded is never looked at again, in the middle of a step
    with connect(bundle.manifest, host, port, patience) as link:
        try:
            return _answer(link, policy, silence)
        except (ProtocolError, ArithmeticError) as error:
            link.close(str(error))
            raise


def _answer(link: Link, policy: Policy, silence: float) -> int:
    manifest = policy.manifest
    command_of = {"command": manifest.outputs["command"]}
    sequence = answered = 0
    while True:
        message = link.receive(time.monotonic() + silence)
        if message is None:
            raise ConnectionError(f"the robot has been silent for {silence:g} s")
        message = link.newest(message)  # an answer to an older one would come too late
        if message.kind is Kind.STOP:
            return answered
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
