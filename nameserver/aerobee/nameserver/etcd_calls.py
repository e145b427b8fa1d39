"""How a nameserver's calls to etcd went."""

from __future__ import annotations

from aerobee.runtime.metrics.histogram import LATENCY_S, Histogram


class EtcdCalls:
    """How calls went, for whoever watches; on the loop."""

    def __init__(self) -> None:
        self.latency = Histogram(LATENCY_S)
        """Of calls that etcd answered, in seconds."""
        self.failures = 0
        """Calls that it did not."""
        self.is_reachable: bool | None = None
        """Whether it answered the last one; None before the first."""

    def answered(self, elapsed_s: float) -> None:
        self.latency.observe(elapsed_s)
        self.is_reachable = True

    def failed(self) -> None:
        self.failures += 1
        self.is_reachable = False
