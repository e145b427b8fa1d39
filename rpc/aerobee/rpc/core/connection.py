"""One HTTP/2 connection, the part common to both ends: RFC 9113.

Owns: what the peer may send, its settings, and the budgets that keep it within its limits. The role
decides what streams mean: `server_connection` and `client_connection` derive from `Connection`.
Four layers, one object: `parser` cuts the input into frames, `outgoing` decides when output leaves,
`ending` ends streams and the connection, and this file handles the meaning of frames.

Nothing here reads a clock: `now` is passed in, and `watch` ends what takes too long.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, cast

from aerobee.rpc.core import frames
from aerobee.rpc.core.budget import Budget
from aerobee.rpc.core.connection_set import MemoryAccount
from aerobee.rpc.core.ending import DRAIN_PING, Ending
from aerobee.rpc.core.extensions import WindowExtensions
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.hpack import TABLE_BYTES
from aerobee.rpc.core.limits import ConnectionFailure, ConnectionLimits, Limit, LimitObserver
from aerobee.rpc.core.outgoing import S
from aerobee.rpc.core.parser import PRIORITY_BYTES, stream_id_at
from aerobee.rpc.core.peer_name import peer_name

_SMALL_INCREMENT: Final = 512
_SMALL_COST: Final = 0.25
_BETWEEN_READS_S: Final = 0.001
"""libuv reads a connection up to 32 times before it serves others. After a longer pause it is
assumed to have done so."""
_OWN_COST: Final = 2 * _SMALL_COST
"""What each stream pays for, answered or not: a small window update, which grpcio sends for each
stream that it begins, and a reset that crosses our answer, since both sides watch the deadline."""
_KEEPALIVE_PING: Final = b"alive?  "


class Connection(Ending[S]):
    """The half of a connection that is the same at both ends. All methods run on the event loop's
    thread."""

    __slots__ = (
        "_answered_before",
        "_begun_before",
        "_heard",
        "_receive_window",
        "_resets",
        "_turn_began_s",
        "_unreturned",
        "_worked_until_s",
        "control",
        "extensions",
        "has_heard",
        "now",
        "peer_streams_max",
        "peer_window_bytes",
        "received_bytes",
        "received_s",
        "stream_window_bytes",
        "streams_answered",
        "streams_begun",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        *,
        now: Callable[[], float],
        memory: MemoryAccount,
        observer: LimitObserver,
        heard: Callable[[], None] | None = None,
    ) -> None:
        """`now`: monotonic seconds. `memory`: shared by all connections of the process. `heard` is
        called whenever something arrives."""
        super().__init__(loop, limits, memory, observer)
        self.now = now
        self._heard = heard
        self.stream_window_bytes = limits.stream_window_bytes
        self.peer_window_bytes = frames.WINDOW_DEFAULT
        """The peer's SETTINGS_INITIAL_WINDOW_SIZE."""
        self.peer_streams_max = frames.STREAM_ID_MAX
        self.streams_begun = 0
        self.streams_answered = 0
        self.has_heard = True
        """Something arrived since the last tick; the reader of this flag resets it."""
        self.received_s = 0.0
        self._worked_until_s = self._turn_began_s = 0.0
        """When the input being parsed arrived."""
        self.control = Budget(limits.control_burst, limits.control_per_s, now())
        self._resets = Budget(limits.reset_burst, limits.reset_per_s, now())
        self._answered_before = self._begun_before = 0
        self.received_bytes = 0
        self.extensions = WindowExtensions(limits.extension_bytes_max, self._send_window_update)
        self._receive_window = frames.WINDOW_DEFAULT
        self._unreturned = 0

    # ------------------------------------------------------------------- what a role decides

    @abstractmethod
    def first_bytes(self) -> bytes:
        """What this side sends first: SETTINGS, and before it a client's preface."""

    @abstractmethod
    def is_idle(self, stream_id: int) -> bool:
        """No stream with this id has been begun, so far or ever (section 5.1.1)."""

    @abstractmethod
    def on_goaway(self, last_stream_id: int, code: int, reason: str) -> None:
        """The peer accepts no stream after `last_stream_id`."""

    @abstractmethod
    def on_closed(self, reason: str) -> None:
        """The transport has ended; all streams have already ended."""

    def on_stream_reset(self, stream: S) -> None:
        """The peer has reset a stream, which has ended."""

    # ----------------------------------------------------------------------------- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Neither uvloop's nor TLS's transports derive from this class; they only have its methods.
        self.transport = transport = cast(asyncio.Transport, transport)
        self.peer = peer_name(transport.get_extra_info("peername"))
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self.abort("the peer's TLS does not offer h2", Limit.PROTOCOL)
            return
        if not self.is_admitted():
            return
        transport.set_write_buffer_limits(high=self.limits.send_high_water_bytes)
        room = self.limits.connection_window_bytes - frames.WINDOW_DEFAULT
        self._receive_window += room
        opening = self.first_bytes() + (frames.window_update(0, room) if room else b"")
        transport.write(opening)
        self._refresh_fast()

    def is_admitted(self) -> bool:
        """Whether it may begin at all; otherwise it has been ended."""
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closing = True
        self.is_fast = False
        reason = str(exc) if exc else "the connection was closed"
        self._end_streams(reason)
        self._memory.add(-self._transport_bytes)
        self._transport_bytes = 0
        self._out.clear()
        self.rest = b""
        self.transport = None
        self.on_closed(reason)

    # -------------------------------------------------------------------------------- memory

    def hold_received(self, size: int) -> None:
        self.received_bytes += size
        self._memory.add(size)
        if size < 0 and self._unreturned > self.limits.connection_window_bytes >> 1:
            self._return_window()

    @property
    def held_bytes(self) -> int:
        """Bytes it holds in memory for its peer."""
        return self.queued_bytes + self.received_bytes + self._transport_bytes

    def _return_window(self) -> None:
        """In large steps, and not while too much waits unread."""
        if self.received_bytes <= self.limits.received_bytes_max and not self.is_closing:
            size, self._unreturned = self._unreturned, 0
            self._receive_window += size
            self._send_window_update(0, size)

    def _send_window_update(self, stream_id: int, increment: int) -> None:
        self.write(frames.window_update(stream_id, increment))

    # -------------------------------------------------------------------------------- streams

    def begin_stream(self) -> None:
        """The peer begins a stream; after a certain number, other connections get their turn."""
        self.streams_begun += 1
        self._turn_streams += 1
        if self._turn_streams >= self.limits.streams_per_turn:
            self.must_yield = True

    def refuse_stream(self, stream_id: int, code: ErrorCode) -> None:
        """For a stream that was never begun; the peer pays for it."""
        self.write(frames.rst_stream(stream_id, code))
        self._spend_reset()

    def fail_stream(self, stream: S, code: ErrorCode) -> None:
        """The peer broke the protocol on one stream (section 5.4.2)."""
        stream.reset(code)
        stream.on_reset(code)
        self._spend_reset()

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.write(frames.frame(frames.PING, 0, 0, _KEEPALIVE_PING))

    # ------------------------------------------------------------------------------- budgets

    def spend(self, cost: float) -> None:
        """The peer has caused work without any use."""
        control = self.control
        control.tokens -= cost
        if control.tokens >= 0:
            return
        begun = self.streams_begun - self._begun_before
        self._begun_before = self.streams_begun
        if not control.refill(self.now(), begun * _OWN_COST):
            raise ConnectionFailure(
                ErrorCode.ENHANCE_YOUR_CALM, "too many control frames", Limit.CONTROL_FRAMES
            )

    def _spend_reset(self) -> None:
        """The peer had a stream that cost it nothing: each answered one pays for one of these."""
        resets = self._resets
        resets.tokens -= 1
        if resets.tokens < 0:
            answered = self.streams_answered - self._answered_before
            self._answered_before = self.streams_answered
            if not resets.refill(self.now(), answered):
                raise ConnectionFailure(
                    ErrorCode.ENHANCE_YOUR_CALM, "too many streams were reset", Limit.RESETS
                )

    # ------------------------------------------------------------------------------- parsing

    def data_received(self, data: bytes) -> None:
        if self.is_closing:
            return
        self.has_heard = True
        if self._heard is not None:
            self._heard()
        self.received_s = now_s = self.now()
        # One turn of the loop may read several times.
        if now_s - self._worked_until_s > _BETWEEN_READS_S:
            self._turn_began_s = now_s
        self.is_write_due = True  # whatever is written meanwhile leaves at the end
        try:
            self.parse(self.rest + data if self.rest else data)
        except ConnectionFailure as failure:
            self.fail(failure.code, failure.reason, failure.limit)
        except Exception as error:
            # The event loop would log a traceback for each connection of a peer that knows how.
            self.fail(ErrorCode.INTERNAL_ERROR, _place_of(error), Limit.BUG)
        finally:
            self.flush()
            self._worked_until_s = self.now()

    def is_turn_over(self) -> bool:
        return self.now() - self._turn_began_s > self.limits.turn_s

    def yield_turn(self) -> None:
        """Let other connections have their turn: the rest of the input waits for the loop's next
        iteration."""
        self.must_yield = False
        self.pause_reading()
        self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self.is_paused:
            self._resume_reading()
        self._worked_until_s = 0.0
        self.data_received(b"")

    def _on_data(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        length = end - start
        self._receive_window -= length
        if self._receive_window < 0:
            raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window")
        self._unreturned += length
        if self._unreturned > self.limits.connection_window_bytes >> 1:
            self._return_window()
        end_stream = flags & frames.END_STREAM
        if not length and not end_stream:
            self.spend(1)
        stream = self.streams.get(stream_id)
        if stream is None:
            self._on_data_without_stream(stream_id)
            return
        if stream.is_remote_closed:
            self.fail_stream(stream, ErrorCode.STREAM_CLOSED)
            return
        stream.receive_window -= length
        if stream.receive_window < 0:
            self.fail_stream(stream, ErrorCode.FLOW_CONTROL_ERROR)
            return
        if flags & frames.PADDED:
            if not length or data[start] >= length:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "more padding than frame")
            end -= data[start]
            start += 1
            stream.receive_window += length - (end - start)
            self.write(frames.window_update(stream_id, length - (end - start)))
            self.spend(_SMALL_COST)
        stream.receive_data(data, start, end, bool(end_stream))

    def _on_data_without_stream(self, stream_id: int) -> None:
        if stream_id == 0 or self.is_idle(stream_id):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "DATA on an idle stream")
        if stream_id in self._ended_early or not self.takes_streams:
            return  # sent before the peer learned that we had ended it, or accept none
        self.spend(1)
        self.write(frames.rst_stream(stream_id, ErrorCode.STREAM_CLOSED))

    def _on_priority(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        """Checked and ignored (section 5.3)."""
        self.spend(1)
        if stream_id == 0:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "PRIORITY without a stream")
        stream = self.streams.get(stream_id)
        if end - start != PRIORITY_BYTES:
            code = ErrorCode.FRAME_SIZE_ERROR
        elif stream_id_at(data, start) == stream_id:
            code = ErrorCode.PROTOCOL_ERROR
        else:
            return
        if stream is not None:
            self.fail_stream(stream, code)
        else:
            self.refuse_stream(stream_id, code)

    def _on_rst_stream(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        if end - start != 4:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM")
        if stream_id == 0 or self.is_idle(stream_id):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on an idle stream")
        stream = self.streams.get(stream_id)
        if stream is None:
            self.spend(_SMALL_COST)
            return
        stream.is_remote_closed = True
        self.close_stream(stream)
        stream.on_reset(int.from_bytes(data[start:end], "big"))
        self.on_stream_reset(stream)

    def _on_ping(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        if stream_id:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if end - start != 8:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "PING")
        if not flags & frames.ACK:
            self.spend(1)
            self.write(frames.frame(frames.PING, frames.ACK, 0, data[start:end]))
        elif data[start:end] == DRAIN_PING:
            self.finish_drain()

    def _on_goaway(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        if stream_id:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if end - start < 8:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY")
        self.spend(1)
        reason = data[start + 8 : end].decode("utf-8", "replace")
        code = int.from_bytes(data[start + 4 : start + 8], "big")
        self.on_goaway(stream_id_at(data, start), code, reason)

    def _on_window_update(
        self, data: bytes, start: int, end: int, flags: int, stream_id: int
    ) -> None:
        if end - start != 4:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE")
        increment = int.from_bytes(data[start:end], "big") & frames.WINDOW_MAX
        if increment < _SMALL_INCREMENT:
            self.spend(_SMALL_COST)
        if stream_id == 0:
            if not increment:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "an increment of nothing")
            self.send_window += increment
            if self.send_window > frames.WINDOW_MAX:
                raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "the window overflows")
            return  # waiting streams are checked at the end of the turn
        stream = self.streams.get(stream_id)
        if stream is None:
            if self.is_idle(stream_id):
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a window of an idle stream")
            return
        if not increment:
            self.fail_stream(stream, ErrorCode.PROTOCOL_ERROR)
            return
        stream.send_window += increment
        if stream.send_window > frames.WINDOW_MAX:
            self.fail_stream(stream, ErrorCode.FLOW_CONTROL_ERROR)
        elif stream.outbox is not None and stream.send_window > 0:
            self.enqueue(stream)

    def _on_settings(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        length = end - start
        if stream_id:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & frames.ACK:
            if length:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS ACK with a payload")
            return
        if length % 6:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS")
        # Each may iterate over all streams.
        self.spend(1 + length / 60 + len(self.streams) / 100)
        for position in range(start, end, 6):
            key = int.from_bytes(data[position : position + 2], "big")
            self._apply_setting(key, int.from_bytes(data[position + 2 : position + 6], "big"))
        self.write(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self.on_settings()

    def on_settings(self) -> None:
        """The peer's settings have changed."""

    def _apply_setting(self, key: int, value: int) -> None:
        if key == frames.INITIAL_WINDOW_SIZE:
            if value > frames.WINDOW_MAX:
                raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond 2^31 - 1")
            self._change_windows(value - self.peer_window_bytes)
            self.peer_window_bytes = value
        elif key == frames.MAX_FRAME_SIZE:
            if not frames.FRAME_BYTES_MIN <= value <= frames.FRAME_BYTES_MAX:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE")
            self.peer_frame_bytes_max = value
            self.chunk_bytes = min(self.limits.send_chunk_bytes, value)
        elif key == frames.ENABLE_PUSH:
            if value > 1:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH")
        elif key == frames.MAX_CONCURRENT_STREAMS:
            self.peer_streams_max = value
        elif key == frames.HEADER_TABLE_SIZE and value < TABLE_BYTES:
            self._needs_table_update = True
            self.is_fast = False

    def _change_windows(self, change: int) -> None:
        """Changes the windows of all streams; they may become negative (section 6.9.2)."""
        for stream in self.streams.values():
            stream.send_window += change
            if stream.send_window > frames.WINDOW_MAX:
                raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "a window overflows")
            if stream.outbox is not None and stream.send_window > 0:
                self.enqueue(stream)


def _place_of(error: Exception) -> str:
    """Where it was raised, in one line; its text may be the peer's."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else place.tb_frame.f_code.co_filename.rpartition("/")[2]
    line = 0 if place is None else place.tb_lineno
    return f"{type(error).__name__} at {where}:{line}"
