"""Thresholds of findings; imports no pyspark, so that a wrong limit is reported at once."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of findings. Milliseconds, messages, minutes."""

    now_ms: int
    """The moment of the run."""
    ended_ms: int = 0
    """When the reading of a running cluster ended: what was stored until then is not in the
    future."""
    lag_messages: int = 10_000
    lag_age_ms: int = 10 * 60_000
    history_runs: int = 10
    """How many earlier runs are compared."""
    slow_runs: int = 3
    """Lag that rose in this many runs in a row, although offsets moved."""
    slow_ms: int = 30_000
    """And for this long."""
    slow_messages: int = 1_000
    """And is this high."""
    stuck_ms: int = 60_000
    """No commit for this long although messages wait and a member holds the queue."""
    stopped_ms: int = 5 * 60_000
    """No member for this long although messages wait."""
    uncommitted_ms: int = 5 * 60_000
    """Messages that have waited this long on a queue where their subscribed group never committed.
    """
    reset_ms: int = 24 * 60 * 60_000
    """Resets, and jumps in the journal, that are older are no longer reported."""
    delivery_per_s_max: int = 1_000_000
    """An offset that moves faster than this on one queue was not moved by consuming."""
    replica_lag_bytes: int = 64 * 1024 * 1024
    replica_lag_ms: int = 60_000
    """Or if its newest message is this much older than its master's."""
    clock_skew_ms: int = 5_000
    overdue_ms: int = 60_000
    settle_ms: int = 10_000
    """Anything younger may still be in flight; it is not judged."""


LIMIT_NAMES = tuple(one.name for one in fields(Limits) if one.name not in ("now_ms", "ended_ms"))
"""What a caller may set; the moments are set by the run."""
