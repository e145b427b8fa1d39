"""What counts as a message in and out, when, and under whose name."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.groups.members import Member
from aerobee.broker.observe.metrics.rocketmq import connection_families
from aerobee.broker.observe.metrics.traffic import GROUP_IDLE_S, Traffic
from aerobee.broker.sending.acknowledged import MESSAGE_SIZES, AcknowledgedBatches
from aerobee.runtime.metrics.families import OTHER, Family
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import TagsCodes

HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)
MIB = 1024 * 1024


def traffic_of(*, topics: int = 10, consumers: int = 10) -> Traffic:
    return Traffic(topics_max=topics, consumers_max=consumers)


def take_in(traffic: Traffic, batch: CheckedBatch) -> None:
    """A batch is stored and acknowledged at once."""
    batches = AcknowledgedBatches((traffic.acknowledged,))
    batches.stored(batch, Appended(0, 0, batch.size, 1))
    batches.reached(batch.size)


def batch_of(topic: str, *bodies: int) -> CheckedBatch:
    records, sizes = encode_batch(
        topic=topic.encode(),
        bodies=[b"x" * size for size in bodies],
        properties=[b""] * len(bodies),
        born_timestamp_ms=1,
        born_host=HOST,
    )
    limits = BatchLimits(batch_bytes_max=64 * MIB)
    return check_batch(
        records, sizes, topic=topic, limits=limits, store_host_ipv6=False, tags=TagsCodes()
    )


def counted(traffic: Traffic) -> dict[str, tuple[int, int]]:
    return {topic: (counts.messages, counts.bytes) for topic, counts in traffic.incoming()}


def test_a_batch_counts_under_its_topic_with_its_messages_and_bytes() -> None:
    traffic = traffic_of()
    batch = batch_of("t", 10, 20)
    take_in(traffic, batch)
    take_in(traffic, batch_of("u", 5))
    assert counted(traffic)["t"] == (2, batch.size)
    assert counted(traffic)["u"][0] == 1


@given(st.lists(st.integers(1, 5_000) | st.integers(1, 5 * MIB), min_size=1, max_size=40))
def test_each_message_is_in_the_bucket_of_its_record(bodies: list[int]) -> None:
    # Bodies above 4 MiB are refused before: sizes are what the broker would store.
    bodies = [min(body, 4 * MIB - 1_000) for body in bodies][:12]
    traffic = traffic_of()
    batch = batch_of("t", *bodies)
    take_in(traffic, batch)
    ((_, counts),) = traffic.incoming()
    expected = Counter(bisect_left(MESSAGE_SIZES, size) for size in batch.sizes.tolist())
    assert counts.sizes == [expected[bucket] for bucket in range(len(MESSAGE_SIZES) + 1)]
    assert sum(counts.sizes) == counts.messages == len(bodies)


def test_topics_beyond_the_bound_are_added_up_under_one_name() -> None:
    traffic = traffic_of(topics=2)
    for topic in ("a", "b", "c", "d", "a"):
        take_in(traffic, batch_of(topic, 10))
    assert {topic: messages for topic, (messages, _) in counted(traffic).items()} == {
        "a": 2,
        "b": 1,
        OTHER: 2,
    }


def test_the_place_of_a_topic_that_is_gone_is_for_another() -> None:
    traffic = traffic_of(topics=1, consumers=1)
    take_in(traffic, batch_of("a", 10))
    traffic.delivered("g", "a", 1, 10)
    traffic.forget(lambda topic: topic == "b", {"g"}, 0.0)
    take_in(traffic, batch_of("b", 10))
    traffic.delivered("g", "b", 1, 10)
    assert set(counted(traffic)) == {"b"}
    assert [reader for reader, _ in traffic.outgoing()] == [("g", "b")]


def test_readers_are_counted_by_group_and_topic_and_beyond_the_bound_together() -> None:
    traffic = traffic_of(consumers=2)
    for group, topic in (("g", "t"), ("", "t"), ("h", "t"), ("g", "u"), ("g", "t")):
        traffic.delivered(group, topic, 2, 50)
    found = {
        tuple(reader): (counts.messages, counts.bytes) for reader, counts in traffic.outgoing()
    }
    assert found == {("g", "t"): (4, 100), ("", "t"): (2, 50), (OTHER, OTHER): (4, 100)}


def readers(traffic: Traffic) -> dict[tuple[str, str], int]:
    return {tuple(reader): counts.messages for reader, counts in traffic.outgoing()}  # type: ignore[misc]


def test_the_places_of_groups_that_came_and_went_are_for_later_ones() -> None:
    traffic = traffic_of(consumers=100)
    for number in range(100):
        traffic.delivered(f"throw-away-{number}", "t", 1, 10)
    traffic.delivered("real", "t", 1, 10)
    traffic.forget(lambda _: True, frozenset(), 0.0)
    assert ("real", "t") not in readers(traffic)
    traffic.forget(lambda _: True, frozenset(), GROUP_IDLE_S)
    traffic.delivered("real", "t", 2, 20)
    assert readers(traffic) == {("real", "t"): 2, (OTHER, OTHER): 1}


def test_who_reads_or_has_members_keeps_its_counts() -> None:
    traffic = traffic_of()
    for group in ("quiet with members", "reading", "gone"):
        traffic.delivered(group, "t", 1, 10)
    for now_s in (0.0, GROUP_IDLE_S - 1, 2 * GROUP_IDLE_S - 2, 2 * GROUP_IDLE_S):
        traffic.delivered("reading", "t", 1, 10)
        traffic.forget(lambda _: True, {"quiet with members"}, now_s)
    assert readers(traffic) == {("quiet with members", "t"): 1, ("reading", "t"): 5}


def test_groups_with_members_beyond_the_bound_are_added_up() -> None:
    members = [
        Member(group, f"{group}-{number}", "", (), False, 10.0, 0.0)
        for number in range(2)
        for group in ("b", "a", "d", "c")
    ]
    _, consumers = connection_families(0, members, groups_max=2)
    assert isinstance(consumers, Family)
    assert {labels[0]: count for labels, count in consumers.rows} == {"b": 2, "a": 2, OTHER: 4}
