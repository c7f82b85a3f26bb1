"""Topics of a DDS network: Unitree's records, and the depth images of ROS 2, by Cyclone DDS."""

# Without postponed annotations: Cyclone DDS reads those of message types.
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
from cyclonedds.core import DDSException, InstanceState, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct, annotations, make_idl_struct
from cyclonedds.idl import types as idl_types
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from robopolicy.naming import one_line
from robopolicy.settings import check_count
from robopolicy.unitree.images import Image
from robopolicy.unitree.records import NAMES, Layout, Record

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
DOMAIN = 0  # Unitree's
MOST_DOMAIN = 232  # ports of higher ones do not exist
LOW_STATE, LOW_CMD = "rt/lowstate", "rt/lowcmd"
QUEUE = 64  # unread records that a reader keeps


class Network(NamedTuple):
    """Where the messages go: a network interface by its name, and a domain.

    Peers find each other only with the same `tag`. A Unitree robot has none. On the loopback nothing is sent
    by multicast, which containers often lack.
    """

    interface: str = LOOPBACK
    domain: int = DOMAIN
    tag: str = ""


class Publication(NamedTuple):
    """Another program that publishes a topic: its type by name, and the key of its participant."""

    type: str
    participant: str


class Node:
    """A participant of a network. Raises ValueError, in one line, for a network that cannot be used."""

    def __init__(self, network: Network) -> None:
        check_count("domain", network.domain, 0, MOST_DOMAIN)
        used = _DOMAINS.get(network.domain)
        if used is not None and used != network:
            raise ValueError(f"network is {network}: domain {network.domain} of this process is on {used}")
        try:
            if used is None:  # a domain lasts as long as the process
                _KEPT.append(Domain(network.domain, _configuration(network)))
                _DOMAINS[network.domain] = network
            self._participant = DomainParticipant(network.domain)
        except (DDSException, UnicodeEncodeError) as error:
            reason = getattr(error, "msg", "its name is not ASCII")
            raise ValueError(f"interface is {network.interface!r}: DDS cannot use it: {reason}") from error
        self._key = str(self._participant.get_guid())
        self._seen = BuiltinDataReader(self._participant, BuiltinTopicDcpsPublication)
        self._publications: dict[str, tuple[str, Publication]] = {}

    def close(self) -> None:
        """Leave the network."""
        self._participant._delete(self._participant._ref)

    def records(self, topic: str, name: str, *, all_kept: bool = False) -> "Reader":
        """A reader of Unitree's records `name`. With `all_kept`, a reliable peer sends lost ones again."""
        return Reader(self._topic(topic, RECORDS[name]), self._participant, QUEUE, all_kept)

    def images(self, topic: str) -> "Reader":
        """A reader of images, which keeps the newest one: they take long to decode."""
        return Reader(self._topic(topic, _IMAGE), self._participant, 1, False)

    def writer(self, topic: str, name: str) -> "Writer":
        """A writer of Unitree's records `name`."""
        return Writer(self._topic(topic, RECORDS[name]), self._participant)

    def image_writer(self, topic: str) -> "Writer":
        """A writer of images."""
        return Writer(self._topic(topic, _IMAGE), self._participant)

    def others(self, topic: str) -> list[Publication]:
        """What other participants are known to publish on `topic`."""
        for sample in self._seen.take(1000):
            if sample.sample_info.valid_data:
                one = Publication(sample.type_name, str(sample.participant_key))
                self._publications[str(sample.key)] = sample.topic_name, one
            else:
                self._publications.pop(str(sample.key), None)
        found = [one for name, one in self._publications.values() if name == topic]
        return [one for one in found if one.participant != self._key]

    def _topic(self, name: str, kind: Any) -> Any:
        return Topic(self._participant, name, kind)


class Reader:
    """Reads one topic."""

    def __init__(self, topic: Any, participant: Any, unread: int, all_kept: bool) -> None:
        self._topic: str = topic.get_name()
        # Unitree's own readers take whatever arrives, too.
        reliability = Policy.Reliability.Reliable(duration(seconds=1)) if all_kept else _BEST_EFFORT
        self._reader = DataReader(participant, topic, Qos(reliability, Policy.History.KeepLast(unread)))
        state = SampleState.Any | ViewState.Any | InstanceState.Any
        self._waiting = WaitSet(participant)
        self._arrived = ReadCondition(self._reader, state)
        self._waiting.attach(self._arrived)

    def take(
        self, patience: float = 0.0, on_bad: Callable[[str], None] | None = None
    ) -> list[tuple[Any, int]]:
        """All that has arrived, each with the number of its writer; waits for up to `patience` seconds.

        `on_bad` gets one line, which begins with the topic, for each message that is no record. Without it,
        and for images, such a message raises ConnectionError with this line.
        """
        if patience > 0:
            self._waiting.wait(duration(nanoseconds=int(1e9 * patience)))
        try:
            samples: Sequence[Any] = self._reader.take(QUEUE)
        except DDSException:
            raise
        except Exception as error:  # Cyclone's decoder raises whatever it meets
            raise ConnectionError(self._complaint(error)) from error
        taken: list[tuple[Any, int]] = []
        for sample in samples:
            if sample.sample_info.valid_data:
                try:
                    taken.append((sample.content(), sample.sample_info.publication_handle))
                except ValueError as error:
                    if on_bad is None:
                        raise ConnectionError(self._complaint(error)) from error
                    on_bad(self._complaint(error))
        return taken

    def _complaint(self, error: Exception) -> str:
        return one_line(
            f"{self._topic} has a message that cannot be decoded: {type(error).__name__}: {error}"
        )


