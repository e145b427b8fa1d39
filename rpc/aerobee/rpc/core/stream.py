"""One stream of a connection: RFC 9113, section 5, and the messages of one gRPC call on it.

Owns: both windows of the stream, what it could not send at once (`Outbox`), and what was not read
yet (`Inbox`). Most calls have neither: one complete message comes in one DATA frame and the answer
leaves in the same turn of the loop, so the two are created only when needed.

A stream is the call: the server's and the client's classes derive from `Stream`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aerobee.rpc.core import frames
from aerobee.rpc.core.frames import ErrorCode, pack_data_header
from aerobee.rpc.core.inbox import PREFIX_BYTES, Inbox, Packed
from aerobee.runtime.place import Place

if TYPE_CHECKING:
    from aerobee.rpc.core.connection import Connection

_TINY_BYTES: Final = 64
_TINY_COST: Final = 0.25


class Outbox:
    """Data that waits for a window, the transport or its turn."""

    __slots__ = ("pieces", "size", "tail", "waiters")

    def __init__(self) -> None:
        self.pieces: deque[memoryview] = deque()
        """Messages with their prefixes, end to end."""
        self.size = 0
        self.tail: bytes | None = None
        """Frames that end our half, sent after all messages."""
        self.waiters: dict[asyncio.Future[None], None] = {}

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


class Stream(ABC):
    """Both halves of one stream. Belongs to the connection's event loop."""

    __slots__ = (
        "connection",
        "inbox",
        "is_closed",
        "is_remote_closed",
        "outbox",
        "receive_window",
        "send_window",
        "stream_id",
    )

    def __init__(self, connection: Connection[Any], stream_id: int) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.send_window = connection.peer_window_bytes
        self.receive_window = connection.stream_window_bytes
        self.outbox: Outbox | None = None
        self.inbox: Inbox | None = None
        self.is_remote_closed = False
        """The peer has said that it will send nothing more."""
        self.is_closed = False
        """Neither side sends anything more."""

    # ------------------------------------------------------------------- what a role decides

    @abstractmethod
    def receive_data(self, data: bytes, start: int, end: int, end_stream: bool) -> None:
        """A DATA frame without its padding; the windows were checked. The bytes are
        data[start:end]."""

    @abstractmethod
    def on_reset(self, code: int) -> None:
        """The peer has reset the stream; it is already closed."""

    @abstractmethod
    def on_lost(self, reason: str) -> None:
        """The connection has ended; the stream is already closed."""

    # ------------------------------------------------------------------------------- sending

    def send_message(self, message: bytes, compressed: int = 0, *, rest: bytes = b"") -> None:
        """Send or queue one message, which ends with `rest`; our header block must have been
        sent."""
        connection = self.connection
        size = len(message) + len(rest) + PREFIX_BYTES
        if (
            connection.is_fast
            and self.outbox is None
            and size <= self.send_window
            and size <= connection.send_window
            and size <= connection.whole_bytes
        ):
            self.send_window -= size
            connection.sent_data(size)
            connection.control.tokens = connection.control.burst
            header = pack_data_header(
                size >> 8, size & 0xFF, 0, 0, self.stream_id, compressed, size - PREFIX_BYTES
            )
            if rest:
                connection.write_parts(header, message, rest)
            else:
                connection.write_parts(header, message)
        else:
            prefix = bytes((compressed,)) + frames.pack_uint32(size - PREFIX_BYTES)
            self._queue(prefix, message, rest)

    def send_at_once(self, message: bytes, compressed: int = 0) -> None:
        """The same for a caller that has nothing more to send: the message leaves now, without
        another turn of the loop, unless the connection writes later in this turn anyway."""
        connection = self.connection
        if connection.is_write_due:
            self.send_message(message, compressed)
            return
        connection.is_write_due = True
        try:
            self.send_message(message, compressed)
        finally:
            connection.flush()

    def _queue(self, *parts: bytes) -> None:
        size = sum(map(len, parts))
        if self.outbox is None:
            self.outbox = Outbox()
        self.outbox.pieces.extend([memoryview(part) for part in parts if part])
        self.outbox.size += size
        self.connection.hold_queued(size)
        if self.is_closed:
            return
        if self.send_window > 0:
            self.connection.enqueue(self)
        else:
            self.on_blocked()

    def on_blocked(self) -> None:  # noqa: B027  (most streams need nothing done)
        """Something waits, and only for the stream's own window."""

    def send_chunk(self, room: int) -> int:
        """Give up to `room` waiting bytes to the connection, which has that much window; returns
        how many. Afterwards the stream may have nothing left to send, or no window."""
        outbox = self.outbox
        assert outbox is not None, "only streams that wait are asked"
        size = min(outbox.size, room, self.send_window)
        if size <= 0:
            return 0
        connection = self.connection
        pieces = outbox.pieces
        chunk: list[bytes | memoryview] = [
            frames.pack_header(size >> 8, size & 0xFF, frames.DATA, 0, self.stream_id)
        ]
        left = size
        while left:
            piece = pieces[0]
            if len(piece) > left:
                chunk.append(piece[:left])
                pieces[0] = piece[left:]
                break
            chunk.append(pieces.popleft())
            left -= len(piece)
            connection.control.tokens = connection.control.burst
        connection.write_parts(*chunk)
        self.send_window -= size
        outbox.size -= size
        connection.hold_queued(-size)
        if outbox.size <= connection.limits.stream_backlog_bytes and outbox.waiters:
            outbox.wake()
        if not pieces:
            self.outbox = None
            if outbox.tail is not None:
                connection.write(outbox.tail)
                self.end_local()
        return size

    async def sendable(self) -> None:
        """Wait until the queued data is within the backlog, or the stream is closed. While the
        connection holds too much, no waiting stream may add to it."""
        connection = self.connection
        limits = connection.limits
        while (outbox := self.outbox) is not None:
            is_full = connection.queued_bytes > limits.queued_bytes_soft
            if outbox.size <= limits.stream_backlog_bytes and not is_full:
                return
            waiter: asyncio.Future[None] = connection.loop.create_future()
            outbox.waiters[waiter] = None
            try:
                await waiter
            finally:
                del outbox.waiters[waiter]

    def finish_sending(self, tail: bytes) -> None:
        """End our half with these frames, after everything that waits."""
        if self.outbox is not None:
            self.outbox.tail = tail
        else:
            self.connection.write(tail)
            self.end_local()

    @abstractmethod
    def end_local(self) -> None:
        """Our half has ended: all of it was handed to the connection."""

    # ----------------------------------------------------------------------------- receiving

    def open_inbox(self, encoding: bytes, *, window_bytes: int = 0) -> Inbox:
        """Begin to collect messages; `window_bytes`: a larger window than the default."""
        limits = self.connection.limits
        inbox = self.inbox = Inbox(
            limits.message_bytes_max, encoding, decompressed_bytes_max=limits.decompressed_bytes_max
        )
        if window_bytes > self.receive_window:
            self.connection.write(
                frames.window_update(self.stream_id, window_bytes - self.receive_window)
            )
            self.receive_window = window_bytes
        return inbox

    def feed(self, data: bytes, start: int, end: int) -> Inbox:
        """Take a DATA frame into the inbox; a message that has begun gets the window it needs.

        Raises:
            RpcError: see `Inbox.feed`.
        """
        inbox = self.inbox
        assert inbox is not None, "an inbox was opened"
        connection = self.connection
        if (
            end - start < _TINY_BYTES
            and end - start < inbox.missing
            and (inbox.partial or (inbox.place is not None and not inbox.placed_bytes))
        ):
            connection.spend(_TINY_COST)  # neither the beginning of a message nor its end
        connection.hold_received(end - start)
        if self.is_closed:  # these bytes were too many, and have ended the connection
            connection.hold_received(start - end)
            return inbox
        overhead, reserved_bytes = inbox.overhead, inbox.reserved_bytes
        try:
            inbox.feed(data, start, end)
        finally:  # also for the messages before one that is too large
            if inbox.overhead != overhead:
                connection.hold_received(inbox.overhead - overhead)
        if inbox.missing > self.receive_window:
            if not inbox.extension:
                connection.extensions.extend(self, inbox.missing - self.receive_window)
        elif inbox.extension and not inbox.missing:
            connection.extensions.end(inbox)
        # Memory only for what the peer may send now.
        if 0 < inbox.missing <= self.receive_window:
            inbox.make_place()
        if inbox.reserved_bytes != reserved_bytes:
            connection.hold_reserved(inbox.reserved_bytes - reserved_bytes)
        return inbox

    def take(self, target_bytes: int) -> bytes:
        """The next complete message, decompressed only now; the peer may send more.
        `target_bytes`: the stream's window.

        Raises:
            RpcError: see `Inbox.plain`.
        """
        message = self._pop(target_bytes)
        if isinstance(message, bytes):
            return message
        assert self.inbox is not None, "an inbox was opened"
        return self.inbox.plain(message)

    def _pop(self, target_bytes: int) -> bytes | Packed | Place:
        inbox = self.inbox
        assert inbox is not None, "an inbox was opened"
        message, size, overhead = inbox.pop()
        self.connection.hold_received(-size - overhead)
        if not self.is_remote_closed:
            grant = target_bytes - self.receive_window - inbox.size
            if grant >= target_bytes >> 1:
                self.receive_window += grant
                self.connection.write(frames.window_update(self.stream_id, grant))
        return message

    async def next_message(self, target_bytes: int) -> bytes | memoryview | None:
        """The next message, once there is one; None after the last. Only one reader at a time. A
        view only if the inbox `gives_views`.

        Raises:
            RpcError: see `Inbox.plain`.
        """
        inbox = self.inbox
        assert inbox is not None, "an inbox was opened"
        while not inbox.messages:
            if self.is_remote_closed or self.is_closed:
                return None
            inbox.reader = self.connection.loop.create_future()
            try:
                await inbox.reader
            finally:
                inbox.reader = None
        message = self._pop(target_bytes)
        if isinstance(message, bytes):
            return message
        if isinstance(message, Place) and inbox.gives_views:
            return message.view
        return inbox.plain(message)

    # -------------------------------------------------------------------------------- ending

    def reset(self, code: ErrorCode) -> None:
        """End both halves now."""
        if not self.is_closed:
            self.connection.write(frames.rst_stream(self.stream_id, code))
            self.connection.close_stream(self)

    def release(self) -> None:
        """Release what it holds; only the connection calls it, when the stream is closed."""
        connection = self.connection
        if self.outbox is not None:
            outbox, self.outbox = self.outbox, None
            connection.hold_queued(-outbox.size)
            outbox.wake()
        if (inbox := self.inbox) is not None:
            if inbox.extension:
                connection.extensions.end(inbox)
            connection.hold_received(-inbox.size - inbox.overhead)
            inbox.size = inbox.overhead = 0
            if inbox.place is not None:
                connection.hold_reserved(-inbox.reserved_bytes)
                inbox.place = None
            inbox.wake()
