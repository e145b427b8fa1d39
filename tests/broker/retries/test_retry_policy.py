"""When a failed message comes again, by the group's settings as Apache's broker writes them."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.retries.policy import RetryPolicy, policy_member
from aerobee.store.engine.tables.config_tables import SubscriptionGroupConfig
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.delayed_records import Delay
from aerobee.store.format.json_config import JsonValue
from aerobee.store.format.retry_delays import Exponential, Steps

LEVELS = DelayLevels.parse()
NOW_MS = 1_000


def group(policy: Any = None, retries_max: int = 16) -> SubscriptionGroupConfig:
    unknown = {} if policy is None else {"groupRetryPolicy": policy}
    return SubscriptionGroupConfig(name="g", retry_times_max=retries_max, unknown=unknown)


def waits(policy: RetryPolicy, count: int) -> list[Delay | None]:
    return [policy.delay(times, NOW_MS, LEVELS) for times in range(count)]


@pytest.mark.parametrize("config", [None, group(), group({"type": "CUSTOMIZED"})])
def test_by_default_a_message_waits_a_level_longer_each_time_and_dies_after_16(
    config: SubscriptionGroupConfig | None,
) -> None:
    levels: list[Delay | None] = [Delay(level=level) for level in range(3, 19)]
    assert waits(RetryPolicy.of(config), 17) == [*levels, None]


def test_exponential_waits_grow_to_their_maximum() -> None:
    policy = RetryPolicy.of(
        group(
            {
                "type": "EXPONENTIAL",
                "exponentialRetryPolicy": {"initial": 10, "max": 70, "multiplier": 3},
            },
            retries_max=4,
        )
    )
    assert waits(policy, 5) == [
        *(Delay(deliver_ms=NOW_MS + wait) for wait in (10, 30, 70, 70)),
        None,
    ]
    assert policy.delay(3, NOW_MS, LEVELS, asked_level=2) == Delay(level=2)


def test_an_exponent_of_any_size_is_the_maximum() -> None:
    policy = RetryPolicy(100_000, Exponential())
    assert policy.delay(99_999, NOW_MS, LEVELS) == Delay(deliver_ms=NOW_MS + 7_200_000)


def test_a_list_of_delays_is_read_as_apaches_broker_reads_it() -> None:
    policy = RetryPolicy.of(
        group({"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1, 2, 3, 4]}})
    )
    assert waits(policy, 3) == [Delay(deliver_ms=NOW_MS + wait) for wait in (3, 4, 4)]


@pytest.mark.parametrize(
    "member",
    [
        "EXPONENTIAL",
        {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": []}},
        {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1, "2"]}},
        {"type": 5},
    ],
)
def test_what_cannot_be_read_counts_as_the_default(member: JsonValue) -> None:
    assert RetryPolicy.of(group(member)).back_off is None


@pytest.mark.parametrize("back_off", [None, Exponential(1, 2, 3), Steps((5, 6))])
def test_a_policy_is_read_as_it_was_written(back_off: Exponential | Steps | None) -> None:
    assert RetryPolicy.of(group(policy_member(back_off))).back_off == back_off


def test_the_consumers_own_limit_and_its_wish_to_give_up_count() -> None:
    policy = RetryPolicy()
    assert policy.delay(2, NOW_MS, LEVELS, retries_max=2) is None
    assert policy.delay(0, NOW_MS, LEVELS, asked_level=-1) is None
    assert policy.delay(0, NOW_MS, LEVELS, retries_max=0) is None
    assert RetryPolicy(-1).delay(15, NOW_MS, LEVELS) == Delay(level=18)
    assert RetryPolicy(-1).delay(16, NOW_MS, LEVELS) is None