class Writer:
    """Writes one topic. A slow reader does not stop it."""

    def __init__(self, topic: Any, participant: Any) -> None:
        self._kind = topic.data_type
        reliable = Policy.Reliability.Reliable(0)
        self._writer = DataWriter(participant, topic, Qos(reliable, Policy.History.KeepLast(QUEUE)))

    def write(self, content: Any) -> None:
        """Send a record [] or an `Image`."""
        self._writer.write(self._kind.of(content))

    @property
    def readers(self) -> int:
        """How many readers are connected."""
        return len(self._writer.get_matched_subscriptions())


_DOMAINS: dict[int, Network] = {}  # of this process
_KEPT: list[Domain] = []
types: Any = idl_types  # Any, since its annotations allow no subscripts
_BEST_EFFORT = Policy.Reliability.BestEffort
_NUMBERS = {"u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32", "f4": "float32"}


def _final(package: str, name: str, fields: dict[str, Any], *, plain: bool = False) -> Any:
    """A message type that is declared as Unitree's Python SDK and ROS 2 declare theirs."""
    made = make_idl_struct(name, f"{package}.msg.dds_.{name}", fields, dataclassify=not plain)
    return annotations.final(annotations.autoid("sequential")(made))


def _declared(dtype: np.dtype[Any]) -> Any:
    """The IDL type of a field."""
    if dtype.subdtype is not None:
        each, (count,) = dtype.subdtype
        return types.array[_declared(each), count]
    if dtype.fields is not None:
        return next(RECORDS[name] for name, known in NAMES.items() if known == dtype)
    return getattr(types, _NUMBERS[dtype.str[1:]])


def _record(name: str, dtype: np.dtype[Any]) -> Any:
    """The message type of a record, which goes to bytes and back without Cyclone DDS: 50 times as fast.

    A message that has arrived is decoded by `content`, so that a bad one does not spoil those beside it.
    """
    kind = _final("unitree_go", name, {n: _declared(dtype[n]) for n in dtype.names or ()}, plain=True)
    layout = Layout(dtype)

    def of(record: Record) -> Any:
        message = object.__new__(kind)
        message.record = record
        return message

    def deserialize(data: bytes, has_header: bool = True, use_version_2: bool | None = None) -> Any:
        message = object.__new__(kind)
        message.data = bytes(data)
        return message

    def deserialize_key(data: bytes, **_: Any) -> None:
        """Of a writer that has left; these types have no keys."""

    def serialize(message: Any, **_: Any) -> bytes:
        return layout.encode(message.record)

    kind.of, kind.serialize = of, serialize
    kind.deserialize, kind.deserialize_key = deserialize, deserialize_key
    kind.content = lambda message: layout.decode(message.data)
    return kind


RECORDS: dict[str, Any] = {}
for _name, _dtype in NAMES.items():
    RECORDS[_name] = _record(_name, _dtype)
_TIME = _final("builtin_interfaces", "Time_", {"sec": types.int32, "nanosec": types.uint32})
_HEADER = _final("std_msgs", "Header_", {"stamp": _TIME, "frame_id": str})
_IMAGE = _final(
    "sensor_msgs",
    "Image_",
    {
        "header": _HEADER,
        **{"height": types.uint32, "width": types.uint32, "encoding": str, "is_bigendian": types.uint8},
        **{"step": types.uint32, "data": types.sequence[types.uint8]},
    },
)


def _image_of(image: Image) -> IdlStruct:
    header = _HEADER(_TIME(*divmod(image.stamp, 10**9)), image.frame)
    return _IMAGE(header, *image[2:])


def _content_of(message: Any) -> Image:
    stamp = message.header.stamp
    numbers = message.height, message.width, message.encoding, message.is_bigendian, message.step
    return Image(10**9 * stamp.sec + stamp.nanosec, message.header.frame_id, *numbers, bytes(message.data))


_IMAGE.of, _IMAGE.content = _image_of, _content_of


def _configuration(network: Network) -> str:
    """Settings of Cyclone DDS as XML."""
    is_alone = network.interface == LOOPBACK
    quoted = {'"': "&quot;", "&": "&amp;", "<": "&lt;"}
    interface, tag = ("".join(quoted.get(c, c) for c in text) for text in (network.interface, network.tag))
    multicast = ' multicast="false"' if is_alone else ""
    peers = '<ParticipantIndex>auto</ParticipantIndex><Peers><Peer address="127.0.0.1"/></Peers>'
    return (
        '<CycloneDDS><Domain Id="any"><General>'
        f'<Interfaces><NetworkInterface name="{interface}"{multicast}/></Interfaces>'
        f"{'<AllowMulticast>false</AllowMulticast>' if is_alone else ''}</General><Discovery>"
        f"{f'<Tag>{tag}</Tag>' if tag else ''}{peers if is_alone else ''}</Discovery></Domain></CycloneDDS>"
    )
