"""What a poll of this protocol asks for, within the limits of `rules.polling`."""

from __future__ import annotations

from typing import Final

from aerobee.rocketmq_api.rules import polling as rules
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.rocketmq_api.times import milliseconds
from apache.rocketmq.v2 import service_pb2

# Clients before this version do not know ILLEGAL_POLLING_TIME. Versions are compared as texts.
_KNOWS_POLLING_TIME: Final = "5.0.3"


def polling_ms(
    request: service_pb2.ReceiveMessageRequest,
    limits: PollLimits,
    *,
    remaining_ms: int,
    request_timeout_ms: int | None = None,
    client_version: str = "",
) -> int:
    """How long the poll may wait.

    `remaining_ms` is the time until the call's deadline, `request_timeout_ms` comes from the
    client's settings.
    Raises Refused: ILLEGAL_POLLING_TIME, or MALFORMED for clients that do not know it.
    """
    if request.HasField("long_polling_timeout"):
        asked_ms = milliseconds(request.long_polling_timeout)
    else:
        timeout_ms = request_timeout_ms or limits.request_timeout_ms
        asked_ms = remaining_ms - timeout_ms // 2
    try:
        return rules.polling_ms(asked_ms, limits, remaining_ms=remaining_ms)
    except Refused as error:
        if client_version >= _KNOWS_POLLING_TIME:
            raise
        raise Refused(Reason.MALFORMED, str(error)) from None


def batch_size(request: service_pb2.ReceiveMessageRequest, limits: PollLimits) -> int:
    """How many messages one poll takes at most: at least 1."""
    return rules.batch_size(request.batch_size, limits)


def received_invisible_ms(
    request: service_pb2.ReceiveMessageRequest, limits: PollLimits
) -> int | None:
    """How long received messages stay invisible; None: while the client lives (`auto_renew`).

    Raises Refused with ILLEGAL_INVISIBLE_TIME.
    """
    if request.auto_renew:
        return None
    return rules.received_invisible_ms(milliseconds(request.invisible_duration), limits)


def changed_invisible_ms(
    request: service_pb2.ChangeInvisibleDurationRequest, limits: PollLimits
) -> int:
    """From now on; 0: the message is redelivered at once. Raises Refused with
    ILLEGAL_INVISIBLE_TIME."""
    return rules.changed_invisible_ms(milliseconds(request.invisible_duration), limits)
