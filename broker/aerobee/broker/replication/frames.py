"""PURE: the messages of the replication stream as bytes, each with its sender and checksum.

The checksum covers the content, not the header: a damaged header is another sender's. Log bytes are
encoded and decoded by hand, because protobuf would copy them twice more, and they are nearly all
that is sent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError
from isal.isal_zlib import crc32

from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import Cut, LogState, Sender, Start
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.runtime.errors import CorruptFrame, InvalidArgument
from aerobee.runtime.varint import varint
from aerobee.v1 import nameserver_pb2, replication_pb2

_TWO_ENDS = struct.Struct(">qq")
_THREE_ENDS = struct.Struct(">qqq")
_CHECKSUM = struct.Struct("<I")

# Tags of the fields that are encoded by hand: number << 3 | wire type.
_HEADER_TAG = b"\x0a"  # MasterEvent.header
_CHECKSUM_TAG = b"\x25"  # FrameHeader.checksum, four bytes
_BYTES_TAG = b"\x1a"  # MasterEvent.bytes
_POSITION_TAG = b"\x08"  # LogBytes.position
_DATA_TAG = b"\x12"
_CONFIRMED_END_TAG = b"\x18"
_LOG_END_TAG = b"\x20"


class LogPart(NamedTuple):
    """A piece of the master's log."""

    position: int
    data: bytes
    confirmed_end: int
    log_end: int


class FrameWriter:
    """Makes one sender's messages."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._head = self._header(0).SerializeToString()

    # ------------------------------------------------------------------------------ slave

    def hello(self, hello: replication_pb2.ReplicaHello) -> bytes:
        header = self._header(_message_checksum(hello))
        return replication_pb2.ReplicaEvent(header=header, hello=hello).SerializeToString()

    def ack(self, stored_end: int, flushed_end: int) -> bytes:
        header = self._header(crc32(_TWO_ENDS.pack(stored_end, flushed_end)))
        ack = replication_pb2.ReplicaAck(stored_end=stored_end, flushed_end=flushed_end)
        return replication_pb2.ReplicaEvent(header=header, ack=ack).SerializeToString()

    # ------------------------------------------------------------------------------ master

    def agreement(self, agreement: replication_pb2.Agreement) -> bytes:
        header = self._header(_message_checksum(agreement))
        return replication_pb2.MasterEvent(header=header, agreement=agreement).SerializeToString()

    def log_bytes(self, position: int, data: bytes, confirmed_end: int, log_end: int) -> bytes:
        """The same bytes as protobuf's own encoding."""
        checksum = _log_checksum(LogPart(position, data, confirmed_end, log_end))
        header = self._head
        if checksum:
            header += _CHECKSUM_TAG + _CHECKSUM.pack(checksum)
        before = (_POSITION_TAG + varint(position) if position else b"") + (
            _DATA_TAG + varint(len(data)) if data else b""
        )
        after = (_CONFIRMED_END_TAG + varint(confirmed_end) if confirmed_end else b"") + (
            _LOG_END_TAG + varint(log_end) if log_end else b""
        )
        size = len(before) + len(data) + len(after)
        return b"".join(
            (
                _HEADER_TAG,
                varint(len(header)),
                header,
                _BYTES_TAG,
                varint(size),
                before,
                data,
                after,
            )
        )

    def table(self, path: str, content: bytes) -> bytes:
        header = self._header(crc32(content, crc32(path.encode())))
        table = replication_pb2.TableFile(path=path, content=content)
        return replication_pb2.MasterEvent(header=header, table=table).SerializeToString()

    def heartbeat(self, confirmed_end: int, log_end: int) -> bytes:
        header = self._header(crc32(_TWO_ENDS.pack(confirmed_end, log_end)))
        heartbeat = replication_pb2.MasterHeartbeat(confirmed_end=confirmed_end, log_end=log_end)
        return replication_pb2.MasterEvent(header=header, heartbeat=heartbeat).SerializeToString()

    def _header(self, checksum: int) -> replication_pb2.FrameHeader:
        sender = self._sender
        return replication_pb2.FrameHeader(
            cluster=sender.cluster,
            broker_name=sender.broker_name,
            epoch=sender.epoch,
            checksum=checksum,
        )


