"""The client's end of a connection: RFC 9113, the client's part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aerobee.rpc.core import frames
from aerobee.rpc.core.answer_head import AnswerHead, read_head
from aerobee.rpc.core.connection import Connection
from aerobee.rpc.core.connection_set import MemoryAccount
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.header_table import HeaderTable
from aerobee.rpc.core.hpack import Decoder, HeaderListTooLarge, HpackError, SharedStrings
from aerobee.rpc.core.limits import ConnectionFailure, ConnectionLimits, Limit, LimitObserver
from aerobee.rpc.core.watch import Watch

if TYPE_CHECKING:
    from aerobee.rpc.core.client_call import ClientCall


class ConnectionOwner(Protocol):
    """How a connection reports to its channel."""

    def on_room(self) -> None:
        """There may be room for another call."""
        ...

    def on_leaving(self, connection: ClientConnection) -> None:
        """It takes no more calls; running ones may finish. Called once, before `on_gone`."""
        ...

    def on_gone(self, connection: ClientConnection) -> None:
        """The transport has ended."""
        ...


class ClientConnection(Connection["ClientCall"]):
    """Begins streams, as many as its peer allows."""

    def __init__(
        self,
        owner: ConnectionOwner,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        *,
        now: Callable[[], float],
        memory: MemoryAccount,
        observer: LimitObserver,
        strings: SharedStrings,
    ) -> None:
        super().__init__(loop, limits, now=now, memory=memory, observer=observer)
        self.owner = owner
        self.begun_s = now()
        self.watch = Watch(self, limits, self.begun_s, age_s=limits.age_s)
        self.settled: asyncio.Future[None] = loop.create_future()
        """The peer speaks HTTP/2 and has said how many streams it allows; fails with OSError."""
        self.reason = ""
        """Why it ended, if this side knows."""
        self.has_left = False
        """It takes no more calls."""
        self.has_streamed = False
        """The server has begun a streaming call."""
        self.is_sent_away = False
        """Its server takes no more calls on it, without reporting an error."""
        self._owes_reason = False
        self._next_stream_id = 1
        self.table = HeaderTable(strings)
        self._decoder: Decoder[AnswerHead] = Decoder(
            strings, read_head, list_bytes_max=limits.header_list_bytes_max
        )

    def first_bytes(self) -> bytes:
        limits = self.limits
        settings = [
            (frames.ENABLE_PUSH, 0),
            (frames.INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
            (frames.MAX_HEADER_LIST_SIZE, limits.header_list_bytes_max),
        ]
        if limits.frame_bytes_max != frames.FRAME_BYTES_MIN:
            settings.append((frames.MAX_FRAME_SIZE, limits.frame_bytes_max))
        return frames.PREFACE + frames.settings_frame(settings)

    def last_stream_id(self) -> int:
        return 0  # servers begin none

    def is_idle(self, stream_id: int) -> bool:
        return stream_id >= self._next_stream_id or not stream_id & 1

    def on_settings(self) -> None:
        if self._needs_table_update:
            self.table.close()
        if not self.settled.done():
            self.settled.set_result(None)
        elif not self.has_left:
            self.owner.on_room()

    # -------------------------------------------------------------------------------- streams

    @property
    def is_of_use(self) -> bool:
        """At least one call has got something from it."""
        return self.has_streamed or self.streams_answered > 0

    def has_room(self) -> bool:
        """Another call may begin."""
        return (
            len(self.streams) < self.peer_streams_max
            and self.queued_bytes <= self.limits.queued_bytes_soft
            and not self.has_left
            and not self.is_closing
        )

    def open(self, call: ClientCall) -> None:
        """Begin a call on the next stream; the caller has checked that there is room."""
        stream_id = self._next_stream_id
        self._next_stream_id = stream_id + 2
        self.streams_begun += 1
        self.streams[stream_id] = call
        call.begin(self, stream_id)
        if stream_id + 2 > frames.STREAM_ID_MAX:
            self.retire()  # all numbers are used up (section 5.1.1)

    def receive_headers(self, stream_id: int, block: bytes, end_stream: bool) -> None:
        try:
            head = self._decoder.decode(block)
        except HpackError as error:
            raise ConnectionFailure(ErrorCode.COMPRESSION_ERROR, str(error)) from None
        except HeaderListTooLarge:
            self._refuse_oversized(stream_id)
            return
        call = self.streams.get(stream_id)
        if call is not None:
            call.receive_head(head, end_stream)
        elif self.is_idle(stream_id):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "HEADERS on an idle stream")
        # Otherwise it was sent before the peer learned that we had ended the call.

    def answered(self) -> None:
        """A call was answered, which pays for the server's control frames: a server with many calls
        at once sends many of them before we send anything again."""
        self.streams_answered += 1
        self.control.tokens = self.control.burst

    def _refuse_oversized(self, stream_id: int) -> None:
        call = self.streams.get(stream_id)
        if call is not None:
            bytes_max = self.limits.header_list_bytes_max
            call.refuse_answer(f"the answer's metadata are more than {bytes_max} bytes")

    def _on_data_without_stream(self, stream_id: int) -> None:
        """For calls that we have ended, any amount: the peer may not know yet."""
        if stream_id == 0 or self.is_idle(stream_id):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "DATA on an idle stream")

    def fail_stream(self, stream: ClientCall, code: ErrorCode) -> None:
        """The server broke the protocol on one stream."""
        stream.refuse_answer(f"the server broke HTTP/2: {code.name}", code)
        self._spend_reset()

    def on_stream_closed(self) -> None:
        if not self.has_left:
            self.owner.on_room()

    def hold_queued(self, size: int) -> None:
        """Data waiting here came from our own callers and never ends a connection. New calls wait
        beyond `queued_bytes_soft`, and a stream's writer beyond its own backlog."""
        was_full = self.queued_bytes > self.limits.queued_bytes_soft
        self.queued_bytes += size
        self._memory.add(size)
        if was_full and self.has_room():
            self.loop.call_soon(self.owner.on_room)  # a stream is in the middle of sending

    # --------------------------------------------------------------------------------- ending

    def on_goaway(self, last_stream_id: int, code: int, reason: str) -> None:
        self.reason = self.reason or f"the server ends the connection: {reason or code}"
        self.is_sent_away = code == ErrorCode.NO_ERROR
        self._leave()
        refused = [call for number, call in self.streams.items() if number > last_stream_id]
        for call in refused:
            self.close_stream(call)
            call.on_refused()
        self.is_draining = self._is_final = True
        self._end_when_drained()

    def retire(self) -> None:
        """Take no new calls, and end when the running ones have ended."""
        self._leave()
        self.is_draining = self._is_final = True
        self._end_when_drained()

    def drain(self) -> None:
        """It has reached its maximum age, or is idle."""
        self.retire()

    def _leave(self) -> None:
        if not self.has_left:
            self.has_left = True
            self.owner.on_leaving(self)

    def _close(self, code: ErrorCode, reason: str) -> None:
        self.reason = self.reason or reason
        self._owes_reason = code is not ErrorCode.NO_ERROR
        self._leave()
        super()._close(code, reason)

    def _say_goodbye(self) -> None:
        """Only a server that broke the protocol gets time to read why. Others have nothing to say
        that a client still needs, so one that is gone or slow delays nothing."""
        if self._owes_reason:
            super()._say_goodbye()
        elif self.transport is not None:
            self.transport.close()

    def abort(self, reason: str, limit: Limit) -> None:
        self.reason = self.reason or reason
        self._leave()
        super().abort(reason, limit)

    def discard(self) -> None:
        """It is not needed: end it without GOAWAY."""
        self.is_closing = self.has_left = True
        super().discard()
        if self.transport is None:
            self.owner.on_gone(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.reason = self.reason or (str(exc) if exc else "the server closed the connection")
        super().connection_lost(ConnectionError(self.reason))

    def on_closed(self, reason: str) -> None:
        if not self.settled.done():
            self.settled.set_exception(ConnectionError(reason))
            self.settled.exception()  # the caller that waited may have given up
        self.watch.end()
        self._leave()
        self.owner.on_gone(self)
