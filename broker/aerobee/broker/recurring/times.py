"""PURE: when a schedule runs, by a cron expression in a time zone or every so many milliseconds.

The rule of cron for changes of the clock is Debian's, by the library that reads the expressions. A
job of fixed times (no `*` in its minutes and hours) whose time is skipped runs right after the gap,
and one whose time comes twice runs the first time. All other jobs follow the wall clock: they run
in both hours of an overlap, and not in a gap. A fixed interval knows no time zones.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from aerobee.runtime.errors import InvalidArgument

COUNTED_MAX: Final = 1_000
"""Due times that are counted one by one; of an outage with more, `Due.times` says so many."""
EVERY_MS_MIN: Final = 1_000
TIME_MS_MAX: Final = 253_370_764_800_000
"""The year 9999, less a day for time zones."""
CRON_LENGTH_MAX: Final = 200
NEVER: Final = 0


@dataclass(frozen=True, slots=True)
class When:
    """`cron` in `zone`, or `every_ms`. Times are Unix ms."""

    cron: str = ""
    zone: str = "UTC"
    every_ms: int = 0
    from_ms: int = 0
    """No run is before this; intervals are counted from here."""
    until_ms: int = NEVER
    """No run is at this time or later; 0: without end."""


class Due(NamedTuple):
    """Times that have come."""

    last_ms: int
    times: int
    """Including the last one."""
    next_ms: int
    """The first time after them; NEVER: there is none."""


def check_when(when: When) -> None:
    """Raises InvalidArgument: it cannot be a schedule, or would never run."""
    if bool(when.cron) == bool(when.every_ms):
        raise InvalidArgument("a schedule has either a cron expression or an interval: give one")
    if when.cron:
        if len(when.cron) > CRON_LENGTH_MAX:
            raise InvalidArgument(f"a cron expression has at most {CRON_LENGTH_MAX} characters")
        zone_of(when.zone)
        try:
            CronSim(when.cron, datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise InvalidArgument(
                f"{when.cron!r} is not a cron expression ({error}): give minute, hour, day of "
                "month, month and day of week, such as '0 8 * * MON-FRI'"
            ) from None
    elif not EVERY_MS_MIN <= when.every_ms <= TIME_MS_MAX:
        raise InvalidArgument("the interval must be at least a second")
    for name, time_ms in (("from", when.from_ms), ("until", when.until_ms)):
        if not 0 <= time_ms <= TIME_MS_MAX:
            raise InvalidArgument(f"the time {name!r} must be after 1970 and before the year 9999")


def zone_of(name: str) -> ZoneInfo:
    """Raises InvalidArgument: there is no such time zone."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            f"there is no time zone {name[:80]!r}: give a name such as Europe/Berlin or UTC"
        ) from None


def next_after(when: When, after_ms: int) -> int:
    """The first time after this one; NEVER: there is none."""
    after_ms = max(after_ms, when.from_ms - 1)
    if when.every_ms:
        passed = (after_ms - when.from_ms) // when.every_ms
        found_ms = when.from_ms + (passed + 1) * when.every_ms
    else:
        found_ms = _next_by_cron(when, after_ms)
    if not found_ms or found_ms > TIME_MS_MAX or (when.until_ms and found_ms >= when.until_ms):
        return NEVER
    return found_ms


def due(when: When, first_ms: int, now_ms: int) -> Due:
    """The times from `first_ms`, which is one and has come, up to now."""
    last_ms, count = first_ms, 1
    while True:
        next_ms = next_after(when, last_ms)
        if next_ms == NEVER or next_ms > now_ms:
            return Due(last_ms, count, next_ms)
        if count >= COUNTED_MAX:
            last_ms = _last_until(when, now_ms, last_ms)
            return Due(last_ms, count, next_after(when, last_ms))
        last_ms, count = next_ms, count + 1


def _last_until(when: When, now_ms: int, known_ms: int) -> int:
    """The last time up to now; `known_ms` is an earlier one."""
    end_ms = min(now_ms, when.until_ms - 1) if when.until_ms else now_ms
    if when.every_ms:
        return end_ms - (end_ms - when.from_ms) % when.every_ms
    # Halving, so that what is said of changes of the clock holds by the forward search alone.
    low_ms, step_ms = known_ms, end_ms - known_ms
    while step_ms > 1:
        step_ms //= 2
        found_ms = next_after(when, low_ms + step_ms)
        if found_ms != NEVER and found_ms <= end_ms:
            low_ms, step_ms = found_ms, min(step_ms, end_ms - found_ms)
    return low_ms


def _next_by_cron(when: When, after_ms: int) -> int:
    zone = zone_of(when.zone)
    after = datetime.fromtimestamp(after_ms // 1_000, UTC).astimezone(zone)
    try:
        for found in CronSim(when.cron, after):
            found_ms = int(found.timestamp()) * 1_000
            if found_ms > after_ms:
                return found_ms
    except (OverflowError, ValueError):
        pass
    return NEVER


def local_text(when: When, time_ms: int) -> str:
    """A time as the schedule's zone has it, for logs."""
    zone = zone_of(when.zone) if when.cron else UTC
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return (epoch + timedelta(milliseconds=time_ms)).astimezone(zone).isoformat()
