"""Who counts as a reader of which queue."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.broker.groups.members import Member, Members, Subscription
from aerobee.broker.reading.unread import Readers
from aerobee.broker.retention.unread_readers import UnreadReaders
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.retention.retention_policy import Cause
from aerobee.store.engine.retention.retention_statistics import (
    Because,
    RemovedSegment,
    RetentionCounters,
)
from aerobee.store.engine.retention.unread_search import QueueReaders, removed_unread
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from tests.support.stores import SMALL, append, open_store


class Tables:
    """A store with ten messages in each of two queues of topic `t`, and the broker's tables."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.topics = TopicTable()
        self.offsets = ConsumerOffsetTable()
        self.groups = Members()
        self.readers = UnreadReaders(Readers(store, self.topics, self.offsets, self.groups))
        self.put("t")
        for number in range(20):
            append(store, "t", number % 2, b"x")

    def put(self, name: str, **attributes: str) -> None:
        self.topics.put(
            TopicConfig(name=name, read_queue_count=2, write_queue_count=2, attributes=attributes)
        )

    def join(self, group: str, topic: str = "t", *, broadcasting: bool = False) -> None:
        subscriptions = (Subscription(topic),)
        self.groups.join(Member(group, "c", "1", subscriptions, broadcasting, 60.0, 0.0))

    def collect(self) -> list[QueueReaders]:
        async def collect() -> list[QueueReaders]:
            return [each async for some in self.readers.collect() for each in some]

        return asyncio.run(collect())


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(open_store(tmp_path))


def test_nobody_reads_nothing(tables: Tables) -> None:
    assert tables.collect() == []


def test_each_group_counts_from_what_it_committed_where_anybody_is_behind(tables: Tables) -> None:
    tables.offsets.commit("a", "t", 0, 3)
    tables.offsets.commit("b", "t", 0, 10)
    tables.offsets.commit("b", "t", 1, 10)
    tables.offsets.commit("a", "t", 1, 10)
    assert tables.collect() == [QueueReaders("t", 0, {"a": 3, "b": 10})]
    assert tables.readers.of_queue("t", 0) == [QueueReaders("t", 0, {"a": 3, "b": 10})]
    assert tables.readers.of_queue("t", 1) == [QueueReaders("t", 1, {"a": 10, "b": 10})]


def test_a_queue_that_came_while_a_group_was_away_is_kept_for_it_from_its_first_message_on(
    tables: Tables,
) -> None:
    tables.offsets.commit("billing", "t", 0, 10)
    tables.offsets.commit("elsewhere", "u", 0, 0)
    assert tables.collect() == [QueueReaders("t", 1, {"billing": 0})]
    assert tables.readers.of_queue("t", 1) == [QueueReaders("t", 1, {"billing": 0})]


def test_a_queue_beyond_the_topics_present_number_is_kept_for_who_has_not_read_it(
    tables: Tables,
) -> None:
    tables.offsets.commit("billing", "t", 0, 10)
    tables.offsets.commit("billing", "t", 1, 3)
    tables.topics.put(TopicConfig(name="t", read_queue_count=1, write_queue_count=1))
    assert tables.collect() == [QueueReaders("t", 1, {"billing": 3})]
    assert tables.readers.of_queue("t", 1) == [QueueReaders("t", 1, {"billing": 3})]


def test_the_revision_changes_whenever_somebody_comes_to_want_more(tables: Tables) -> None:
    seen = {tables.readers.revision}

    def is_new() -> bool:
        count = len(seen)
        seen.add(tables.readers.revision)
        return len(seen) > count

    tables.offsets.commit("a", "t", 0, 3)
    assert is_new()
    tables.offsets.commit("a", "t", 0, 4)
    tables.offsets.commit("a", "t", 0, 4)
    assert not is_new()
    tables.offsets.commit("a", "t", 0, 2)
    assert is_new()
    tables.join("b")
    assert is_new()
    tables.groups.heartbeat("b", "c", "1", 1.0)
    assert not is_new()
    tables.groups.heartbeat("b", "c", "1", 1.0, [Subscription("u")])
    assert is_new()
    tables.join("radio", broadcasting=True)
    assert not is_new()
    tables.put("t", keep_unread_max_bytes="77")
    assert is_new()


