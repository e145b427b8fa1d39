"""What a connection sends, and when: RFC 9113, section 5.2, and the order of streams.

Owns: the transport, what was written in this turn of the event loop, and which streams wait.

What is written while input is parsed, or in one turn of the loop, leaves in one call of the
transport. Answers that fit the windows go straight there. Everything else waits in its stream and
is sent in rounds: a bounded chunk of each stream and a bounded total in each turn, so that a large
answer delays a small one by no more than a round.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import OrderedDict
from typing import Final, Generic, TypeVar

from aerobee.rpc.core import frames
from aerobee.rpc.core.connection_set import MemoryAccount
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.hpack import NO_TABLE
from aerobee.rpc.core.limits import ConnectionLimits, Limit
from aerobee.rpc.core.parser import FrameParser
from aerobee.rpc.core.stream import Stream

S = TypeVar("S", bound=Stream)

_JOINED_BYTES_MAX: Final = 32 << 10
"""So much leaves as one piece of memory: passing more of them on costs more than the copy."""
_APART_BYTES_MIN: Final = 8 << 10


class Outgoing(FrameParser, asyncio.BufferedProtocol, Generic[S]):
    """The sending half of a connection, and its transport."""

    __slots__ = (
        "_memory",
        "_needs_table_update",
        "_out",
        "_transport_bytes",
        "_turn_bytes",
        "_turn_streams",
        "_waiting",
        "chunk_bytes",
        "is_fast",
        "is_paused",
        "is_reading_paused",
        "is_write_due",
        "loop",
        "peer_frame_bytes_max",
        "queued_bytes",
        "send_window",
        "transport",
        "whole_bytes",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: ConnectionLimits, memory: MemoryAccount
    ) -> None:
        super().__init__(limits)
        self.loop = loop
        self.transport: asyncio.Transport | None = None
        self.peer_frame_bytes_max = frames.FRAME_BYTES_MIN
        self.chunk_bytes = min(limits.send_chunk_bytes, frames.FRAME_BYTES_MIN)
        self.whole_bytes = frames.FRAME_BYTES_MIN
        """A message of up to so many bytes leaves in one frame, if nothing waits."""
        self.send_window = frames.WINDOW_DEFAULT
        self.is_fast = False
        """Small answers may be written at once: nothing waits, and nothing has to be sent first."""
        self.is_paused = False
        """The transport holds more than it should."""
        self.is_reading_paused = False
        self.queued_bytes = 0
        self._memory = memory
        self._transport_bytes = 0
        self._waiting: OrderedDict[S, None] = OrderedDict()
        self._out: list[bytes | memoryview] = []
        self.is_write_due = False
        """What is written now leaves later in this turn, together with everything else."""
        self._turn_bytes = self._turn_streams = 0
        self._needs_table_update = False

    @abstractmethod
    def fail(self, code: ErrorCode, reason: str, limit: Limit) -> None:
        """Send GOAWAY and end."""

    def eof_received(self) -> bool:
        return False  # no half-open connections: the transport closes

    def pause_writing(self) -> None:
        """The peer or the network takes less than we send."""
        self.is_paused = True
        self.is_fast = False
        self.recount()

    def resume_writing(self) -> None:
        self.is_paused = False
        self.recount()
        self._resume_reading()
        self._schedule()

    def recount(self) -> None:
        """Account for what the transport holds unsent, and for the frame and the header block that
        are incomplete: they are too small, and change too often, to be counted each time."""
        transport = self.transport
        if transport is None:
            return
        size = transport.get_write_buffer_size() + len(self.rest) + len(self._block)
        if size != self._transport_bytes:
            change, self._transport_bytes = size - self._transport_bytes, size
            self._memory.add(change)

    def pause_reading(self) -> None:
        if not self.is_reading_paused and self.transport is not None and not self.is_closing:
            self.is_reading_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self.is_reading_paused and self.transport is not None:
            self.is_reading_paused = False
            self.transport.resume_reading()

    # ------------------------------------------------------------------------------- writing

    def write(self, data: bytes) -> None:
        """Write whole frames; they leave at the end of this turn of the loop."""
        self._out.append(data)
        if not self.is_write_due:
            self.is_write_due = True
            self.loop.call_soon(self.flush)

    def write_parts(self, *parts: bytes | memoryview) -> None:
        """The same for frames in parts."""
        self._out += parts
        if not self.is_write_due:
            self._schedule()

    def _schedule(self) -> None:
        if not self.is_write_due:
            self.is_write_due = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what was written now, and of what waits as much as a turn may send."""
        self.is_write_due = False
        transport = self.transport
        if transport is None:
            self._out.clear()
            return
        if self._waiting and not self.is_paused:
            self._send_waiting()
        out = self._out
        if out:
            self._out = []
            if len(out) == 1:
                transport.write(out[0])
            elif sum(map(len, out)) <= _JOINED_BYTES_MAX:
                transport.write(b"".join(out))
            else:
                transport.writelines(_gathered(out))
        self._turn_bytes = self._turn_streams = 0
        self._refresh_fast()
        if self._waiting and self.send_window > 0 and not self.is_paused and not self.is_closing:
            self._schedule()

    def _send_waiting(self) -> None:
        """One or more rounds over the waiting streams, limited to what a turn may send."""
        waiting = self._waiting
        room = self.limits.send_turn_bytes - self._turn_bytes
        while waiting and room > 0 and self.send_window > 0:
            stream = next(iter(waiting))
            size = stream.send_chunk(min(self.chunk_bytes, self.send_window))
            self.send_window -= size
            room -= size
            if stream.outbox is None:
                waiting.pop(stream, None)
            elif stream.send_window <= 0:
                waiting.pop(stream, None)  # a WINDOW_UPDATE brings it back
                stream.on_blocked()
            else:
                waiting.move_to_end(stream)

    def _refresh_fast(self) -> None:
        self.is_fast = not (
            self._waiting
            or self.is_paused
            or self._needs_table_update
            or self.is_closing
            or not self.is_settled
        )

    def sent_data(self, size: int) -> None:
        """Accounts for DATA that was written without waiting."""
        self.send_window -= size
        self._turn_bytes += size
        if self._turn_bytes > self.limits.send_turn_bytes:
            self.is_fast = False

    def enqueue(self, stream: S) -> None:
        """The stream has something to send, and window for it."""
        self._waiting[stream] = None
        self.is_fast = False
        self._schedule()

    def send_headers(self, stream_id: int, block: bytes, *, end_stream: bool) -> None:
        """A header block, encoded by `hpack.encode`."""
        self.write(self.header_frames(stream_id, block, end_stream=end_stream))

    def header_frames(self, stream_id: int, block: bytes, *, end_stream: bool) -> bytes:
        """The same as bytes, which must be written before any other block."""
        if self._needs_table_update:
            self._needs_table_update = False
            block = NO_TABLE + block
        return frames.header_frames(
            stream_id, block, end_stream=end_stream, frame_bytes_max=self.peer_frame_bytes_max
        )

    def hold_queued(self, size: int) -> None:
        self.queued_bytes += size
        self._memory.add(size)
        if size > 0 and self.queued_bytes > self.limits.queued_bytes_max:
            self.fail(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"{self.queued_bytes} bytes wait to be read",
                Limit.CONNECTION_MEMORY,
            )


def _gathered(parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """The same bytes in fewer pieces: small neighbours are joined, large ones stay as they are."""
    gathered: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for part in parts:
        if len(part) < _APART_BYTES_MIN:
            small.append(part)
            continue
        if small:
            gathered.append(b"".join(small))
            small = []
        gathered.append(part)
    if small:
        gathered.append(b"".join(small))
    return gathered
