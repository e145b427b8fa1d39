"""PURE: what the two ends of a replication stream say to each other.

The encoding is up to the edge: to both ends a stream is a sequence of these values, each with its
sender.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import Cut, LogState, Sender, Start
from aerobee.broker.replication.master_term import ReplicaName

# ------------------------------------------------------------------------------------ a slave's


@dataclass(frozen=True, slots=True)
class Hello:
    """What a slave says about itself, in its first message."""

    log: LogState
    name: ReplicaName
    instance: str
    _: KW_ONLY
    window_bytes: int
    tables: Mapping[str, int]
    """Checksums of its copies of the master's tables, by path."""


class Ack(NamedTuple):
    """How far the slave has stored the log."""

    stored_end: int
    flushed_end: int


# ------------------------------------------------------------------------------------ a master's


@dataclass(frozen=True, slots=True)
class Agreement:
    """A master's answer: its log, and where it continues after the slave has done its part."""

    log_begin: int
    log_end: int
    epochs: EpochHistory
    confirmed_end: int
    start: int
    unclean_epochs: tuple[int, ...] = ()
    tail_bytes: int = 0
    """How many bytes before `start` the slave must compare."""
    tail_checksum: int = 0

    @classmethod
    def of(
        cls, log: LogState, start: Start, unclean_epochs: tuple[int, ...], *, tail_bytes: int = 0
    ) -> Self:
        """The checksum of the tail has yet to be set."""
        return cls(
            log.begin,
            log.end,
            log.epochs,
            log.confirmed_end,
            position_of(start),
            unclean_epochs,
            tail_bytes,
        )

    def masters_log(self, segment_bytes: int) -> LogState:
        """The master's log; its segments were found to be as long as the slave's."""
        return LogState(
            self.log_begin, self.log_end, self.epochs, segment_bytes, self.confirmed_end
        )


class LogPart(NamedTuple):
    """A piece of the master's log."""

    position: int
    data: bytes
    confirmed_end: int
    log_end: int


class Heartbeat(NamedTuple):
    """The master's ends, sent when there is nothing else to send."""

    confirmed_end: int
    log_end: int


class MasterTable(NamedTuple):
    """One of the master's tables."""

    path: str
    content: bytes


def position_of(start: Start) -> int:
    """Where bytes will start once the slave has done its part."""
    return start.end if isinstance(start, Cut) else start.position


# ------------------------------------------------------------------------------------ emptied

EMPTIED_QUEUES_PATH = "consumequeue/emptied"
"""Queues whose messages were all removed are sent as an additional table, under a name that no file
has: the log does not show where their offsets continue, and a slave that becomes master must
know."""

QueueOffsets = dict[tuple[str, int], int]
"""Next offset by topic and queue id."""


def encode_emptied(queues: QueueOffsets) -> bytes:
    return json.dumps(
        [[topic, queue_id, offset] for (topic, queue_id), offset in sorted(queues.items())]
    ).encode()


def decode_emptied(data: bytes) -> QueueOffsets:
    """Raises ValueError for anything else."""
    queues: QueueOffsets = {}
    document = json.loads(data)
    if not isinstance(document, list):
        raise ValueError("it is not a list of queues")
    for entry in document:
        match entry:
            case [str(topic), int(queue_id), int(offset)] if queue_id >= 0 and offset >= 0:
                queues[topic, queue_id] = offset
            case _:
                raise ValueError(f"{entry!r} is not a topic, a queue id and an offset")
    return queues


# ------------------------------------------------------------------------------------ streams

SlaveMessage = Hello | Ack
MasterMessage = Agreement | LogPart | Heartbeat | MasterTable

Message_co = TypeVar("Message_co", covariant=True)
Read_co = TypeVar("Read_co", covariant=True)
Written_contra = TypeVar("Written_contra", contravariant=True)


class Said(NamedTuple, Generic[Message_co]):
    """A message and its sender."""

    sender: Sender
    message: Message_co


class MessageStream(Protocol[Read_co, Written_contra]):
    """One side's view of a replication stream; messages in order."""

    async def read(self) -> Said[Read_co] | None:
        """The next message; None when the other side has ended the stream. Raises AerobeeError,
        such as CorruptFrame, and InvalidArgument for an impossible log."""
        ...

    async def write(self, sender: Sender, message: Written_contra) -> None:
        """Returns when the next one may be written. Raises AerobeeError."""
        ...


class SlaveStreamEnd(MessageStream[MasterMessage, SlaveMessage], Protocol):
    """The slave's view."""

    def acknowledge_at_once(self, ack: Ack) -> bool:
        """Write it under the sender of the last message, if that needs no waiting; otherwise
        False."""
        ...


MasterStreamEnd = MessageStream[SlaveMessage, MasterMessage]
