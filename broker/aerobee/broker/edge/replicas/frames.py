"""PURE: the messages of the replication stream as bytes, each with its sender and checksum.

The checksum covers the content, not the header: a damaged header looks like another sender's. Log
bytes are encoded and decoded by hand, because protobuf would copy them two more times, and they are
nearly all that is sent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from google.protobuf.message import DecodeError
from isal.isal_zlib import crc32

from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import LogState, Sender
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.messages import (
    Ack,
    Agreement,
    Heartbeat,
    Hello,
    LogPart,
    MasterMessage,
    MasterTable,
    Said,
    SlaveMessage,
)
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


class FrameWriter:
    """Makes one sender's messages."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._head = self._header(0).SerializeToString()

    # ------------------------------------------------------------------------------ slave

    def slaves(self, message: SlaveMessage) -> bytes:
        """A slave's message as a frame."""
        return self.ack(*message) if isinstance(message, Ack) else self.hello(message)

    def hello(self, said: Hello) -> bytes:
        hello = _hello(said)
        header = self._header(_message_checksum(hello))
        return replication_pb2.ReplicaEvent(header=header, hello=hello).SerializeToString()

    def ack(self, stored_end: int, flushed_end: int) -> bytes:
        header = self._header(crc32(_TWO_ENDS.pack(stored_end, flushed_end)))
        ack = replication_pb2.ReplicaAck(stored_end=stored_end, flushed_end=flushed_end)
        return replication_pb2.ReplicaEvent(header=header, ack=ack).SerializeToString()

    # ------------------------------------------------------------------------------ master

    def masters(self, message: MasterMessage) -> bytes:
        """A master's message as a frame."""
        if isinstance(message, LogPart):
            return self.log_bytes(*message)
        if isinstance(message, Heartbeat):
            return self.heartbeat(*message)
        if isinstance(message, MasterTable):
            return self.table(*message)
        return self.agreement(message)

    def agreement(self, said: Agreement) -> bytes:
        agreement = _agreement(said)
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


def read_slaves(data: bytes) -> Said[SlaveMessage]:
    """A slave's message. Raises CorruptFrame; InvalidArgument: it reports an impossible log."""
    try:
        event = replication_pb2.ReplicaEvent.FromString(data)
    except DecodeError as error:
        raise _corrupt("it is not a message of this protocol") from error
    sender, stated = _sender(event.header), event.header.checksum
    kind = event.WhichOneof("event")
    if kind == "ack":
        ack = Ack(event.ack.stored_end, event.ack.flushed_end)
        _check(stated, crc32(_TWO_ENDS.pack(*ack)))
        return Said(sender, ack)
    if kind == "hello":
        _check(stated, _message_checksum(event.hello))
        return Said(sender, _said_hello(event.hello))
    raise _corrupt("it has no content that this version knows")


def read_masters(data: bytes) -> Said[MasterMessage]:
    """A master's message. Raises as `read_slaves`."""
    try:
        event = replication_pb2.MasterEvent.FromString(data)
    except DecodeError as error:
        raise _corrupt("it is not a message of this protocol") from error
    _check(event.header.checksum, _master_checksum(event))
    return Said(_sender(event.header), _said_by_master(event))


def _said_by_master(event: replication_pb2.MasterEvent) -> MasterMessage:
    kind = event.WhichOneof("event")
    if kind == "bytes":
        return _log_part(event)
    if kind == "heartbeat":
        return Heartbeat(event.heartbeat.confirmed_end, event.heartbeat.log_end)
    if kind == "table":
        return MasterTable(event.table.path, event.table.content)
    return _said_agreement(event.agreement)


def _master_checksum(event: replication_pb2.MasterEvent) -> int:
    kind = event.WhichOneof("event")
    if kind == "bytes":
        return _log_checksum(_log_part(event))
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
        """None for any other frame and any other encoding: `master_event` reads all of them.

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


def _log_part(event: replication_pb2.MasterEvent) -> LogPart:
    part = event.bytes
    return LogPart(part.position, part.data, part.confirmed_end, part.log_end)


def _log_checksum(part: LogPart) -> int:
    ends = _THREE_ENDS.pack(part.position, part.confirmed_end, part.log_end)
    return crc32(ends, crc32(part.data))


def _sender(header: replication_pb2.FrameHeader) -> Sender:
    return Sender(header.cluster, header.broker_name, header.epoch)


def _message_checksum(
    message: replication_pb2.ReplicaHello | replication_pb2.Agreement,
) -> int:
    return crc32(message.SerializeToString(deterministic=True))


def _check(stated: int, checksum: int) -> None:
    if stated != checksum:
        raise _corrupt(f"its checksum is {checksum:08x}, its header says {stated:08x}")


def _corrupt(why: str) -> CorruptFrame:
    return CorruptFrame(f"a replication frame is damaged: {why}; the stream starts again")


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


def _hello(said: Hello) -> replication_pb2.ReplicaHello:
    log, name = said.log, said.name
    return replication_pb2.ReplicaHello(
        replica=nameserver_pb2.ReplicaName(broker_id=name.broker_id, incarnation=name.incarnation),
        instance=said.instance,
        log_begin=log.begin,
        log_end=log.end,
        epochs=_epochs(log.epochs),
        segment_bytes=log.segment_bytes,
        window_bytes=said.window_bytes,
        confirmed_end=log.confirmed_end,
        tables=said.tables,
    )


def _said_hello(hello: replication_pb2.ReplicaHello) -> Hello:
    log = LogState(
        begin=hello.log_begin,
        end=_checked_end(hello.log_begin, hello.log_end),
        epochs=_history(hello.epochs),
        segment_bytes=hello.segment_bytes,
        confirmed_end=hello.confirmed_end,
    )
    return Hello(
        log,
        ReplicaName(hello.replica.broker_id, hello.replica.incarnation),
        hello.instance,
        window_bytes=hello.window_bytes,
        tables=dict(hello.tables),
    )


def _agreement(said: Agreement) -> replication_pb2.Agreement:
    return replication_pb2.Agreement(
        log_begin=said.log_begin,
        log_end=said.log_end,
        epochs=_epochs(said.epochs),
        start=said.start,
        confirmed_end=said.confirmed_end,
        unclean_epochs=said.unclean_epochs,
        tail_bytes=said.tail_bytes,
        tail_checksum=said.tail_checksum,
    )


def _said_agreement(agreement: replication_pb2.Agreement) -> Agreement:
    return Agreement(
        log_begin=agreement.log_begin,
        log_end=_checked_end(agreement.log_begin, agreement.log_end),
        epochs=_history(agreement.epochs),
        confirmed_end=agreement.confirmed_end,
        start=agreement.start,
        unclean_epochs=tuple(agreement.unclean_epochs),
        tail_bytes=agreement.tail_bytes,
        tail_checksum=agreement.tail_checksum,
    )


def _epochs(history: EpochHistory) -> list[replication_pb2.EpochStart]:
    return [
        replication_pb2.EpochStart(epoch=entry.epoch, start=entry.start)
        for entry in history.entries
    ]


def _history(epochs: Iterable[replication_pb2.EpochStart]) -> EpochHistory:
    try:
        return EpochHistory.of((entry.epoch, entry.start) for entry in epochs)
    except ValueError as error:
        raise InvalidArgument(f"the epoch history is invalid: {error}") from error


def _checked_end(begin: int, end: int) -> int:
    if not 0 <= begin <= end:
        raise InvalidArgument(f"a log cannot begin at {begin} and end at {end}")
    return end
