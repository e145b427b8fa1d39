"""Bytes to commands and back, without any input or output.

A frame, big-endian:

   length i32        of all that follows
   encoding u8, header length u24
   header
   body

Invariants: a length is checked before its bytes are kept, and a header's before it is parsed; what
a parser holds is at most one frame and what arrived with its end.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from aerobee.remoting_core.command import Command
from aerobee.remoting_core.errors import FrameIllegal, HeaderIllegal
from aerobee.remoting_core.headers import decode_header, encode_header

_HEAD: Final = struct.Struct(">iI")
_LENGTH: Final = struct.Struct(">i")
_HEADER_LENGTH: Final = (1 << 24) - 1
_KEPT_BYTES: Final = 64 << 10
"""What has been read is dropped from the buffer only in steps of this size: each step moves all
that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """Bytes that a peer may send."""

    frame_bytes_max: int = 16 << 20
    """As of Apache's servers."""
    header_bytes_max: int = 256 << 10
    """Properties of a message, up to 32 KiB, are in it; JSON may write a character as six."""


class FrameParser:
    """Takes what arrives and gives the commands in it, one at a time."""

    __slots__ = ("_at", "_buffer", "_limits")

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self._buffer: bytes | bytearray = b""
        """What arrived at once is read where it is; only the beginning of a frame is copied."""
        self._at = 0

    @property
    def held_bytes(self) -> int:
        """What arrived and was not taken yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes in, in any pieces."""
        if not self.held_bytes:
            self._buffer, self._at = bytes(data), 0
            return
        if isinstance(self._buffer, bytes):
            self._buffer, self._at = bytearray(memoryview(self._buffer)[self._at :]), 0
        self._buffer += data

    def next_command(self) -> Command | None:
        """The next command, or None until more has arrived.

        Raises:
            FrameIllegal: no command will ever come: end the connection.
        """
        buffer, at = self._buffer, self._at
        held = len(buffer) - at
        if held < 4:
            self._drop_read()
            return None
        (length,) = _LENGTH.unpack_from(buffer, at)
        if not 4 <= length <= self._limits.frame_bytes_max:
            raise FrameIllegal(
                f"a frame of {length} bytes; 4 to {self._limits.frame_bytes_max} are taken"
            )
        if held < 8:
            self._drop_read()
            return None
        _, word = _HEAD.unpack_from(buffer, at)
        size = word & _HEADER_LENGTH
        if size > length - 4 or size > self._limits.header_bytes_max:
            raise FrameIllegal(
                f"a header of {size} bytes in a frame of {length}; at most "
                f"{self._limits.header_bytes_max} are taken"
            )
        end = at + 4 + length
        if len(buffer) < end:
            self._drop_read()
            return None
        body_at = at + 8 + size
        if isinstance(buffer, bytes):
            header, body = buffer[at + 8 : body_at], buffer[body_at:end]
        else:
            with memoryview(buffer) as view:
                header, body = bytes(view[at + 8 : body_at]), bytes(view[body_at:end])
        self._at = end
        if end == len(buffer):
            self._drop_read()
        try:
            command = decode_header(word >> 24, header)
        except HeaderIllegal as error:
            raise FrameIllegal(str(error)) from None
        command.body = body
        return command

    def _drop_read(self) -> None:
        buffer = self._buffer
        if self._at == len(buffer):
            self._buffer, self._at = b"", 0
        elif isinstance(buffer, bytes):
            self._buffer, self._at = bytearray(memoryview(buffer)[self._at :]), 0
        elif self._at >= _KEPT_BYTES:
            del buffer[: self._at]
            self._at = 0


def frame_parts(command: Command) -> tuple[bytes, bytes]:
    """The frame of a command in two parts, of which the second is its body and not copied.

    Raises:
        ValueError: it does not fit into a frame, or its header not into its encoding.
    """
    header, body = encode_header(command), command.body
    if len(header) > _HEADER_LENGTH:
        raise ValueError(f"a header of {len(header)} bytes does not fit into a frame")
    word = command.encoding << 24 | len(header)
    return _HEAD.pack(4 + len(header) + len(body), word) + header, body


def encode_frame(command: Command) -> bytes:
    """The whole frame of a command. Raises as `frame_parts`."""
    return b"".join(frame_parts(command))
