"""What an operator can set about a service's log."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from aerobee.runtime.config import Change, require


class LogFormat(StrEnum):
    """How a line is written."""

    TEXT = "text"  # for people
    JSON = "json"  # one object per line, for log collectors


class LogLevel(StrEnum):
    """The lowest level that is written."""

    DEBUG = "debug"  # also each call
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One process's log, which goes to standard error."""

    format: LogFormat = field(
        default=LogFormat.TEXT,
        metadata={"change": Change.LIVE, "environment": "AEROBEE_LOG_FORMAT"},
    )
    """How a line is written.

    Costs: a JSON line is about twice as long.
    """
    level: LogLevel = field(
        default=LogLevel.INFO,
        metadata={"change": Change.LIVE, "environment": "AEROBEE_LOG_LEVEL"},
    )
    """The lowest level that is written.

    Costs: `debug` writes a line for each call; `warning` leaves out who became master and when.
    """
    repeats_per_s_max: int = field(default=20, metadata={"change": Change.LIVE})
    """At most this many lines of one event per second are written; the rest become one line with
    their count, `repeated`. 0: no limit.

    Unit: lines per second
    Costs: lower: the fields of more lines are lost; without a limit, a fault that repeats fills the
    disk that holds the log.
    """

    def __post_init__(self) -> None:
        rate = self.repeats_per_s_max
        require(rate >= 0, "log.repeats_per_s_max must be >= 0", rate)
