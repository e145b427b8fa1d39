"""What takes too long on a connection: a missing preface, a peer that does not read or answer, a
connection that is idle or has reached its maximum age.

Owns: when each of these began. Pure except for its calls to the connection; the caller passes the
time.
"""

from __future__ import annotations

from typing import Any, Final

from aerobee.rpc.core.connection import Connection
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.limits import ConnectionLimits, Limit

_LINGER_S: Final = 1.0


class Watch:
    """The watch of one connection; call `tick` about once a second."""

    __slots__ = ("_age_s", "_begun_s", "_closing_since_s", "_connection", "_drained_s", "_heard_s",
                 "_idle_since_s", "_limits", "_mid_frame_since_s", "_pinged_s", "_reads_before",
                 "_stall", "_streams_before")  # fmt: skip
    __deletable__ = ("_connection",)
    """For mypyc, which otherwise gives an attribute no way to be deleted."""

    def __init__(
        self, connection: Connection[Any], limits: ConnectionLimits, now_s: float, *, age_s: float
    ) -> None:
        """`age_s`: how long the connection lives before it is drained; 0: any time."""
        self._connection = connection
        self._limits = limits
        self._age_s = age_s
        self._begun_s = self._heard_s = self._idle_since_s = now_s
        self._mid_frame_since_s = now_s
        self._streams_before = self._reads_before = 0
        self._closing_since_s: float | None = None
        self._drained_s: float | None = None
        self._pinged_s: float | None = None
        self._stall: tuple[int, float] | None = None

    def end(self) -> None:
        """The connection is gone. Both referred to each other, which only the garbage collector
        would have found."""
        del self._connection

    def tick(self, now_s: float) -> None:
        """End what takes too long; not after `end`."""
        connection, limits = self._connection, self._limits
        if connection.transport is None:
            return
        connection.recount()
        if not connection.is_settled and now_s - self._begun_s > limits.preface_s:
            connection.abort(f"no HTTP/2 within {limits.preface_s:g} s", Limit.PREFACE)
            return
        if self._is_stalled(now_s):
            connection.abort(f"it has read nothing for {limits.stall_s:g} s", Limit.SLOW_READER)
            return
        if connection.is_closing:
            self._tick_closing(now_s)
            return
        if self._is_dribbling(now_s):
            connection.fail(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"a frame took more than {limits.stall_s:g} s",
                Limit.SLOW_SENDER,
            )
            return
        if connection.is_draining:
            self._tick_drain(now_s)
        elif (self._age_s and now_s - self._begun_s >= self._age_s) or self._is_idle(now_s):
            connection.drain()
            self._drained_s = now_s
        self._tick_keepalive(now_s)

    def _is_stalled(self, now_s: float) -> bool:
        """Whether the number of bytes held by the transport has not shrunk for too long."""
        transport = self._connection.transport
        assert transport is not None, "the tick has looked"
        size = transport.get_write_buffer_size()
        if size == 0 or not (self._connection.is_paused or self._connection.is_closing):
            self._stall = None
            return False
        if self._stall is None or size < self._stall[0]:
            self._stall = (size, now_s)
        self._stall = (size, self._stall[1])
        return now_s - self._stall[1] > self._limits.stall_s

    def _is_dribbling(self, now_s: float) -> bool:
        """Whether the peer takes too long for one frame or one header block."""
        connection = self._connection
        is_same = connection.reads_with_frames == self._reads_before
        if not (connection.is_mid_frame and is_same) or connection.is_reading_paused:
            self._reads_before = connection.reads_with_frames
            self._mid_frame_since_s = now_s
        return now_s - self._mid_frame_since_s > self._limits.stall_s

    def _tick_closing(self, now_s: float) -> None:
        """The last data written still leaves; a peer that then does not end its side is cut off."""
        transport = self._connection.transport
        assert transport is not None, "the tick has looked"
        if self._closing_since_s is None or transport.get_write_buffer_size():
            self._closing_since_s = now_s
        elif now_s - self._closing_since_s >= _LINGER_S:
            transport.abort()

    def _tick_drain(self, now_s: float) -> None:
        if self._drained_s is None:
            self._drained_s = now_s  # the drain was begun elsewhere
            return
        if self._connection.takes_streams:
            self._connection.finish_drain()  # its PING was not answered within a tick
        elif self._limits.age_grace_s and now_s - self._drained_s > self._limits.age_grace_s:
            self._connection.close("the connection has reached its age")

    def _is_idle(self, now_s: float) -> bool:
        connection = self._connection
        if connection.streams or connection.streams_begun != self._streams_before:
            self._streams_before = connection.streams_begun
            self._idle_since_s = now_s
            return False
        return bool(self._limits.idle_s) and now_s - self._idle_since_s >= self._limits.idle_s

    def _tick_keepalive(self, now_s: float) -> None:
        connection, limits = self._connection, self._limits
        if connection.has_heard:
            connection.has_heard = False
            self._heard_s = now_s
            self._pinged_s = None
        elif connection.is_reading_paused:
            self._pinged_s = None  # this side does not read
        elif self._pinged_s is not None:
            if now_s - self._pinged_s >= limits.keepalive_timeout_s:
                connection.abort("a PING was not answered", Limit.KEEPALIVE)
        elif (
            limits.keepalive_s
            and now_s - self._heard_s >= limits.keepalive_s
            and (connection.streams or limits.keepalive_when_idle)
        ):
            self._pinged_s = now_s
            connection.ping()