def test_readers_that_moved_meanwhile_are_known_where_they_are_now(tables: Tables) -> None:
    tables.offsets.commit("a", "t", 0, 3)
    tables.join("b")
    known = tables.readers.of_queue("t", 0)
    assert known == [QueueReaders("t", 0, {"a": 3, "b": 0})]
    tables.offsets.commit("a", "t", 0, 5)
    tables.offsets.commit("b", "t", 0, 7)
    assert tables.readers.refresh(known) == [QueueReaders("t", 0, {"a": 5, "b": 7})]


def test_a_live_group_counts_from_the_first_message_where_it_never_committed(
    tables: Tables,
) -> None:
    tables.join("a")
    tables.offsets.commit("a", "t", 0, 3)
    assert tables.collect() == [QueueReaders("t", 0, {"a": 3}), QueueReaders("t", 1, {"a": 0})]


def test_broadcasting_members_and_other_topics_do_not_count(tables: Tables) -> None:
    tables.join("radio", broadcasting=True)
    tables.join("elsewhere", "unknown")
    tables.offsets.commit("late", "unknown", 0, 0)
    assert tables.collect() == []
    assert tables.readers.of_queue("unknown", 0) == []
    assert tables.readers.of_queue("t", 0) == []


def test_system_topics_and_system_groups_and_missing_queues_do_not_count(tables: Tables) -> None:
    tables.put("SELF_TEST_TOPIC")
    tables.offsets.commit("a", "SELF_TEST_TOPIC", 0, 0)
    tables.offsets.commit("TOOLS_CONSUMER", "t", 0, 0)
    tables.offsets.commit("CID_RMQ_SYS_TRANS", "t", 0, 0)
    assert tables.collect() == []
    assert tables.readers.of_queue("t", 0) == []
    tables.offsets.commit("a", "t", 2, 0)
    assert tables.readers.of_queue("t", 2) == []
    assert [readers.queue_id for readers in tables.collect()] == [0, 1]
    assert tables.readers.of_queue("SELF_TEST_TOPIC", 0) == []


def test_the_topics_ceiling_comes_along(tables: Tables) -> None:
    tables.put("t", keep_unread_max_bytes="77")
    tables.offsets.commit("a", "t", 0, 3)
    tables.offsets.commit("a", "t", 1, 10)
    assert tables.collect() == [QueueReaders("t", 0, {"a": 3}, keep_bytes_max=77)]
    tables.topics.remove("t")
    assert tables.collect() == []


def test_many_queues_let_the_loop_run_in_between(tables: Tables) -> None:
    for number in range(500):
        tables.put(f"topic-{number}")
        tables.offsets.commit("a", f"topic-{number}", 0, 0)
        for queue_id in range(2):
            append(tables.store, f"topic-{number}", queue_id, b"x")

    async def collect() -> list[int]:
        return [len(some) async for some in tables.readers.collect()]

    parts = asyncio.run(collect())
    assert parts == [200] * 5 + [0]


def test_a_limit_of_the_brokers_counts_for_topics_without_one_of_their_own(tmp_path: Path) -> None:
    retention = RetentionConfig(keep_unread_max_bytes=500)
    tables = Tables(open_store(tmp_path, replace(SMALL, retention=retention)))
    tables.put("own", keep_unread_max_bytes="0")
    append(tables.store, "own", 0, b"x")
    for topic in ("t", "own"):
        tables.offsets.commit("g", topic, 0, 0)
    assert {each.topic: each.keep_bytes_max for each in tables.collect()} == {"t": 500, "own": 0}


@pytest.mark.parametrize(
    ("keep_bytes_max", "told", "because"),
    [
        (500, None, Because.LIMIT),
        (0, None, Because.LIMIT),
        (None, Because.COMMAND, Because.COMMAND),
        (500, Because.TOPIC, Because.TOPIC),
        (None, None, Because.UNEXPECTED),
    ],
)
def test_what_was_removed_unread_says_for_which_group_and_why(
    keep_bytes_max: int | None, told: Because | None, because: Because
) -> None:
    readers = QueueReaders("t", 0, {"slow": 3, "fast": 20}, keep_bytes_max)
    losses = removed_unread(readers, 0, 10, because=told)
    counters = RetentionCounters()
    for name in ("0", "1"):
        counters.add(RemovedSegment(name, 0, 1, 1, Cause.EXPIRED, tuple(losses)))
    assert counters.by_group == (("slow", "t", because, 14),)
