"""PullFrames: read with one copy of their records, which protobuf would copy twice. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from aerobee.runtime.varint import read_varint
from aerobee.v1 import broker_pb2

_LONG_BYTES_MIN: Final = 16 << 10
"""Shorter frames are read by protobuf, which is faster."""
_HANDLE: Final = 0x08
_RESULT: Final = 0x12
_RECORDS: Final = 0x32


class Pulled(NamedTuple):
    """A PullFrame."""

    handle: int
    result: broker_pb2.PullResult
    """Of a long frame, without its records."""
    records: bytes


def read_pull_frame(data: bytes) -> Pulled:
    """Raises DecodeError: it is none."""
    if len(data) >= _LONG_BYTES_MIN:
        try:
            pulled = _read_long(data)
        except IndexError:
            pulled = None
        if pulled is not None:
            return pulled
    frame = broker_pb2.PullFrame.FromString(data)
    return Pulled(frame.handle, frame.result, frame.result.records)


def _read_long(data: bytes) -> Pulled | None:
    """None unless it is a handle and a result with records, as our brokers write it."""
    if data[0] != _HANDLE:
        return None
    handle, at = read_varint(data, 1)
    if data[at] != _RESULT:
        return None
    size, at = read_varint(data, at + 1)
    end = len(data)
    if size != end - at:
        return None
    begin = at
    while at < end:
        field = at
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            _, at = read_varint(data, at)
        elif tag & 7 == 2:
            size, at = read_varint(data, at)
            if tag == _RECORDS:
                if at + size != end:
                    return None  # something follows
                try:
                    result = broker_pb2.PullResult.FromString(data[begin:field])
                except DecodeError:
                    return None
                return Pulled(handle, result, data[at:])
            at += size
        else:
            return None
    return None
