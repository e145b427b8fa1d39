"""What a broker has done since its start: the sums that the send and read paths increment."""

from __future__ import annotations

from dataclasses import dataclass, field

OWN_REFUSALS = ("Busy", "NotEnoughReplicas", "NotMaster", "NotWritable", "StoreFailed")
"""Errors that are not the producer's fault: counted from 0, so that the first one shows."""


@dataclass(slots=True)
class Counters:
    """Totals since the start. Each path increments its own."""

    messages_in: int = 0
    bytes_in: int = 0
    batches_in: int = 0
    """From clients: a delayed message that the broker moves to its topic was counted on arrival."""
    refusals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OWN_REFUSALS, 0))
    """Batches refused, by the error's name."""
    duplicates_dropped: int = 0
    """Resent batches that were already stored."""
    messages_out: int = 0
    bytes_out: int = 0
    cold_reads: int = 0
    cold_bytes: int = 0
    cold_reads_waiting: int = 0
    """The present number, not since the start."""
    filter_judged: int = 0
    filter_matched: int = 0
    """Records that filters evaluated, for readers and to count unread messages, and how many of
    these matched."""
    send_streams: int = 0
    pull_streams: int = 0

    @property
    def refused(self) -> int:
        """Batches refused."""
        return sum(self.refusals.values())

    def refuse(self, error: Exception) -> None:
        """Count one more batch refused because of `error`."""
        name = type(error).__name__
        self.refusals[name] = self.refusals.get(name, 0) + 1
