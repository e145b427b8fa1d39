"""The server's end of a connection: RFC 9113, the server's part."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from aerobee.rpc.core import frames
from aerobee.rpc.core.connection import Connection
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.hpack import Decoder, HeaderListTooLarge, HpackError
from aerobee.rpc.core.inbox import MESSAGE_BYTES
from aerobee.rpc.core.limits import ConnectionFailure, Limit
from aerobee.rpc.core.request_head import MALFORMED, RequestHead
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.status import Status
from aerobee.rpc.core.watch import Watch

if TYPE_CHECKING:
    from aerobee.rpc.core.server import Server

_OVERSIZED_COST = 10.0
_Parked = deque[tuple["ServerCall", bytes | None]] | tuple[()]
"""Calls waiting for room. An empty deque takes 0.7 KiB, so a connection without any has none."""


class ServerConnection(Connection[ServerCall]):
    """Accepts streams and starts their calls, a limited number in one turn of the loop."""

    __slots__ = (
        "_apart",
        "_apart_bytes",
        "_decoder",
        "_last_stream_id",
        "_parked",
        "_parked_streams",
        "has_room",
        "interceptor",
        "listener",
        "server",
        "watch",
    )

    begins_with_preface = True

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, listener: str = "") -> None:
        super().__init__(
            loop,
            server.limits,
            now=server.now,
            memory=server.memory,
            observer=server.observer,
            heard=server.heard,
        )
        self.server = server
        self.listener = listener
        self.interceptor = server.interceptor
        self.watch = Watch(self, server.limits, server.now(), age_s=server.age_s())
        self._last_stream_id = 0
        self._decoder: Decoder[RequestHead] = Decoder(
            server.strings, server.read_head, list_bytes_max=server.limits.header_list_bytes_max
        )
        self.has_room = True
        """Little enough waits to be sent; otherwise no calls are begun. Streams whose answers are
        not read do not count: each holds little more than one message. But no further stream of
        answers is begun while the total including them is too large."""
        self._apart: dict[ServerCall, int] = {}
        """Streams of answers that wait only for their own window, with their bytes."""
        self._apart_bytes = 0
        self._parked: _Parked = ()
        self._parked_streams: _Parked = ()

    def first_bytes(self) -> bytes:
        limits = self.limits
        settings = [
            (frames.MAX_CONCURRENT_STREAMS, limits.streams_max),
            (frames.INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
            (frames.MAX_HEADER_LIST_SIZE, limits.header_list_bytes_max),
        ]
        if limits.frame_bytes_max != frames.FRAME_BYTES_MIN:
            settings.append((frames.MAX_FRAME_SIZE, limits.frame_bytes_max))
        return frames.settings_frame(settings)

    def last_stream_id(self) -> int:
        return self._last_stream_id

    def is_idle(self, stream_id: int) -> bool:
        is_new = stream_id > self._last_stream_id and self.takes_streams
        return is_new or not stream_id & 1

    def limit_met(self, limit: Limit, reason: str) -> None:
        """One call exceeded a limit; the connection continues."""
        self.server.observer.limit_met(limit, self.peer, reason)

    def is_admitted(self) -> bool:
        return self.server.admit(self)

    def pause_writing(self) -> None:
        """A peer that does not read gets no new answers. Only a server may do this: if both ends
        stopped reading until they can write, neither would ever continue."""
        super().pause_writing()
        self.pause_reading()

    # -------------------------------------------------------------------------------- streams

    def receive_headers(self, stream_id: int, block: bytes, end_stream: bool) -> None:
        head: RequestHead | None
        try:
            head = self._decoder.decode(block)
        except HpackError as error:
            raise ConnectionFailure(ErrorCode.COMPRESSION_ERROR, str(error)) from None
        except HeaderListTooLarge:
            head = None
        if not stream_id & 1:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a client's streams are odd")
        if stream_id <= self._last_stream_id:
            self._receive_trailers(stream_id, head, end_stream)
            return
        if not self.takes_streams:
            return  # the last GOAWAY has said so (RFC 9113, 6.8)
        self._last_stream_id = stream_id
        if len(self.streams) >= self.limits.streams_max:
            self.limit_met(Limit.STREAMS, f"more than {self.limits.streams_max} streams at once")
            self.refuse_stream(stream_id, ErrorCode.REFUSED_STREAM)
            return
        if head is not None and head.flaw == MALFORMED:
            self.refuse_stream(stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        self.begin_stream()
        call = ServerCall(self, stream_id, head or RequestHead(()))
        self.streams[stream_id] = call
        if head is None:
            self._refuse_oversized(call, end_stream)
        elif end_stream and head.content_length:
            self.fail_stream(call, ErrorCode.PROTOCOL_ERROR)
        else:
            call.open(end_stream)

    def on_stream_reset(self, stream: ServerCall) -> None:
        """Resetting a stream that has run for a while costs nothing, since calls reach their
        deadlines: the limit of streams bounds how many of these there are."""
        if self.received_s - stream.began_s < self.limits.reset_free_after_s:
            self._spend_reset()

    def _refuse_oversized(self, call: ServerCall, end_stream: bool) -> None:
        self.limit_met(
            Limit.HEADER_LIST, f"header fields of more than {self.limits.header_list_bytes_max}"
        )
        self.spend(_OVERSIZED_COST)
        call.is_remote_closed = end_stream
        call.abort(Status.RESOURCE_EXHAUSTED, "the metadata are too large")

    def _receive_trailers(self, stream_id: int, head: RequestHead | None, end_stream: bool) -> None:
        call = self.streams.get(stream_id)
        if call is None:
            if self.ended_early(stream_id):
                return
            raise ConnectionFailure(ErrorCode.STREAM_CLOSED, "HEADERS on a closed stream")
        if call.is_remote_closed:
            self.fail_stream(call, ErrorCode.STREAM_CLOSED)
        elif not end_stream or head is None or any(field[0][:1] == b":" for field in head.fields):
            self.fail_stream(call, ErrorCode.PROTOCOL_ERROR)
        else:
            call.receive_trailers()

    def dispatch(self, call: ServerCall) -> None:
        """Start a call whose request is complete, unless too much waits for the peer to read it."""
        if self.has_room:
            call.start(None)
        else:
            self._parked = self._park(self._parked, call, None)

    def park_stream(self, call: ServerCall, message: bytes | None) -> bool:
        """The same for a call that streams its answers. True if it has to wait."""
        if self.queued_bytes <= self.limits.queued_bytes_soft:
            return False
        self._parked_streams = self._park(self._parked_streams, call, message)
        return True

    def _park(self, parked: _Parked, call: ServerCall, message: bytes | None) -> _Parked:
        """`message` None: it stays in the call's inbox."""
        self.hold_received(_parked_bytes(message))
        parked = parked or deque()
        parked.append((call, message))
        return parked

    def hold_queued(self, size: int) -> None:
        super().hold_queued(size)
        self._look_for_room()

    def set_apart(self, call: ServerCall) -> None:
        """It streams its answers, and its own window is used up."""
        size = call.outbox.size if call.outbox is not None else 0
        self._apart_bytes += size - self._apart.get(call, 0)
        self._apart[call] = size
        self._look_for_room()

    def enqueue(self, stream: ServerCall) -> None:
        self.take_back(stream)
        super().enqueue(stream)

    def take_back(self, call: ServerCall) -> None:
        """It has a window again, or has ended."""
        size = self._apart.pop(call, 0)
        if size:
            self._apart_bytes -= size
            self._look_for_room()

    def _look_for_room(self) -> None:
        soft = self.limits.queued_bytes_soft
        self.has_room = self.queued_bytes - self._apart_bytes <= soft
        if (self._parked and self.has_room) or (self._parked_streams and self.queued_bytes <= soft):
            self.loop.call_soon(self._start_parked)

    def _start_parked(self) -> None:
        while self._parked and self.has_room:
            self._start_first(self._parked)
        while self._parked_streams and self.queued_bytes <= self.limits.queued_bytes_soft:
            self._start_first(self._parked_streams)

    def _start_first(self, parked: deque[tuple[ServerCall, bytes | None]]) -> None:
        call, message = parked.popleft()
        self.hold_received(-_parked_bytes(message))
        call.start(message)

    # --------------------------------------------------------------------------------- ending

    def on_goaway(self, last_stream_id: int, code: int, reason: str) -> None:
        """The client will begin no more streams: running ones may finish."""

    def on_parted(self) -> None:
        self.server.on_parted(self)

    def on_closed(self, reason: str) -> None:
        for parked in (self._parked, self._parked_streams):
            while parked:
                self.hold_received(-_parked_bytes(parked.popleft()[1]))
        self.server.on_disconnected(self)


def _parked_bytes(message: bytes | None) -> int:
    return MESSAGE_BYTES if message is None else MESSAGE_BYTES + len(message)