# ------------------------------------------------------------------------------------ reading


def replica_event(data: bytes) -> replication_pb2.ReplicaEvent:
    """A slave's message. Raises CorruptFrame."""
    try:
        event = replication_pb2.ReplicaEvent.FromString(data)
    except DecodeError as error:
        raise _corrupt("it is no message of this protocol") from error
    kind = event.WhichOneof("event")
    if kind == "ack":
        checksum = crc32(_TWO_ENDS.pack(event.ack.stored_end, event.ack.flushed_end))
    elif kind == "hello":
        checksum = _message_checksum(event.hello)
    else:
        raise _corrupt("it has no content that this version knows")
    _check(event.header.checksum, checksum)
    return event


def master_event(data: bytes) -> replication_pb2.MasterEvent:
    """A master's message. Raises CorruptFrame."""
    try:
        event = replication_pb2.MasterEvent.FromString(data)
    except DecodeError as error:
        raise _corrupt("it is no message of this protocol") from error
    _check(event.header.checksum, _master_checksum(event))
    return event


def _master_checksum(event: replication_pb2.MasterEvent) -> int:
    kind = event.WhichOneof("event")
    if kind == "bytes":
        return _log_checksum(log_part(event))
    if kind == "heartbeat":
        return crc32(_TWO_ENDS.pack(event.heartbeat.confirmed_end, event.heartbeat.log_end))
    if kind == "table":
        return crc32(event.table.content, crc32(event.table.path.encode()))
    if kind == "agreement":
        return _message_checksum(event.agreement)
    raise _corrupt("it has no content that this version knows")


class LogPartReader:
    """Reads one sender's log bytes without protobuf."""

    def __init__(self, sender: Sender) -> None:
        header = replication_pb2.FrameHeader(
            cluster=sender.cluster, broker_name=sender.broker_name, epoch=sender.epoch
        ).SerializeToString()
        size = varint(len(header) + len(_CHECKSUM_TAG) + _CHECKSUM.size)
        self._beginning = _HEADER_TAG + size + header + _CHECKSUM_TAG

    def read(self, frame: bytes) -> LogPart | None:
        """None for any other frame and for another encoding: `master_event` reads them all.

        Raises CorruptFrame.
        """
        beginning = self._beginning
        at = len(beginning) + _CHECKSUM.size
        if not frame.startswith(beginning) or frame[at : at + 1] != _BYTES_TAG:
            return None
        (checksum,) = _CHECKSUM.unpack_from(frame, len(beginning))
        try:
            size, at = _take_varint(frame, at + 1)
            if at + size != len(frame):
                return None
            position, at = _take_field(frame, at, _POSITION_TAG)
            size, at = _take_field(frame, at, _DATA_TAG)
            data = frame[at : at + size]
            confirmed_end, at = _take_field(frame, at + size, _CONFIRMED_END_TAG)
            log_end, at = _take_field(frame, at, _LOG_END_TAG)
        except (IndexError, OverflowError):
            return None
        if at != len(frame) or len(data) != size:
            return None
        part = LogPart(position, data, confirmed_end, log_end)
        _check(checksum, _log_checksum(part))
        return part


def log_part(event: replication_pb2.MasterEvent) -> LogPart:
    part = event.bytes
    return LogPart(part.position, part.data, part.confirmed_end, part.log_end)


def _log_checksum(part: LogPart) -> int:
    ends = _THREE_ENDS.pack(part.position, part.confirmed_end, part.log_end)
    return crc32(ends, crc32(part.data))


def sender_of(header: replication_pb2.FrameHeader) -> Sender:
    return Sender(header.cluster, header.broker_name, header.epoch)


def _message_checksum(
    message: replication_pb2.ReplicaHello | replication_pb2.Agreement,
) -> int:
    return crc32(message.SerializeToString(deterministic=True))


