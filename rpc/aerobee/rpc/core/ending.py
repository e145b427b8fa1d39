"""How a connection and its streams end: RFC 9113, sections 5.4 and 6.8.

Owns: the set of open streams, and how far the ending has progressed.

    drain   no new streams; the end when those that run have ended
    part    the same, at once, without asking the peer first
    close   all streams are reset, and a GOAWAY says so
    fail    the same, because the peer broke the protocol or a limit
    abort   the transport is cut off, without GOAWAY
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Final

from aerobee.rpc.core import frames
from aerobee.rpc.core.connection_set import MemoryAccount
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.limits import ConnectionLimits, Limit, LimitObserver
from aerobee.rpc.core.outgoing import Outgoing, S

DRAIN_PING: Final = b"draining"
"""Sent after the first GOAWAY: once it is answered, everything the peer sent before it has arrived.
"""
_ENDED_EARLY_MAX: Final = 128


class Ending(Outgoing[S]):
    """The part of a connection that ends it."""

    __slots__ = ("_ended_early", "_is_final", "_observer", "is_draining", "peer", "streams")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        memory: MemoryAccount,
        observer: LimitObserver,
    ) -> None:
        super().__init__(loop, limits, memory)
        self.peer = "unknown"
        self.streams: dict[int, S] = {}
        self.is_draining = False
        self._observer = observer
        self._ended_early: dict[int, None] = {}  # oldest first
        self._is_final = False
        """The last GOAWAY has been sent."""

    # ------------------------------------------------------------------- what a role decides

    @abstractmethod
    def last_stream_id(self) -> int:
        """The last of the peer's streams that was accepted; for GOAWAY."""

    def on_parted(self) -> None:
        """All calls have ended on a connection that takes no more."""

    def on_stream_closed(self) -> None:
        """A stream has ended; there may be room for another."""

    # ------------------------------------------------------------------------------ one stream

    def close_stream(self, stream: S) -> None:
        """It has ended on both sides, or was reset."""
        if stream.is_closed:
            return
        stream.is_closed = True
        if self.streams.pop(stream.stream_id, None) is not None and self.is_draining:
            self._end_when_drained()
        self._waiting.pop(stream, None)
        if not stream.is_remote_closed:
            self._ended_early[stream.stream_id] = None
            if len(self._ended_early) > _ENDED_EARLY_MAX:
                del self._ended_early[next(iter(self._ended_early))]
        if stream.outbox is not None or stream.inbox is not None:
            stream.release()
        self.on_stream_closed()

    def ended_early(self, stream_id: int) -> bool:
        """We ended it recently, before the peer did: what it sent in the meantime is ignored."""
        return stream_id in self._ended_early

    # -------------------------------------------------------------------------- the connection

    def fail(self, code: ErrorCode, reason: str, limit: Limit) -> None:
        """Send GOAWAY and end; streams end, and what was written still leaves."""
        if self.is_closing:
            return
        self.is_closing = self.must_yield = True
        self._observer.limit_met(limit, self.peer, reason)
        self._close(code, reason)

    def _close(self, code: ErrorCode, reason: str) -> None:
        self.is_closing = self.must_yield = True
        self.is_fast = False
        self.rest = b""
        self._waiting.clear()
        self._out.append(frames.goaway(self.last_stream_id(), code, reason))
        self.flush()
        self._end_streams(reason)
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Close our direction and wait for the peer's end; `watch` does not wait long. If the
        socket were closed at once, with input unread, TCP would discard what the peer has not read
        yet: the GOAWAY."""
        transport = self.transport
        if transport is None:
            return
        self._resume_reading()
        try:
            if transport.can_write_eof():
                transport.write_eof()
            else:
                transport.close()
        except OSError:  # the peer is gone, and asyncio does not know it yet
            transport.abort()

    def abort(self, reason: str, limit: Limit) -> None:
        """End at once, without GOAWAY: the peer is not reading."""
        self.is_closing = self.must_yield = True
        self.is_fast = False
        self._observer.limit_met(limit, self.peer, reason)
        if self.transport is not None:
            self.transport.abort()

    def _end_streams(self, reason: str) -> None:
        for stream in list(self.streams.values()):
            self.close_stream(stream)
            stream.on_lost(reason)

    def drain(self) -> None:
        """Take no new streams; end when the running ones have ended (section 6.8). Two GOAWAYs are
        sent: the first names no stream, so that requests on their way here are still served."""
        if self.is_draining or self.is_closing:
            return
        self.is_draining = True
        self.write(
            frames.goaway(frames.STREAM_ID_MAX, ErrorCode.NO_ERROR)
            + frames.frame(frames.PING, 0, 0, DRAIN_PING)
        )

    def part(self) -> None:
        """The same in one step, without waiting for the peer: requests on their way here are
        refused, and thus known not to have begun."""
        self.is_draining = True
        self.finish_drain()

    def finish_drain(self) -> None:
        """Everything that the peer sent before it read our first GOAWAY has arrived."""
        if self.is_draining and not self._is_final and not self.is_closing:
            self._is_final = True
            self.write(frames.goaway(self.last_stream_id(), ErrorCode.NO_ERROR))
            self._end_when_drained()

    def _end_when_drained(self) -> None:
        if self._is_final and not self.streams and not self.is_closing:
            self.is_closing = self.must_yield = True
            self.is_fast = False
            self.flush()
            self._say_goodbye()
            self.on_parted()

    @property
    def takes_streams(self) -> bool:
        """False once the last GOAWAY has named the last stream."""
        return not self._is_final

    def close(self, reason: str) -> None:
        """Reset what is running and end the connection."""
        if not self.is_closing:
            self._close(ErrorCode.NO_ERROR, reason)

    def discard(self) -> None:
        """End it without GOAWAY."""
        if self.transport is not None:
            self.transport.abort()
