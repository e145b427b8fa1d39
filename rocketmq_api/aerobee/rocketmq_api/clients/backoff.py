"""After which delays a failed message is redelivered: a group's rule, and the form in which each
client gets it.

Clients compute the delay themselves and ask for it, so a client that cannot read the rule loses
every delay: it then uses a rule of its own, or none.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from aerobee.rocketmq_api.times import duration
from aerobee.store.format.retry_delays import Exponential, Steps
from apache.rocketmq.v2 import definition_pb2 as v2

_SECOND_MS: Final = 1_000
_LISTED_MAX: Final = 64


class Form(Enum):
    """The form in which a client gets the rule."""

    OWN = auto()
    """The form of the group's rule."""
    LISTED = auto()
    """A list of whole seconds: the client reads nothing else."""
    GROWING = auto()
    """Growing delays: the client reads nothing else."""
    GROWING_SECONDS_FOR_MS = auto()
    """The same for a client that takes the seconds for milliseconds."""


def policy_of(delays: Exponential | Steps, attempts_max: int, form: Form) -> v2.RetryPolicy:
    """The group's rule as it is sent in settings; `attempts_max` counts the first delivery too."""
    policy = v2.RetryPolicy(max_attempts=attempts_max)
    if form is Form.LISTED:
        seconds = (-(-ms // _SECOND_MS) for ms in _listed(delays, attempts_max))
        policy.customized_backoff.next.extend(duration(max(1, s) * _SECOND_MS) for s in seconds)
    elif form is Form.OWN and isinstance(delays, Steps):
        policy.customized_backoff.next.extend(map(duration, delays.delays_ms))
    else:
        unit = _SECOND_MS if form is Form.GROWING_SECONDS_FOR_MS else 1
        growing = _growing(delays)
        backoff = policy.exponential_backoff
        backoff.initial.CopyFrom(duration(growing.initial_ms * unit))
        backoff.max.CopyFrom(duration(growing.max_ms * unit))
        backoff.multiplier = growing.multiplier
    return policy


def _listed(delays: Exponential | Steps, attempts_max: int) -> tuple[int, ...]:
    if isinstance(delays, Steps):
        return delays.delays_ms
    count = min(max(attempts_max, 1), _LISTED_MAX)
    return tuple(map(delays.delay_ms, range(count)))


def _growing(delays: Exponential | Steps) -> Exponential:
    if isinstance(delays, Exponential):
        return delays
    return Exponential(initial_ms=max(1, delays.delays_ms[0]), max_ms=max(1, *delays.delays_ms))
