"""To which queue a message goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.cluster_view.route import MessageQueue
from aerobee.rocketmq_api.rules.queue_choice import jump_hash, queue_of_group, queue_of_priority

QUEUES = [MessageQueue("t", broker, queue) for broker in ("a", "b") for queue in range(4)]

# What Guava's own tests expect of `Hashing.consistentHash`: of 0, 1, 2, ... into 100 buckets.
OF_100 = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]


def test_the_hash_is_guavas() -> None:
    assert [jump_hash(value, 100) for value in range(20)] == OF_100
    assert jump_hash(10_863_919_174_838_991, 11) == 6
    assert jump_hash(2_016_238_256_797_177_309, 11) == 3
    assert jump_hash(1_673_758_223_894_951_030, 11) == 5


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(1, 500))
def test_one_more_bucket_moves_only_what_goes_into_it(value: int, buckets: int) -> None:
    before, after = jump_hash(value, buckets), jump_hash(value, buckets + 1)
    assert 0 <= before < buckets
    assert after in (before, buckets)


def test_groups_spread_over_all_queues_and_stay_where_they_are() -> None:
    chosen = [queue_of_group(f"order-{number}", QUEUES) for number in range(800)]
    assert chosen == [queue_of_group(f"order-{number}", QUEUES) for number in range(800)]
    for queue in QUEUES:
        assert 60 < chosen.count(queue) < 140


@pytest.mark.parametrize(("priority", "queue"), [(0, 0), (2, 2), (3, 3), (4, 3), (1 << 30, 3)])
def test_the_more_urgent_the_higher_the_queue(priority: int, queue: int) -> None:
    assert queue_of_priority(priority, 4) == queue
