"""The frames of HTTP/2 as bytes: RFC 9113, sections 4, 6 and 7.

Frames are parsed where they arrive, in `connection`; this file has the numbers, and writes frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (section 3.4)."""

HEADER_BYTES: Final = 9
FRAME_BYTES_MIN: Final = 16_384
"""The largest payload that every peer accepts."""
FRAME_BYTES_MAX: Final = (1 << 24) - 1
WINDOW_MAX: Final = (1 << 31) - 1
WINDOW_DEFAULT: Final = 65_535
STREAM_ID_MAX: Final = (1 << 31) - 1

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
PADDED: Final = 8
HAS_PRIORITY: Final = 32

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6


class ErrorCode(IntEnum):
    """Section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


unpack_header: Final = Struct(">HBBBL").unpack_from
"""Length in two parts (multiples of 256, and the rest), kind, flags, stream with its reserved bit.
"""
pack_header: Final = Struct(">HBBBL").pack
pack_data_header: Final = Struct(">HBBBLBL").pack
"""A DATA frame's header, followed by the prefix of the gRPC message with which the frame begins."""
pack_uint32: Final = Struct(">L").pack
_pack_setting: Final = Struct(">HL").pack


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """One whole frame."""
    length = len(payload)
    return pack_header(length >> 8, length & 0xFF, kind, flags, stream_id) + payload


def settings_frame(settings: Iterable[tuple[int, int]]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join([_pack_setting(key, value) for key, value in settings]))


def window_update(stream_id: int, increment: int) -> bytes:
    return pack_header(0, 4, WINDOW_UPDATE, 0, stream_id) + pack_uint32(increment)


def rst_stream(stream_id: int, code: int) -> bytes:
    return pack_header(0, 4, RST_STREAM, 0, stream_id) + pack_uint32(code)


def goaway(last_stream_id: int, code: int, reason: str = "") -> bytes:
    return frame(
        GOAWAY, 0, 0, pack_uint32(last_stream_id) + pack_uint32(code) + reason.encode()[:1_024]
    )


def header_frames(stream_id: int, block: bytes, *, end_stream: bool, frame_bytes_max: int) -> bytes:
    """A block in as many frames as needed; no other frame may come between them (section 4.3)."""
    flags = END_STREAM if end_stream else 0
    if len(block) <= frame_bytes_max:
        return frame(HEADERS, flags | END_HEADERS, stream_id, block)
    frames = [frame(HEADERS, flags, stream_id, block[:frame_bytes_max])]
    for begin in range(frame_bytes_max, len(block), frame_bytes_max):
        is_last = begin + frame_bytes_max >= len(block)
        part = block[begin : begin + frame_bytes_max]
        frames.append(frame(CONTINUATION, END_HEADERS if is_last else 0, stream_id, part))
    return b"".join(frames)
