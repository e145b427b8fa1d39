"""One end of a connection within one event loop."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from aerobee.testing.memory_network import MemoryNetwork

HIGH_WATER_BYTES = 64 * 1024


class MemoryTransport(asyncio.Transport):
    """Written data waits here until the other end takes it, in its own turn."""

    def __init__(
        self,
        network: MemoryNetwork,
        protocol: asyncio.BaseProtocol,
        place: str,
        address: tuple[str, int],
        peer_address: tuple[str, int],
        context: Context,
    ) -> None:
        super().__init__({"sockname": address, "peername": peer_address})
        self._network = network
        self._loop = network.loop
        self._protocol = protocol
        self._context = context
        self.place = place
        self._peer: MemoryTransport | None = None
        self._waiting = bytearray()
        self._high = HIGH_WATER_BYTES
        self._is_taking = True
        self._is_writing_paused = False
        self._is_closing = False
        self._is_lost = False
        self._has_ended = False
        """Nothing is written after what waits."""
        self._was_told_end = False
        self._is_due = False

    def begin(self, peer: MemoryTransport) -> None:
        self._peer = peer
        self._network.opened(self)
        self._call(self._protocol.connection_made, self)

    # ------------------------------------------------------------------------------- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._has_ended or self._is_lost:
            return
        self._waiting += data
        if len(self._waiting) > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()
        self.go_on()

    def write_eof(self) -> None:
        self._has_ended = True
        self.go_on()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return len(self._waiting)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high

    def go_on(self) -> None:
        """Let the other end take what waits, if it can."""
        if self._is_due or self._is_lost or self._peer is None:
            return
        if self._waiting or self._has_ended or self._is_closing:
            self._is_due = True
            self._peer._call(self._hand_over)

    def _hand_over(self) -> None:
        """Runs at the other end."""
        self._is_due = False
        peer = self._peer
        if self._is_lost or peer is None or self._network.is_cut(self.place, peer.place):
            return
        if self._waiting and not peer._is_lost:
            if not peer._is_taking:
                return
            data = bytes(self._waiting)
            self._waiting.clear()
            self._call(self._sent)
            cast(asyncio.Protocol, peer._protocol).data_received(data)
        if self._waiting and not peer._is_lost:
            self.go_on()
        elif self._is_closing:
            self._call(self._lose, None)
            peer._end_of_input()
        elif self._has_ended:
            peer._end_of_input()

    def _sent(self) -> None:
        if self._is_writing_paused and not self._is_lost:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    # ------------------------------------------------------------------------------- reading

    def pause_reading(self) -> None:
        self._is_taking = False

    def resume_reading(self) -> None:
        self._is_taking = True
        if self._peer is not None:
            self._peer.go_on()

    def is_reading(self) -> bool:
        return self._is_taking

    def _end_of_input(self) -> None:
        if self._is_lost or self._was_told_end:
            return
        self._was_told_end = True
        if not cast(asyncio.Protocol, self._protocol).eof_received():
            self.close()

    # -------------------------------------------------------------------------------- ending

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            peer = self._peer
            if peer is None or peer._is_lost:
                self._call(self._lose, None)
            elif self._network.is_cut(self.place, peer.place):
                self.reset()
            else:
                self.go_on()

    def abort(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Both ends lose the connection, the other one as soon as it can be notified."""
        self._is_closing = True
        self._call(self._lose, None)
        if self._peer is not None and not self._peer._is_lost:
            self._network.tell_reset(self.place, self._peer)

    def was_reset(self) -> None:
        self._call(self._lose, ConnectionResetError("the connection was reset"))

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._waiting.clear()
        self._network.closed(self)
        self._protocol.connection_lost(error)

    # --------------------------------------------------------------------------------- other

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def _call(self, callback: Any, *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self._context)
