"""A connection between a robot and a policy, over TCP."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from socket import AF_INET, AF_INET6
from types import TracebackType

from robopolicy.runtime.manifest import Manifest
from robopolicy.runtime.protocol import (
    DIGEST,
    LONGEST_REASON,
    Decoder,
    Kind,
    Message,
    ProtocolError,
    encode,
    payload_size,
    stop,
)

LOOPBACK = "127.0.0.1"
CHUNK = 2**18  # bytes
MOST_WAITING = 16  # complete messages: a peer that sends more than it is asked for is not listened to
PATIENCE = 10.0  # s, for a peer to come and to say who it is
HELLO = 0.5  # s, for whoever knocks to say who it is: others wait behind
SENDING = 1.0  # s, for a peer to take what it is sent


class Link:
    """One end. Errors of network and protocol are ConnectionError and ProtocolError, in one line."""

    def __init__(self, peer: socket.socket, lengths: Mapping[Kind, tuple[int, int]]) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer = peer
        self._decoder = Decoder({Kind.HELLO: (DIGEST, DIGEST), Kind.STOP: (0, LONGEST_REASON), **lengths})
        self._ready: deque[Message] = deque()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, content: bytes, patience: float = SENDING) -> None:
        """Send a message; raises ConnectionError where the peer is gone, or has not taken it in time (s)."""
        self._peer.settimeout(patience)
        try:
            self._peer.sendall(content)
        except TimeoutError as error:
            raise ConnectionError(f"the peer takes nothing any more: it was given {patience:g} s") from error
        except OSError as error:
            raise ConnectionError(f"the connection is lost: {error.strerror}") from error

    def receive(self, until: float) -> Message | None:
        """The next message, or None where there is none at `until` (s of `time.monotonic`)."""
        while not self._ready:
            left = until - time.monotonic()
            if left <= 0 or not self._listen(left):
                return None
        return self._ready.popleft()

    def newest(self, message: Message) -> Message:
        """`message`, or the last one that has come since, or the STOP among them."""
        while message.kind is not Kind.STOP and (self._ready or self._listen(0.0)):
            if not self._ready:  # a part of a message, which is waited for by whoever comes next
                break
            message = self._ready.popleft()
        return message

    def _listen(self, seconds: float) -> bool:
        """Read what there is within `seconds`; whether there was anything."""
        self._peer.settimeout(seconds)
        try:
            data = self._peer.recv(CHUNK)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            raise ConnectionError(f"the connection is lost: {error.strerror}") from error
        if not data:
            cut = (
                f" in the middle of a message, after {self._decoder.pending} bytes"
                if self._decoder.pending
                else ""
            )
            raise ConnectionError(f"the peer has closed the connection{cut}")
        self._ready.extend(self._decoder.feed(data))
        if len(self._ready) > MOST_WAITING:
            raise ProtocolError(f"the peer floods this end: {len(self._ready)} messages wait")
        return True

    def greet(self, manifest: Manifest, until: float) -> None:
        """Say which bundle this end is for, and hear the same from the other."""
        self.send(encode(Kind.HELLO, payload=manifest.digest))
        message = self.receive(until)
        if message is None:
            raise ProtocolError("the peer does not say who it is")
        if message.kind is Kind.STOP:
            raise ConnectionError(f"the peer refuses: {message.reason}")
        if message.kind is not Kind.HELLO:
            raise ProtocolError(f"the peer begins with a {message.kind.name}: a HELLO must come first")
        if message.payload != manifest.digest:
            raise ProtocolError("robot and policy were set up for different bundles")

    def close(self, reason: str | None = None) -> None:
        """Hang up; `reason` is told to the peer where it still listens."""
        if reason is not None:
            with suppress(ConnectionError):  # whoever has gone needs no reason
                self.send(stop(reason))
        self._peer.close()


def listen(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A socket that policies can connect to; port 0 takes any that is free. Raises ValueError."""
    try:
        return socket.create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ValueError(f"host is {host!r} and port {port}: nobody can listen there ({error})") from error


def accept(
    door: socket.socket,
    manifest: Manifest,
    patience: float = PATIENCE,
    on_refused: Callable[[str], None] = lambda _: None,
    alive: Callable[[], bool] = lambda: True,
) -> Link:
    """The robot's end, once a policy for `manifest` has come; others are turned away, told to `on_refused`.

    Raises ConnectionError where none has come within `patience` seconds, or `alive` says that none will.
    """
    until = time.monotonic() + patience
    while alive() and (left := until - time.monotonic()) > 0:
        door.settimeout(min(left, 0.2))
        try:
            peer, address = door.accept()
        except TimeoutError:
            continue
        link = Link(peer, {Kind.COMMAND: (manifest.outputs["command"].size,) * 2})
        try:
            link.greet(manifest, min(until, time.monotonic() + HELLO))
            return link
        except (ProtocolError, ConnectionError) as error:
            link.close(str(error))
            on_refused(f"{address[0]}:{address[1]} was turned away: {error}")
    raise ConnectionError(f"no policy has connected within {patience:g} s")


def connect(manifest: Manifest, host: str, port: int, patience: float = PATIENCE) -> Link:
    """The policy's end. Raises ConnectionError or ProtocolError where no robot for `manifest` answers."""
    until = time.monotonic() + patience
    try:
        peer = socket.create_connection((host, port), timeout=patience)
    except (OSError, UnicodeError) as error:
        raise ConnectionError(f"no robot answers at {host}:{port}: {error}") from error
    link = Link(peer, {Kind.OBSERVATION: (payload_size(manifest.inputs),) * 2})
    try:
        link.greet(manifest, until)
    except (ProtocolError, ConnectionError) as error:
        link.close(str(error))
        raise
    return link
