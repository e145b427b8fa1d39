"""What a stream has received and was not read yet: gRPC's length-prefixed messages.

    Length-Prefixed-Message = Compressed-Flag (1 byte) Message-Length (4 bytes, big endian) Message

Owns: the messages that are whole and the beginning of the one that is not. A message within one
DATA frame is cut out of it; only a message across several is put together by copying.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Final

from aerobee.grpc_core.status import RpcError, Status

PREFIX_BYTES: Final = 5
_GZIP_WINDOW: Final = 31
_PART_BYTES_MIN: Final = 1_024
"""Smaller parts are put together as they come: an object for each byte would hold fifty."""


class Inbox:
    """The receiving half of one stream that is more than one whole message at once."""

    __slots__ = ("_flag", "decompressed_bytes_max", "encoding", "extension", "message_bytes_max",
                 "messages", "missing", "partial", "reader", "size")  # fmt: skip

    def __init__(
        self, message_bytes_max: int, encoding: bytes, *, decompressed_bytes_max: int
    ) -> None:
        """`encoding`: what `grpc-encoding` said; empty for none."""
        self.message_bytes_max = message_bytes_max
        self.decompressed_bytes_max = min(message_bytes_max, decompressed_bytes_max)
        self.encoding = encoding
        self.messages: deque[bytes] | tuple[()] = ()
        """Whole ones; a deque while there are any: an empty one takes 0.7 KiB in each stream."""
        self.partial: list[bytes] = []
        """The message that has begun, without its prefix if that is whole; joined once."""
        self.missing = 0
        """Bytes that the message that has begun still lacks."""
        self._flag: int | None = None
        """Of the message that has begun; None while its prefix is not whole."""
        self.size = 0
        """Bytes of all this, as the peer sent them."""
        self.extension = 0
        """How far its window was extended for the message that has begun."""
        self.reader: asyncio.Future[None] | None = None

    def feed(self, data: bytes, start: int, end: int) -> None:
        """Take what a DATA frame holds.

        Raises:
            RpcError: RESOURCE_EXHAUSTED for a message that is too large, INTERNAL for one that
                cannot be decompressed, UNIMPLEMENTED for a compression that is not known.
        """
        self.size += end - start
        if self.partial:
            missing = self.missing
            if missing > end - start:
                if end - start < _PART_BYTES_MIN and len(self.partial[-1]) < _PART_BYTES_MIN:
                    self.partial[-1] += data[start:end]
                else:
                    self.partial.append(data[start:end])
                self.missing = missing - (end - start)
                return
            if self._flag is None:
                data = b"".join((*self.partial, data[start:end]))
                start, end = 0, len(data)
            else:
                self.partial.append(data[start : start + missing])
                self._add(b"".join(self.partial), self._flag)
                start += missing
            self.partial = []
        self.missing = 0
        while end - start >= PREFIX_BYTES:
            length = int.from_bytes(data[start + 1 : start + PREFIX_BYTES], "big")
            if length > self.message_bytes_max:
                raise too_large(length, self.message_bytes_max)
            after = start + PREFIX_BYTES + length
            if after > end:
                self._flag = data[start]
                self.partial.append(data[start + PREFIX_BYTES : end])
                self.missing = after - end
                return
            self._add(data[start + PREFIX_BYTES : after], data[start])
            start = after
        if start < end:
            self._flag = None
            self.partial.append(data[start:end])
            self.missing = PREFIX_BYTES - (end - start)

    def _add(self, message: bytes, flag: int) -> None:
        if flag:
            message = decompressed(message, self.encoding, self.decompressed_bytes_max)
        messages = self.messages = self.messages or deque()
        messages.append(message)

    def wake(self) -> None:
        """A message has come, or the end: the reader continues."""
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)


def too_large(length: int, length_max: int) -> RpcError:
    return RpcError(
        Status.RESOURCE_EXHAUSTED,
        f"received a message of {length} bytes, and {length_max} are allowed",
    )


def decompressed(message: bytes, encoding: bytes, length_max: int) -> bytes:
    """A message whose Compressed-Flag is set; no more than `length_max` bytes are made of it."""
    if encoding != b"gzip":
        if encoding in (b"", b"identity"):
            raise RpcError(
                Status.INTERNAL, "a message is compressed, and no grpc-encoding was said"
            )
        raise RpcError(
            Status.UNIMPLEMENTED,
            f"grpc-encoding {encoding.decode('latin-1')} is not known; use gzip or identity",
        )
    inflating = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = inflating.decompress(message, length_max + 1)
    except zlib.error:
        raise RpcError(Status.INTERNAL, "a message cannot be decompressed") from None
    if len(plain) > length_max:
        raise RpcError(
            Status.RESOURCE_EXHAUSTED,
            f"a compressed message has more than {length_max} bytes when decompressed, which are "
            "allowed: send less at a time, or send it uncompressed",
        )
    if not inflating.eof:
        raise RpcError(Status.INTERNAL, "a compressed message is cut off")
    return plain


def compressed(message: bytes) -> bytes:
    """By gzip, fast rather than small."""
    deflating = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW)
    return deflating.compress(message) + deflating.flush()
