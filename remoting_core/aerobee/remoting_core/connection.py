"""One connection, which carries requests both ways.

Owns: what was read and not begun, the requests that wait for the peer's answer, and the rules by
which a peer that reads slowly, sends slowly or sends too much is held back or ended.

Invariants: at most `running_max` requests of the peer are worked on; nothing is read while more
than `write_high_bytes` wait to be sent; every request of this side ends, with its answer or with
ConnectionEnded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol, cast

from aerobee.remoting_core.command import ONE_WAY, Command
from aerobee.remoting_core.errors import ConnectionEnded, FrameIllegal
from aerobee.remoting_core.frames import FrameParser, encode_frame, frame_parts
from aerobee.remoting_core.limits import Limit, RemotingLimits

_OPAQUE_END: Final = 1 << 31
_COPIED_BYTES_MAX: Final = 4 << 10
"""Parts that are larger on average are written as they are: a copy of them would cost more."""
_GATHERED_BYTES_MAX: Final = 64 << 10
"""Answers of more than this in all do not wait for others."""
_UNKNOWN: Final = "unknown"


class Owner(Protocol):
    """The server or client that a connection belongs to. No method may raise or wait."""

    def opened(self, connection: Connection) -> bool:
        """False: it is one too many, and ends at once."""
        ...

    def received(self, connection: Connection, request: Command) -> None:
        """The peer asks something. It counts as running until `connection.finished`."""
        ...

    def holds(self, connection: Connection) -> None:
        """What the connection holds has grown."""
        ...

    def met(self, connection: Connection, limit: Limit, reason: str) -> None:
        """The connection ends for this reason."""
        ...

    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """Either end. All methods run on the event loop's thread."""

    __slots__ = (
        "_asked",
        "_flush_turn",
        "_gathered",
        "_gathered_bytes",
        "_is_beginning",
        "_is_held",
        "_is_reading",
        "_loop",
        "_next_opaque",
        "_now",
        "_on_closed",
        "_on_writable",
        "_owner",
        "_parser",
        "_running",
        "_stalled_bytes",
        "_timer",
        "_transport",
        "_turn",
        "_unfinished_since_s",
        "heard_s",
        "is_paused",
        "limits",
        "listener",
        "peer",
    )

    def __init__(
        self,
        owner: Owner,
        limits: RemotingLimits,
        *,
        now: Callable[[], float],
        listener: str = "",
    ) -> None:
        """`now`: monotonic seconds. `listener`: the name of the listener that accepted it."""
        self.limits = limits
        self.listener = listener
        self.peer = _UNKNOWN
        """host:port."""
        self.is_paused = False
        """The peer reads more slowly than it is answered."""
        self.heard_s = now()
        self._owner = owner
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._parser = FrameParser(limits.frames)
        self._transport: asyncio.Transport | None = None
        self._asked: dict[int, asyncio.Future[Command]] = {}
        self._next_opaque = 0
        self._running = 0
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._flush_turn: asyncio.Handle | None = None
        self._is_beginning = False
        """Requests are being begun: what answers them at once leaves together."""
        self._is_reading = True
        self._is_held = False
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stalled_bytes = 0
        self._unfinished_since_s = 0.0
        self._on_writable: dict[Callable[[], None], None] = {}
        self._on_closed: dict[Callable[[], None], None] = {}

    def __repr__(self) -> str:
        return f"Connection({self.peer}, running={self._running}, asked={len(self._asked)})"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._transport

    @property
    def is_encrypted(self) -> bool:
        """The peer speaks TLS."""
        transport = self._transport
        return transport is not None and transport.get_extra_info("ssl_object") is not None

    def peer_certificate(self) -> dict[str, Any] | None:
        """The content of the peer's certificate, if TLS asked for one."""
        return None if self._transport is None else self._transport.get_extra_info("peercert")

    @property
    def held_bytes(self) -> int:
        """What it holds for its peer: unread and unsent."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._parser.held_bytes + self._gathered_bytes + unsent

    # -------------------------------------------------------------------------- requests of ours

    def ask(self, request: Command) -> asyncio.Future[Command]:
        """Send a request; the future gets its answer. Cancel it to wait no longer.

        Raises ConnectionEnded, also by the future; ValueError: it fits no frame.
        """
        if not self.is_open:
            raise ConnectionEnded(f"the connection with {self.peer} has ended")
        opaque = self._take_opaque()
        answered: asyncio.Future[Command] = self._loop.create_future()
        self._asked[opaque] = answered
        answered.add_done_callback(lambda _: self._asked.pop(opaque, None))
        self.write(encode_frame(replace(request, opaque=opaque)))
        return answered

    def tell(self, request: Command) -> None:
        """Send a one-way request, if the connection is still open. Raises ValueError."""
        flag = request.flag | ONE_WAY
        self.write(encode_frame(replace(request, opaque=self._take_opaque(), flag=flag)))

    def _take_opaque(self) -> int:
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) % _OPAQUE_END
        return opaque

    # ------------------------------------------------------------------------ requests of the peer

    def reply(self, answer: Command) -> None:
        """Send an answer, if the connection is still open. Raises ValueError: it fits no frame."""
        self.write(*frame_parts(answer))

    def begun(self) -> None:
        """A request of the peer is worked on from now on."""
        self._running += 1

    def finished(self) -> None:
        """It has been answered, or waits at no cost."""
        self._running -= 1
        if not self._running and self._gathered and not self._is_beginning:
            self._flush()
        if self._is_held and self._may_read:
            self._go_on()

    def write(self, frame: bytes, body: bytes = b"") -> None:
        """Send whole frames, or one whose body is apart, if the connection is still open. While
        other requests are worked on, it leaves with their answers, in this turn of the loop or the
        next: each time that something leaves alone costs as much as making a small answer."""
        if not self.is_open:
            return
        self._gathered.append(frame)
        if body:
            self._gathered.append(body)
        self._gathered_bytes += len(frame) + len(body)
        if self._gathered_bytes <= _GATHERED_BYTES_MAX:
            if self._is_beginning:
                return
            if self._running > 1:
                if self._flush_turn is None:
                    self._flush_turn = self._loop.call_soon(self._flush)
                return
        self._flush()

    def _flush(self) -> None:
        """Send what was gathered."""
        if self._flush_turn is not None:
            self._flush_turn.cancel()
            self._flush_turn = None
        gathered, size = self._gathered, self._gathered_bytes
        transport = self._transport
        if not gathered or transport is None or transport.is_closing():
            return
        self._gathered, self._gathered_bytes = [], 0
        if len(gathered) == 1:
            transport.write(gathered[0])
        elif size <= len(gathered) * _COPIED_BYTES_MAX:
            transport.write(b"".join(gathered))
        else:
            transport.writelines(gathered)
        if self.is_paused:
            unsent = transport.get_write_buffer_size()
            if unsent > self.limits.write_bytes_max:
                self._end(Limit.SLOW_READER, f"{unsent} bytes wait to be read by it")
                return
            self._owner.holds(self)

    def when_writable(self, call: Callable[[], None]) -> None:
        """Call once when the peer has read enough, unless the connection ends first."""
        self._on_writable[call] = None

    def when_closed(self, call: Callable[[], None]) -> None:
        """Call once when the connection has ended."""
        self._on_closed[call] = None

    def forget_closed(self, call: Callable[[], None]) -> None:
        self._on_closed.pop(call, None)

    def close(self) -> None:
        """What was written still leaves."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self.limits.write_high_bytes)
        self.peer = peer_address(transport.get_extra_info("peername"))
        if not self._owner.opened(self):
            self.abort()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._now()
        self._parser.feed(data)
        self._owner.holds(self)
        if self._turn is None and self._may_read:
            self._work()

    def pause_writing(self) -> None:
        self.is_paused = True
        self._stalled_bytes = 0
        self._watch()
        self._hold()

    def resume_writing(self) -> None:
        self.is_paused = False
        waiting, self._on_writable = self._on_writable, {}
        for call in waiting:
            call()
        if self._is_held and self._may_read:
            self._go_on()

    def eof_received(self) -> bool:
        return False  # the transport closes

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._gathered, self._gathered_bytes = [], 0
        for handle in (self._turn, self._timer, self._flush_turn):
            if handle is not None:
                handle.cancel()
        for answered in list(self._asked.values()):
            if not answered.done():
                answered.set_exception(ConnectionEnded(f"{self.peer} has gone"))
        waiting, self._on_closed = self._on_closed, {}
        self._on_writable.clear()
        for call in waiting:
            call()
        self._owner.closed(self)

    # ------------------------------------------------------------------------------------ reading

    @property
    def _may_read(self) -> bool:
        return self._running < self.limits.running_max and not self.is_paused

    def _go_on(self) -> None:
        self._is_held = False
        if self._turn is None:
            self._turn = self._loop.call_soon(self._work)

    def _hold(self) -> None:
        """Read nothing until there is room."""
        self._is_held = True
        self._stop_reading()

    def _work(self) -> None:
        """Begin some of what arrived; the rest has its turn after other connections'."""
        self._turn = None
        self._is_beginning = True
        try:
            is_rest = self._begin_some()
        finally:
            self._is_beginning = False
        self._flush()
        if is_rest and self.is_open:
            self._stop_reading()
            self._turn = self._loop.call_soon(self._work)

    def _begin_some(self) -> bool:
        """Whether there may be more."""
        for _ in range(self.limits.commands_per_turn):
            if not self.is_open:
                return False
            if not self._may_read:
                self._hold()
                return False
            try:
                command = self._parser.next_command()
            except FrameIllegal as error:
                self._end(Limit.FRAME, str(error))
                return False
            if command is None:
                self._all_read()
                return False
            self._take(command)
        return True

    def _all_read(self) -> None:
        if not self._parser.held_bytes:
            self._unfinished_since_s = 0.0
        elif not self._unfinished_since_s:
            self._unfinished_since_s = self.heard_s
            self._watch()
        if not self._is_reading and self._transport is not None:
            self._is_reading = True
            self._transport.resume_reading()

    def _stop_reading(self) -> None:
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def _take(self, command: Command) -> None:
        self._unfinished_since_s = 0.0
        if command.is_answer:
            answered = self._asked.pop(command.opaque, None)
            if answered is not None and not answered.done():
                answered.set_result(command)
            return
        self._owner.received(self, command)

    # ----------------------------------------------------------------------------------- too slow

    def _watch(self) -> None:
        """Look again when the peer may have been silent or slow for too long."""
        if self._timer is not None:
            self._timer.cancel()
        pause_s = self.limits.stall_s
        if not (self.is_paused or self._parser.held_bytes) and self.limits.idle_s:
            pause_s = max(pause_s, self.limits.idle_s - (self._now() - self.heard_s))
        self._timer = self._loop.call_later(pause_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._transport is None:
            return
        now_s, limits = self._now(), self.limits
        if self.is_paused:
            unsent = self._transport.get_write_buffer_size()
            if self._stalled_bytes and unsent >= self._stalled_bytes:
                self._end(Limit.SLOW_READER, f"it has read nothing for {limits.stall_s:g} s")
                return
            self._stalled_bytes = unsent
        elif self._is_reading:
            since_s = self._unfinished_since_s
            if since_s and now_s - since_s >= limits.stall_s:
                self._end(Limit.SLOW_SENDER, f"a frame took more than {limits.stall_s:g} s")
                return
            if limits.idle_s and now_s - self.heard_s >= limits.idle_s:
                self.close()
                return
        self._watch()

    def _end(self, limit: Limit, reason: str) -> None:
        self._owner.met(self, limit, reason)
        self.abort()


def peer_address(address: object) -> str:
    """host:port of a socket's peer."""
    if isinstance(address, tuple) and len(address) >= 2:
        host = str(address[0]).removeprefix("::ffff:")
        return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
    return _UNKNOWN
