"""Protobuf to domain and back, for messages that failed."""

from __future__ import annotations

from aerobee.broker.retries.policy import RetryPolicy
from aerobee.broker.retries.send_backs import Failure, SentBackMessage
from aerobee.store.format.dead_letter_fields import Death
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.delayed_records import Delay
from aerobee.store.format.retry_delays import Exponential, Steps
from aerobee.v1 import broker_pb2, common_pb2


def failure_of(message: broker_pb2.FailedMessage) -> Failure:
    return Failure(
        message.offset, message.level, message.reason_class, message.reason, message.after_ms
    )


def sent_back_message(
    status: common_pb2.Status, answer: SentBackMessage
) -> broker_pb2.SentBackMessage:
    result = broker_pb2.SentBackMessage(
        status=status,
        dead_letter=isinstance(answer.way, Death),
        stays=answer.stays,
        attempts_max=answer.attempts_max,
        delay_ms=answer.delay_ms,
    )
    if isinstance(answer.way, Delay):
        result.level, result.deliver_ms = answer.way
    return result


def retry_settings(policy: RetryPolicy, levels: DelayLevels) -> broker_pb2.RetrySettings:
    back_off = policy.back_off
    settings = broker_pb2.RetrySettings(
        retries_max=policy.limit,
        ordered=policy.is_ordered,
        in_order=broker_pb2.InOrderRetries(
            retries_max=policy.limit_in_order, back_off=_exponential(policy.back_off_in_order)
        ),
    )
    if back_off is None:
        delays_ms = Steps(levels.delays_ms).all_ms
        settings.levels.CopyFrom(broker_pb2.DelayLevelBackOff(delays_ms=delays_ms))
    elif isinstance(back_off, Steps):
        settings.steps.delays_ms.extend(back_off.delays_ms)
    else:
        settings.exponential.CopyFrom(_exponential(back_off))
    return settings


def _exponential(back_off: Exponential) -> broker_pb2.ExponentialBackOff:
    return broker_pb2.ExponentialBackOff(
        initial_ms=back_off.initial_ms, max_ms=back_off.max_ms, multiplier=back_off.multiplier
    )


def exponential_of(settings: broker_pb2.RetrySettings) -> Exponential | None:
    """None: it asks for something else."""
    if settings.WhichOneof("back_off") != "exponential":
        return None
    told = settings.exponential
    default = Exponential()
    return Exponential(
        told.initial_ms or default.initial_ms,
        told.max_ms or default.max_ms,
        told.multiplier or default.multiplier,
    )
