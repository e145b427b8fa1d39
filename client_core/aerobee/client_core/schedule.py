"""When a message is delivered, as requested by its sender. Pure."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import NamedTuple

from aerobee.runtime.errors import MessageIllegal
from aerobee.store.format.delay_levels import DELAY_MAX_MS, LEVELS_MAX

SCHEDULE_BYTES_MAX = 600
"""What brokers may add to the properties of a delayed message, including its topic."""

Delay = timedelta | float
"""A length of time; numbers are seconds."""
DeliverAt = datetime | int
"""A point in time; whole numbers are Unix milliseconds."""


class Schedule(NamedTuple):
    """When a message is delivered: one of the three."""

    delay_ms: int = 0
    """This long after it is sent."""
    deliver_ms: int = 0
    """At this time, Unix ms."""
    level: int = 0
    """After the delay of the broker's delay level, counted from when it is stored."""

    def request(self, now_ms: int) -> bytes:
        """The property that requests this from a broker, for a message sent now."""
        if self.level:
            return b"DELAY\x01%d\x02" % self.level
        return b"TIMER_DELIVER_MS\x01%d\x02" % (self.deliver_ms or now_ms + self.delay_ms)

    def check(self, now_ms: int) -> None:
        """Raises MessageIllegal for a time that no broker accepts in a message sent now."""
        if self.deliver_ms - now_ms > DELAY_MAX_MS:
            raise MessageIllegal(
                "the message is to arrive in more than ten years: choose an earlier time"
            )


def schedule_of(
    delay: Delay | None, deliver_at: DeliverAt | None, delay_level: int | None
) -> Schedule | None:
    """The meaning of a message's three arguments; None: it is delivered at once.

    Raises MessageIllegal: more than one is given, or one is invalid.
    """
    if (delay is not None) + (deliver_at is not None) + (delay_level is not None) > 1:
        raise MessageIllegal(
            "delay, deliver_at and delay_level exclude each other: give one of them"
        )
    if delay is not None:
        delay_ms = delay_ms_of(delay)
        return Schedule(delay_ms=delay_ms) if delay_ms else None
    if deliver_at is not None:
        return Schedule(deliver_ms=time_ms(deliver_at))
    if delay_level is not None:
        if type(delay_level) is not int or not 1 <= delay_level <= LEVELS_MAX:
            raise MessageIllegal(
                f"delay_level must be a whole number from 1 to {LEVELS_MAX}, not {delay_level!r}"
            )
        return Schedule(level=delay_level)
    return None


def delay_ms_of(delay: Delay) -> int:
    """Rounded up: a message never arrives early."""
    if isinstance(delay, timedelta):
        delay_ms = -((-delay) // timedelta(milliseconds=1))
    elif isinstance(delay, int | float) and not isinstance(delay, bool) and math.isfinite(delay):
        delay_ms = math.ceil(delay * 1_000)
    else:
        raise MessageIllegal(f"delay must be a timedelta or seconds, not {delay!r}")
    if delay_ms < 0:
        raise MessageIllegal(f"delay must not be negative, but is {delay!r}")
    if delay_ms > DELAY_MAX_MS:
        raise MessageIllegal(f"delay must be at most ten years, not {delay!r}")
    return delay_ms


def time_ms(deliver_at: DeliverAt) -> int:
    """Unix milliseconds. Raises MessageIllegal."""
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            raise MessageIllegal(
                "deliver_at has no time zone, so which moment it means is unknown: give it one, "
                "such as datetime.now(UTC) + timedelta(hours=1)"
            )
        epoch = datetime.fromtimestamp(0, deliver_at.tzinfo)
        deliver_ms = -((epoch - deliver_at) // timedelta(milliseconds=1))
    elif type(deliver_at) is int:
        deliver_ms = deliver_at
    else:
        raise MessageIllegal(
            f"deliver_at must be a datetime or Unix milliseconds, not {deliver_at!r}"
        )
    if deliver_ms <= 0:
        raise MessageIllegal(f"deliver_at must be after 1970, not {deliver_at!r}")
    return deliver_ms
