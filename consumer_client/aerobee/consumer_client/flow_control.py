"""How much more of a queue may be fetched now. PURE.

Owns: the credit of one queue at the broker: what was granted and has not arrived yet. The broker
counts only bytes; the limits are on bytes, messages and span, so what remains of the latter two is
converted to bytes by the average size seen so far.
Invariants: nothing is granted while a limit is reached; credit in flight plus cached data stays
within the byte limit, except for one frame (the broker lets a frame overdraw the credit).
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.client_core.defaults import check_whole_number

AVERAGE_WEIGHT = 0.2
"""Weight of the newest frame in the average message size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """The most that one queue may hold unfinished in the client."""

    messages_max: int = 1_000
    bytes_max: int = 100 * 1024 * 1024
    span_max: int = 2_000
    """Between the lowest unfinished offset and the last fetched; one slow message stops the
    queue's fetching at this distance."""

    def __post_init__(self) -> None:
        for name in ("messages_max", "bytes_max", "span_max"):
            check_whole_number(name, getattr(self, name), minimum=1)


class CreditWindow:
    """Decides grants for one queue's subscription."""

    __slots__ = ("_average_size", "_in_flight_bytes", "_limits")

    def __init__(self, limits: FlowLimits, *, assumed_message_bytes: int = 1_024) -> None:
        self._limits = limits
        self._in_flight_bytes = 0
        self._average_size = float(assumed_message_bytes)

    @property
    def in_flight_bytes(self) -> int:
        """Granted and not yet used by the broker; negative after an overdraft."""
        return self._in_flight_bytes

    def on_subscribed(self) -> None:
        """A new subscription starts without credit."""
        self._in_flight_bytes = 0

    def on_received(self, size: int, count: int) -> None:
        """A frame used `size` bytes of the credit."""
        self._in_flight_bytes -= size
        if count:
            self._average_size += AVERAGE_WEIGHT * (size / count - self._average_size)

    def grant(self, *, cached_count: int, cached_bytes: int, span: int) -> int:
        """Bytes to grant now; 0 while a limit is reached or little room has become free.

        Small grants are held back until a quarter of the room is free, so that finishing single
        messages does not cost a command each.
        """
        limits = self._limits
        average = max(self._average_size, 1.0)
        count_room = limits.messages_max - cached_count
        span_room = limits.span_max - span if span else limits.span_max
        bytes_room = limits.bytes_max - cached_bytes
        if count_room <= 0 or span_room <= 0 or bytes_room <= 0:
            return 0
        room = min(bytes_room, int(min(count_room, span_room) * average))
        whole = min(limits.bytes_max, int(min(limits.messages_max, limits.span_max) * average))
        grant = room - self._in_flight_bytes
        if grant <= 0 or (self._in_flight_bytes > 0 and grant * 4 < whole):
            return 0
        self._in_flight_bytes += grant
        return grant
