"""What a check is: a name, what it needs, and a pure function from tables to findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame

from aerobee.offset_audit.tables import Tables


class Severity(StrEnum):
    """How much a finding matters; the worst one makes the exit code."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, slots=True)
class Limits:
    """When something is worth a finding. Milliseconds, messages, minutes."""

    now_ms: int
    """The moment of the run."""
    lag_messages: int = 10_000
    lag_age_ms: int = 10 * 60_000
    slow_runs: int = 3
    """Lag that rose in so many runs in a row, though offsets moved."""
    stuck_ms: int = 60_000
    """No commit for so long though messages wait and a member holds the queue."""
    stopped_ms: int = 5 * 60_000
    """No member for so long though messages wait."""
    uncommitted_ms: int = 5 * 60_000
    replica_lag_bytes: int = 64 * 1024 * 1024
    clock_skew_ms: int = 5_000
    overdue_ms: int = 60_000
    settle_ms: int = 10_000
    """What is younger may still be on its way; it is not judged."""


@dataclass(frozen=True, slots=True)
class Check:
    """One question. `run` gives rows of FINDINGS without `cluster`-wide run columns filled:
    `run_id`, `run_at_ms`, `previous_state` and `first_seen_ms` are null and the run fills
    them."""

    name: str
    title: str
    """One sentence, for the report and the docs."""
    run: Callable[[Tables, Limits], DataFrame]
    is_deep: bool = False
    """Whether it needs the bytes of stores."""
