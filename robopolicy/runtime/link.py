"""The TCP connection between a robot and a policy."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from socket import AF_INET, AF_INET6

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
LONGEST_QUEUE = 16  # complete messages; a peer that sends more floods this end
PATIENCE = 10.0  # s, for a peer to connect and send its HELLO
HELLO = 0.5  # s, for a peer's HELLO once it has connected: the next one waits meanwhile
SENDING = 1.0  # s, for a peer to accept a message


class Link:
    """One end of a connection. Raises ConnectionError or ProtocolError, in one line."""

    def __init__(self, peer: socket.socket, lengths: Mapping[Kind, tuple[int, int]]) -> None:
        """`lengths` are the shortest and longest payload (bytes) of each kind that the peer may send."""
        with suppress(OSError):  # of a peer that has gone already: the first message finds that
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer = peer
        self._decoder = Decoder({Kind.HELLO: (DIGEST, DIGEST), Kind.STOP: (0, LONGEST_REASON), **lengths})
        self._ready: deque[Message] = deque()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, content: bytes, patience: float = SENDING) -> None:
        """Send a message. Raises ConnectionError if the peer does not accept it within `patience` seconds."""
        self._peer.settimeout(patience)
        try:
            self._peer.sendall(content)
        except TimeoutError as error:
            raise ConnectionError(f"the peer accepts no data: waited {patience:g} s") from error
        except OSError as error:
            raise ConnectionError(f"the connection is lost: {error.strerror}") from error

    def receive(self, until: float) -> Message | None:
        """The next message, or None if none arrives before `until` (s of `time.monotonic`)."""
        while not self._ready:
            left = until - time.monotonic()
            if left <= 0 or not self._read(left):
                return None
        return self._ready.popleft()

    def newest(self, message: Message) -> Message:
        """The last of `message` and all that have arrived after it, or the first STOP or BEGIN among them."""
        kept = (Kind.STOP, Kind.BEGIN)
        while message.kind not in kept and (self._ready or (self._read(0.0) and self._ready)):
            message = self._ready.popleft()
        return message

    def _read(self, seconds: float) -> bool:
        """Read from the socket for up to `seconds`. Returns whether any data arrived."""
        self._peer.settimeout(seconds)
        try:
            data = self._peer.recv(CHUNK)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            raise ConnectionError(f"the connection is lost: {error.strerror}") from error
        if not data:
            pending = self._decoder.pending
            cut = f" in the middle of a message, after {pending} bytes" if pending else ""
            raise ConnectionError(f"the peer has closed the connection{cut}")
        self._ready.extend(self._decoder.feed(data))
        if len(self._ready) > LONGEST_QUEUE:
            raise ProtocolError(f"the peer floods this end: {len(self._ready)} messages wait")
        return True

    def greet(self, manifest: Manifest, until: float) -> None:
        """Exchange HELLO messages, and check that both ends have the same digest."""
        self.send(encode(Kind.HELLO, payload=manifest.digest))
        message = self.receive(until)
        if message is None:
            raise ProtocolError("the peer sends no HELLO")
        if message.kind is Kind.STOP:
            raise ConnectionError(f"the peer refuses: {message.reason}")
        if message.kind is not Kind.HELLO:
            raise ProtocolError(f"the peer begins with {message.kind.with_article}: a HELLO must come first")
        if message.payload != manifest.digest:
            raise ProtocolError("robot and policy have different bundles")

    def close(self, reason: str | None = None) -> None:
        """Close the connection, after a STOP with `reason` if there is one."""
        if reason is not None:
            with suppress(ConnectionError):  # the peer may be gone
                self.send(stop(reason))
        self._peer.close()


def listen(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A socket for policies to connect to; port 0 takes a free one. Raises ValueError."""
    try:
        return socket.create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ValueError(f"host is {host!r} and port {port}: cannot listen there ({error})") from error


def accept(
    server: socket.socket,
    manifest: Manifest,
    patience: float = PATIENCE,
    on_refused: Callable[[str], None] = lambda _: None,
    alive: Callable[[], bool] = lambda: True,
) -> Link:
    """Wait for a policy with the digest of `manifest`, and return the robot's end of the connection.

    Other peers are refused; `on_refused` is called with each reason. `alive` tells whether a policy may still
    connect. Raises ConnectionError once it returns False, or after `patience` seconds.
    """
    until = time.monotonic() + patience
    while (left := until - time.monotonic()) > 0:
        if not alive():
            raise ConnectionError("the policy has ended before it connected")
        server.settimeout(min(left, 0.2))
        try:
            peer, address = server.accept()
        except TimeoutError:
            continue
        except ConnectionAbortedError:  # a peer that has gone already
            continue
        link = Link(peer, {Kind.COMMAND: (manifest.outputs["command"].size,) * 2})
        try:
            link.greet(manifest, min(until, time.monotonic() + HELLO))
            return link
        except (ProtocolError, ConnectionError) as error:
            link.close(str(error))
            on_refused(f"refused {address[0]}:{address[1]}: {error}")
    raise ConnectionError(f"no policy has connected within {patience:g} s")


def connect(manifest: Manifest, host: str, port: int, patience: float = PATIENCE) -> Link:
    """Connect to a robot, and return the policy's end of the connection.

    Raises ConnectionError if no robot answers, ProtocolError if it has another digest than `manifest`.
    """
    until = time.monotonic() + patience
    try:
        peer = socket.create_connection((host, port), timeout=patience)
    except (OSError, UnicodeError) as error:
        raise ConnectionError(f"no robot answers at {host}:{port}: {error}") from error
    link = Link(peer, {Kind.OBSERVATION: (payload_size(manifest.inputs),) * 2, Kind.BEGIN: (0, 0)})
    try:
        link.greet(manifest, until)
    except (ProtocolError, ConnectionError) as error:
        link.close(str(error))
        raise
    return link
