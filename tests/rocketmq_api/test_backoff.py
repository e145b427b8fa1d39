"""After which delays a failed message comes again, as each client can read it."""

from __future__ import annotations

import pytest

from aerobee.rocketmq_api.clients.backoff import Form, policy_of
from aerobee.rocketmq_api.rules.group_rules import APACHES
from aerobee.rocketmq_api.times import duration, milliseconds
from aerobee.store.format.retry_delays import Exponential, Steps
from apache.rocketmq.v2 import definition_pb2 as v2

GROWING = Exponential(initial_ms=5_000, max_ms=60_000)


def listed_s(policy: v2.RetryPolicy) -> list[float]:
    return [milliseconds(each) / 1_000 for each in policy.customized_backoff.next]


def test_the_groups_own_rule_is_told_as_it_is() -> None:
    policy = policy_of(APACHES, 17, Form.OWN)
    assert policy.max_attempts == 17
    assert listed_s(policy)[:4] == [1, 5, 10, 30]
    assert len(listed_s(policy)) == 18
    backoff = policy_of(GROWING, 3, Form.OWN).exponential_backoff
    assert backoff == v2.ExponentialBackoff(
        initial=duration(5_000), max=duration(60_000), multiplier=2
    )


def test_a_client_that_reads_lists_gets_growing_delays_as_one() -> None:
    assert listed_s(policy_of(GROWING, 6, Form.LISTED)) == [5, 10, 20, 40, 60, 60]
    assert len(listed_s(policy_of(GROWING, 100_000, Form.LISTED))) == 64
    assert listed_s(policy_of(GROWING, 0, Form.LISTED)) == [5]


def test_a_client_that_reads_whole_seconds_never_gets_none() -> None:
    assert listed_s(policy_of(Steps((0, 1, 1_500)), 17, Form.LISTED)) == [1, 1, 2]


def test_a_client_that_reads_growing_delays_gets_a_list_as_such() -> None:
    backoff = policy_of(APACHES, 17, Form.GROWING).exponential_backoff
    assert milliseconds(backoff.initial) == 1_000
    assert milliseconds(backoff.max) == 7_200_000
    assert backoff.multiplier == 2


def test_a_client_that_takes_seconds_for_milliseconds_gets_as_many_seconds() -> None:
    backoff = policy_of(APACHES, 17, Form.GROWING_SECONDS_FOR_MS).exponential_backoff
    assert (backoff.initial.seconds, backoff.initial.nanos) == (1_000, 0)
    assert (backoff.max.seconds, backoff.max.nanos) == (7_200_000, 0)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("delays", [APACHES, GROWING, Steps((0,)), Exponential(1, 1, 2)])
def test_no_client_is_told_nothing(delays: Exponential | Steps, form: Form) -> None:
    policy = policy_of(delays, 17, form)
    if policy.WhichOneof("strategy") == "customized_backoff":
        assert form in (Form.OWN, Form.LISTED)
        assert policy.customized_backoff.next
    else:
        backoff = policy.exponential_backoff
        assert 0 < milliseconds(backoff.initial) <= milliseconds(backoff.max)
        assert backoff.multiplier >= 1
