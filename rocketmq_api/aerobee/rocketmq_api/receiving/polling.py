"""How long a poll waits, how many messages it takes, and how long they are invisible.

Owns: the limits of these values, with their codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration

from aerobee.rocketmq_api.codes import Refused
from aerobee.rocketmq_api.times import milliseconds
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_HOUR_MS: Final = 3_600_000

# Clients before this version do not know ILLEGAL_POLLING_TIME. Versions are compared as texts.
_KNOWS_POLLING_TIME: Final = "5.0.3"


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


def polling_ms(
    request: service_pb2.ReceiveMessageRequest,
    limits: PollLimits,
    *,
    remaining_ms: int,
    request_timeout_ms: int | None = None,
    client_version: str = "",
) -> int:
    """How long the poll may wait: it ends `answer_ms` before the caller gives up.

    `remaining_ms` is the time until the call's deadline, `request_timeout_ms` comes from the
    client's settings.
    Raises Refused: ILLEGAL_POLLING_TIME, or BAD_REQUEST for clients that do not know it.
    """
    if request.HasField("long_polling_timeout"):
        asked_ms = milliseconds(request.long_polling_timeout)
    else:
        timeout_ms = request_timeout_ms or limits.request_timeout_ms
        asked_ms = remaining_ms - timeout_ms // 2
    asked_ms = min(max(asked_ms, limits.polling_ms_min), limits.polling_ms_max)
    if asked_ms > remaining_ms and remaining_ms < limits.polling_ms_min:
        knows = client_version >= _KNOWS_POLLING_TIME
        raise Refused(
            v2.ILLEGAL_POLLING_TIME if knows else v2.BAD_REQUEST,
            f"the call's deadline is in {remaining_ms} ms, and a poll needs at least "
            f"{limits.polling_ms_min}: set a longer timeout",
        )
    return min(asked_ms, remaining_ms - limits.answer_ms)


def batch_size(request: service_pb2.ReceiveMessageRequest, limits: PollLimits) -> int:
    """How many messages one poll takes at most: at least 1."""
    return min(max(request.batch_size, 1), limits.batch_max)


def received_invisible_ms(
    request: service_pb2.ReceiveMessageRequest, limits: PollLimits
) -> int | None:
    """How long received messages stay invisible; None: while the client lives (`auto_renew`).

    Raises Refused with ILLEGAL_INVISIBLE_TIME.
    """
    if request.auto_renew:
        return None
    return _invisible_ms(request.invisible_duration, limits, limits.invisible_ms_min)


def changed_invisible_ms(
    request: service_pb2.ChangeInvisibleDurationRequest, limits: PollLimits
) -> int:
    """From now on; 0: the message is redelivered at once. Raises Refused with
    ILLEGAL_INVISIBLE_TIME."""
    return _invisible_ms(request.invisible_duration, limits, 0)


def _invisible_ms(value: Duration, limits: PollLimits, ms_min: int) -> int:
    ms = milliseconds(value)
    if not ms_min <= ms <= limits.invisible_ms_max:
        raise Refused(
            v2.ILLEGAL_INVISIBLE_TIME,
            f"the invisible time is {ms} ms; it must be between {ms_min} and "
            f"{limits.invisible_ms_max}",
        )
    return ms