def _check(stated: int, checksum: int) -> None:
    if stated != checksum:
        raise _corrupt(f"its checksum is {checksum:08x}, its header says {stated:08x}")


def _corrupt(why: str) -> CorruptFrame:
    return CorruptFrame(f"a replication frame is damaged: {why}; the stream begins anew")


def _take_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number >= 0 and where it ends. Raises IndexError, and OverflowError beyond 63 bits."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if value >= 1 << 63:
        raise OverflowError
    return value, at


def _take_field(data: bytes, at: int, tag: bytes) -> tuple[int, int]:
    """The number after `tag`, or 0 if that field is left out."""
    if data[at : at + 1] == tag:
        return _take_varint(data, at + 1)
    return 0, at


# ------------------------------------------------------------------------------------ handshake


def hello_of(
    state: LogState,
    name: ReplicaName,
    instance: str,
    *,
    window_bytes: int,
    tables: Mapping[str, int],
) -> replication_pb2.ReplicaHello:
    """What a slave says of itself."""
    return replication_pb2.ReplicaHello(
        replica=nameserver_pb2.ReplicaName(broker_id=name.broker_id, incarnation=name.incarnation),
        instance=instance,
        log_begin=state.begin,
        log_end=state.end,
        epochs=_epochs(state.epochs),
        segment_bytes=state.segment_bytes,
        window_bytes=window_bytes,
        confirmed_end=state.confirmed_end,
        tables=tables,
    )


def replica_of(hello: replication_pb2.ReplicaHello) -> ReplicaName:
    return ReplicaName(hello.replica.broker_id, hello.replica.incarnation)


def slave_state(hello: replication_pb2.ReplicaHello) -> LogState:
    """The slave's log. Raises InvalidArgument for one that cannot be."""
    return LogState(
        begin=hello.log_begin,
        end=_checked_end(hello.log_begin, hello.log_end),
        epochs=_history(hello.epochs),
        segment_bytes=hello.segment_bytes,
        confirmed_end=hello.confirmed_end,
    )


def agreement_of(
    state: LogState, start: Start, unclean_epochs: tuple[int, ...], *, tail_bytes: int = 0
) -> replication_pb2.Agreement:
    """What a master answers: its log, and where it goes on after whatever the slave must do. The
    checksum of the `tail_bytes` before that is still to be set."""
    return replication_pb2.Agreement(
        log_begin=state.begin,
        log_end=state.end,
        epochs=_epochs(state.epochs),
        start=position_of(start),
        confirmed_end=state.confirmed_end,
        unclean_epochs=unclean_epochs,
        tail_bytes=tail_bytes,
    )


def master_state(agreement: replication_pb2.Agreement, segment_bytes: int) -> LogState:
    """The master's log, whose segments it has found to be as long as the slave's.

    Raises InvalidArgument for one that cannot be.
    """
    return LogState(
        begin=agreement.log_begin,
        end=_checked_end(agreement.log_begin, agreement.log_end),
        epochs=_history(agreement.epochs),
        segment_bytes=segment_bytes,
        confirmed_end=agreement.confirmed_end,
    )


def position_of(start: Start) -> int:
    """Where bytes will flow from, once the slave has done what it must."""
    return start.end if isinstance(start, Cut) else start.position


def _epochs(history: EpochHistory) -> list[replication_pb2.EpochStart]:
    return [
        replication_pb2.EpochStart(epoch=entry.epoch, start=entry.start)
        for entry in history.entries
    ]


def _history(epochs: Iterable[replication_pb2.EpochStart]) -> EpochHistory:
    try:
        return EpochHistory.of((entry.epoch, entry.start) for entry in epochs)
    except ValueError as error:
        raise InvalidArgument(f"an epoch history cannot be: {error}") from error


def _checked_end(begin: int, end: int) -> int:
    if not 0 <= begin <= end:
        raise InvalidArgument(f"a log cannot begin at {begin} and end at {end}")
    return end
