"""Which brokers are slow or failing, and for how long they are avoided. Pure.

Apache RocketMQ's table (docs/store-format.md section 17.9, values since 5.1.4): the latency of each
send says how long the broker gets no messages that others could take as well. A failure counts as
10 s.
"""

from __future__ import annotations

AVOIDANCE_MS: tuple[tuple[int, int], ...] = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
"""(latency from, avoided for), slowest first; below the last a broker is not avoided."""

FAILURE_LATENCY_MS = 10_000


class LatencyTable:
    """Until when each broker is avoided.

    >>> table = LatencyTable()
    >>> table.sent("a", latency_ms=600, now_s=100.0)
    >>> table.is_available("a", 101.9), table.is_available("a", 102.0)
    (False, True)
    """

    def __init__(self) -> None:
        self._avoided_until_s: dict[str, float] = {}

    def sent(self, broker_name: str, *, latency_ms: float, now_s: float) -> None:
        """A broker acknowledged after `latency_ms`."""
        if latency_ms < AVOIDANCE_MS[-1][0]:
            if self._avoided_until_s:
                self._avoided_until_s.pop(broker_name, None)
            return
        for latency_from_ms, avoided_ms in AVOIDANCE_MS:
            if latency_ms >= latency_from_ms:
                self._avoided_until_s[broker_name] = now_s + avoided_ms / 1_000
                return

    def failed(self, broker_name: str, *, now_s: float) -> None:
        """A broker refused, or could not be reached."""
        self.sent(broker_name, latency_ms=FAILURE_LATENCY_MS, now_s=now_s)

    def is_available(self, broker_name: str, now_s: float) -> bool:
        """Whether nothing speaks against the broker now."""
        if not self._avoided_until_s:
            return True
        return self._avoided_until_s.get(broker_name, 0.0) <= now_s
