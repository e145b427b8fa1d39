"""What a producer does when a batch was refused or its outcome is unknown. Pure.

A refusal is final when sending again cannot help. All else is tried again until the deadline; a
broker that failed by itself (disk full, store failed, an internal error) is given `retries_max`
further attempts, elsewhere if possible; a numbered batch that may be stored has no such bound.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass

from aerobee.producer_client.accumulator import Batch
from aerobee.runtime import errors
from aerobee.runtime.retry import Backoff

RETRY_BACKOFF = Backoff(base_ms=20, max_ms=500)


@dataclass(frozen=True, slots=True)
class Retry:
    """How to try again."""

    is_counted: bool
    """Uses up one of `retries_max`."""
    refreshes_route: bool
    """The route may be old: ask a nameserver."""
    avoids_broker: bool
    """Other batches should prefer other brokers for a while."""


_UNREACHABLE = Retry(is_counted=False, refreshes_route=True, avoids_broker=True)
# The route says that the topic is there: its broker will learn of it in a moment.
_ROUTE_IS_OLD = Retry(is_counted=False, refreshes_route=True, avoids_broker=False)
_BUSY = Retry(is_counted=False, refreshes_route=False, avoids_broker=True)
_BROKEN = Retry(is_counted=True, refreshes_route=True, avoids_broker=True)

_RETRIES: dict[type[errors.MqError], Retry] = {
    errors.Unreachable: _UNREACHABLE,
    errors.ShuttingDown: _UNREACHABLE,
    errors.NoBrokerAvailable: _ROUTE_IS_OLD,
    errors.NotMaster: _ROUTE_IS_OLD,
    errors.StaleEpoch: _ROUTE_IS_OLD,
    errors.TopicNotFound: _ROUTE_IS_OLD,
    errors.QueueNotFound: _ROUTE_IS_OLD,
    errors.Busy: _BUSY,
    errors.NotEnoughReplicas: _BUSY,
    errors.NotWritable: _BROKEN,
    errors.StoreFailed: _BROKEN,
    errors.DeadlineExceeded: _BROKEN,
    errors.RegistryUnavailable: _BROKEN,
    errors.MqError: _BROKEN,
}


def retry_of(error: errors.MqError) -> Retry | None:
    """How to try again after `error`; None: it is final.

    >>> retry_of(errors.MessageTooLarge("9 MiB")) is None
    True
    """
    return _RETRIES.get(type(error))


_UNKNOWN = frozenset({errors.StoreFailed, errors.DeadlineExceeded})


def leaves_unknown(error: errors.MqError) -> bool:
    """Whether a broker that answers so may have stored the batch all the same.

    >>> leaves_unknown(errors.StoreFailed("")), leaves_unknown(errors.Busy("", retry_after_ms=1))
    (True, False)
    """
    return type(error) in _UNKNOWN


def refused(batch: Batch, error: errors.MqError) -> errors.MqError:
    """What is said of a batch that is not sent again after `error`, which says that this attempt
    stored nothing. An earlier one may have."""
    if not batch.is_outcome_unknown or isinstance(error, errors.OutOfSequence):
        return error
    return errors.DeadlineExceeded(
        "an earlier attempt was not acknowledged, and the last one refused: whether the message is "
        f"stored is unknown ({error})"
    )


def delay_s(error: errors.MqError, attempt: int, chance: random.Random) -> float:
    """Seconds to wait before the same broker is tried again, after `attempt` failures in a row.

    >>> delay_s(errors.Busy("disk behind", retry_after_ms=70), 1, random.Random(1))
    0.07
    """
    if isinstance(error, errors.Busy):
        return max(error.retry_after_ms, 1) / 1_000
    return RETRY_BACKOFF.delay_s(attempt, chance)


def expired(batch: Batch) -> errors.MqError:
    """What is said of a batch whose time is over."""
    broker_name = batch.queue.broker_name
    seconds = batch.timeout_ms / 1_000
    reason = batch.last_error
    if batch.attempts and (batch.is_outcome_unknown or reason is None):
        because = f" ({reason})" if reason is not None else ""
        return errors.DeadlineExceeded(
            f"{broker_name!r} did not acknowledge within {seconds:g} s: whether the message is "
            f"stored is unknown{because}"
        )
    if reason is not None:
        final = copy.copy(reason)
        final.args = (f"not sent within {seconds:g} s: {reason}",)
        return final
    return errors.DeadlineExceeded(
        f"not sent within {seconds:g} s: {broker_name!r} takes messages more slowly than they come"
    )
