"""SendFrames with large batches: read without a copy of their records.

protobuf copies each field of bytes twice: into the message, and out of it. So the records and their
sizes, which are nearly all of such a frame, are cut out as views, and protobuf reads the rest.
Frames of small batches are faster with protobuf alone. Pure.
"""

from __future__ import annotations

import sys
from array import array
from typing import Final

from google.protobuf.message import DecodeError

from aerobee.runtime.varint import read_varint
from aerobee.v1 import broker_pb2

LONG_BATCH_BYTES_MIN: Final = 96 << 10
"""A frame whose first batch is shorter is read by protobuf."""
_BATCHES_MAX: Final = 64
_REST_BYTES_MAX: Final = 1_024
"""Of a batch, without its records and their sizes."""
_BATCHES: Final = 0x0A
_RECORDS: Final = 0x22
_RECORD_SIZES: Final = 0x2A


class LongBatch:
    """A RecordBatch whose records are a view; see `IncomingBatch`."""

    __slots__ = ("is_half", "producer_id", "producer_sequence", "queue_id", "record_sizes",
                 "records", "sequence", "skip_wait", "timeout_ms", "topic")  # fmt: skip

    def __init__(
        self, rest: broker_pb2.RecordBatch, records: memoryview, record_sizes: array[int]
    ) -> None:
        self.sequence = rest.sequence
        self.topic = rest.topic
        self.queue_id = rest.queue_id
        self.records = records
        self.record_sizes = record_sizes
        self.timeout_ms = rest.timeout_ms
        self.skip_wait = rest.skip_wait
        self.producer_id = rest.producer_id
        self.producer_sequence = rest.producer_sequence
        self.is_half = rest.is_half


class LongFrame:
    """A SendFrame of such batches."""

    __slots__ = ("_size", "batches")

    def __init__(self, batches: list[LongBatch], size: int) -> None:
        self.batches = batches
        self._size = size

    def ByteSize(self) -> int:
        return self._size


def read_long_frame(data: memoryview) -> LongFrame | None:
    """A SendFrame in memory that is nobody else's; None: it is one for protobuf, or none at all."""
    try:
        batches = _batches_of(data)
    except (IndexError, DecodeError):
        return None
    return LongFrame(batches, len(data)) if batches else None


def _batches_of(data: memoryview) -> list[LongBatch] | None:
    batches: list[LongBatch] = []
    at, end = 0, len(data)
    while at < end:
        if data[at] != _BATCHES:
            return None
        size, at = read_varint(data, at + 1)
        if size > end - at or (size < LONG_BATCH_BYTES_MIN and not batches):
            return None
        if len(batches) == _BATCHES_MAX:
            return None
        batch = _batch_of(data[at : at + size])
        if batch is None:
            return None
        batches.append(batch)
        at += size
    return batches


def _batch_of(data: memoryview) -> LongBatch | None:
    records: memoryview | None = None
    sizes: memoryview | None = None
    rest = bytearray()
    at, end = 0, len(data)
    while at < end:
        begin = at
        tag, at = read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = read_varint(data, at)
        elif kind == 2:
            size, at = read_varint(data, at)
            begin_value, at = at, at + size
            if at > end:
                return None
            if tag == _RECORDS and records is None:
                records = data[begin_value:at]
                continue
            if tag == _RECORD_SIZES and sizes is None:
                sizes = data[begin_value:at]
                continue
        else:
            return None  # sizes that are not packed, or what no client of ours sends
        if at > end or tag in (_RECORDS, _RECORD_SIZES):
            return None
        rest += data[begin:at]
        if len(rest) > _REST_BYTES_MAX:
            return None
    if records is None or sizes is None or len(sizes) % 4:
        return None
    record_sizes = array("I", bytes(sizes))
    if sys.byteorder == "big":
        record_sizes.byteswap()
    return LongBatch(broker_pb2.RecordBatch.FromString(bytes(rest)), records, record_sizes)
