"""What a stream has received and has not been read yet: gRPC's length-prefixed messages.

    Length-Prefixed-Message = Compressed-Flag (1 byte) Message-Length (4 bytes, big endian) Message

Owns: the complete messages and the beginning of the incomplete one. A message that arrives whole is
sliced out of the input; of others the parts are joined, or put where a long message has its place.
Compressed ones wait as they came: 4 KiB of them may be 4 MiB of zeros.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Final

from aerobee.rpc.core.status import RpcError, Status
from aerobee.runtime.place import Place

PREFIX_BYTES: Final = 5
_GZIP_WINDOW: Final = 31
_PART_BYTES_MIN: Final = 1_024
"""Smaller parts are joined as they arrive: an object for each single byte would take fifty."""
_PLACED_BYTES_MIN: Final = 64 << 10
_PLACED_SHARE: Final = 64
"""A message gets its place once this share of it has arrived: nobody gets memory for a length."""

MESSAGE_BYTES: Final = 64
"""What a waiting message takes in memory beyond its own bytes."""


class Packed:
    """A message that is still compressed."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)


class Inbox:
    """The receiving half of a stream, for input other than a single complete message."""

    __slots__ = ("_flag", "decompressed_bytes_max", "encoding", "extension", "gives_views",
                 "message_bytes_max", "messages", "missing", "overhead", "partial", "place",
                 "placed_bytes", "reader", "size")  # fmt: skip

    def __init__(
        self, message_bytes_max: int, encoding: bytes, *, decompressed_bytes_max: int
    ) -> None:
        """`encoding`: the value of `grpc-encoding`; empty for none."""
        self.message_bytes_max = message_bytes_max
        self.decompressed_bytes_max = min(message_bytes_max, decompressed_bytes_max)
        self.encoding = encoding
        self.gives_views = False
        """Long messages are given as writable views of memory that belongs to the reader."""
        self.messages: deque[bytes | Packed | Place] | tuple[()] = ()
        """Complete messages; a deque only while there are any: an empty one would take 0.7 KiB in
        each stream."""
        self.partial: list[bytes] = []
        """The incomplete message, without its prefix if that is complete; joined once."""
        self.place: Place | None = None
        """Where the incomplete message is put instead."""
        self.placed_bytes = 0
        """So much of the next input is already in its place."""
        self.missing = 0
        """Bytes still missing from the incomplete message."""
        self._flag: int | None = None
        """Of the incomplete message; None while its prefix is incomplete."""
        self.size = 0
        """Bytes of all this, as the peer sent them."""
        self.overhead = 0
        """What its messages take beyond that."""
        self.extension = 0
        """How far the window was extended for the incomplete message."""
        self.reader: asyncio.Future[None] | None = None

    @property
    def is_partial(self) -> bool:
        """A message has begun and is incomplete."""
        return bool(self.partial) or self.place is not None

    @property
    def reserved_bytes(self) -> int:
        """Of the incomplete message's place, what has not arrived."""
        place = self.place
        return 0 if place is None else place.size - place.filled

    def make_place(self) -> None:
        """Give the incomplete message its place, if it is long and enough of it has arrived."""
        if self._flag or self._flag is None or self.place is not None:
            return  # compressed, or of unknown length
        arrived = sum(map(len, self.partial))
        size = arrived + self.missing
        if size < _PLACED_BYTES_MIN or arrived * _PLACED_SHARE < size:
            return
        place = self.place = Place(size)
        for part in self.partial:
            place.put(part)
        self.partial = []

    def _feed_place(self, place: Place, data: bytes, start: int, end: int) -> int:
        """Returns where the message ends, or its part."""
        size = min(self.missing, end - start)
        if self.placed_bytes:
            place.filled += size
        else:
            place.put(memoryview(data)[start : start + size])
        self.missing -= size
        if not self.missing:
            self.place = None
            self._add(place)
        return start + size

    def feed(self, data: bytes, start: int, end: int) -> None:
        """Take the content of a DATA frame.

        Raises:
            RpcError: RESOURCE_EXHAUSTED for a message that is too large.
        """
        self.size += end - start
        if self.place is not None:
            start = self._feed_place(self.place, data, start, end)
            if start == end:
                return
        elif self.partial:
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
                message = b"".join(self.partial)
                self._add(Packed(message) if self._flag else message)
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
            flag = data[start]
            if self.gives_views and length >= _PLACED_BYTES_MIN and not flag:
                place = Place(length)
                place.put(memoryview(data)[start + PREFIX_BYTES : after])
                self._add(place)
            else:
                message = data[start + PREFIX_BYTES : after]
                self._add(Packed(message) if flag else message)
            start = after
        if start < end:
            self._flag = None
            self.partial.append(data[start:end])
            self.missing = PREFIX_BYTES - (end - start)

    def _add(self, message: bytes | Packed | Place) -> None:
        messages = self.messages = self.messages or deque()
        messages.append(message)
        self.overhead += MESSAGE_BYTES

    def pop(self) -> tuple[bytes | Packed | Place, int, int]:
        """The next message, the bytes as sent of which it was the last part, and its overhead."""
        messages = self.messages
        assert messages, "the caller has looked"
        message = messages.popleft()
        if not messages:
            self.messages = ()
        size = len(message) + PREFIX_BYTES if messages or self.is_partial else self.size
        size, overhead = min(size, self.size), min(MESSAGE_BYTES, self.overhead)
        self.size -= size
        self.overhead -= overhead
        return message, size, overhead

    def plain(self, message: bytes | Packed | Place) -> bytes:
        """A message from `pop`, decompressed to no more than is allowed.

        Raises:
            RpcError: RESOURCE_EXHAUSTED if it would be larger, INTERNAL if it cannot be
                decompressed, UNIMPLEMENTED for an unknown compression.
        """
        if isinstance(message, bytes):
            return message
        if isinstance(message, Place):
            return message.message()
        return decompressed(message.data, self.encoding, self.decompressed_bytes_max)

    def wake(self) -> None:
        """A message has arrived, or the end: the reader continues."""
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)


def too_large(length: int, length_max: int) -> RpcError:
    return RpcError(
        Status.RESOURCE_EXHAUSTED,
        f"received a message of {length} bytes, and {length_max} are allowed",
    )


def decompressed(message: bytes, encoding: bytes, length_max: int) -> bytes:
    """A message whose Compressed-Flag is set; it is decompressed to at most `length_max` bytes."""
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
    """With gzip, fast rather than small."""
    deflating = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW)
    return deflating.compress(message) + deflating.flush()
