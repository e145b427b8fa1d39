"""How long a poll waits, how many messages it takes, and how long they are invisible.

Owns: the limits of these values, with their reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.rocketmq_api.rules.refusals import Reason, Refused

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class PollLimits:
    """Apache's values."""

    polling_ms_min: int = 5_000
    polling_ms_max: int = 20_000
    answer_ms: int = 100
    """Reserved from the caller's time for the answer."""
    batch_max: int = 32
    invisible_ms_min: int = 10_000
    """For a received message; afterwards it may be changed to 0."""
    invisible_ms_max: int = 12 * _HOUR_MS
    request_timeout_ms: int = 3_000
    """For clients whose settings are not known."""


def polling_ms(asked_ms: int, limits: PollLimits, *, remaining_ms: int) -> int:
    """How long the poll may wait: it ends `answer_ms` before the caller gives up, in
    `remaining_ms`. Raises Refused with ILLEGAL_POLLING_TIME."""
    asked_ms = min(max(asked_ms, limits.polling_ms_min), limits.polling_ms_max)
    if asked_ms > remaining_ms and remaining_ms < limits.polling_ms_min:
        raise Refused(
            Reason.ILLEGAL_POLLING_TIME,
            f"the call's deadline is in {remaining_ms} ms, and a poll needs at least "
            f"{limits.polling_ms_min}: set a longer timeout",
        )
    return min(asked_ms, remaining_ms - limits.answer_ms)


def batch_size(asked: int, limits: PollLimits) -> int:
    """How many messages one poll takes at most: at least 1."""
    return min(max(asked, 1), limits.batch_max)


def received_invisible_ms(asked_ms: int, limits: PollLimits) -> int:
    """How long received messages stay invisible. Raises Refused with ILLEGAL_INVISIBLE_TIME."""
    return _invisible_ms(asked_ms, limits, limits.invisible_ms_min)


def changed_invisible_ms(asked_ms: int, limits: PollLimits) -> int:
    """From now on; 0: the message is redelivered at once. Raises Refused with
    ILLEGAL_INVISIBLE_TIME."""
    return _invisible_ms(asked_ms, limits, 0)


def _invisible_ms(asked_ms: int, limits: PollLimits, ms_min: int) -> int:
    if not ms_min <= asked_ms <= limits.invisible_ms_max:
        raise Refused(
            Reason.ILLEGAL_INVISIBLE_TIME,
            f"the invisible time is {asked_ms} ms; it must be between {ms_min} and "
            f"{limits.invisible_ms_max}",
        )
    return asked_ms
