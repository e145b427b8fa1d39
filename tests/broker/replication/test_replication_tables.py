"""The master's tables reach its slaves: when they join, and when they change."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from aerobee.broker.replication.messages import encode_emptied
from aerobee.broker.replication.table_source import TableSource
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.queues import queue_set
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicTable,
)
from aerobee.store.engine.tables.delay_offset_table import DELAY_OFFSETS_PATH
from tests.support.compiled_form import replaces_what_is_compiled
from tests.support.replication_streams import Master, running_master, running_slave
from tests.support.stores import batch_of
from tests.support.waiting import until


def write_tables(
    master: Master, *topics: TopicConfig, revision: int = 0, history: str = ""
) -> None:
    """The master's files as its own snapshots leave them."""
    table, groups = TopicTable(), SubscriptionGroupTable()
    for topic in topics:
        table.put(topic)
    table.metadata_revision = revision
    table.metadata_history = history
    groups.put(SubscriptionGroupConfig(name="readers", retry_times_max=3))
    write(master, TOPICS_PATH, table.snapshot_bytes(1))
    write(master, SUBSCRIPTION_GROUPS_PATH, groups.snapshot_bytes(1))
    write(master, DELAY_OFFSETS_PATH, b'{"offsetTable":{1:5}}')
    write(master, CONSUMER_OFFSETS_PATH, b'{"offsetTable":{}}')


def write(master: Master, path: str, content: bytes) -> None:
    replace_atomically(master.replica.disk, path, content)
    master.sender.on_table_written(path)


ORDERS = TopicConfig(name="orders", read_queue_count=3, write_queue_count=3, revision=4)
BILLS = TopicConfig(name="bills", perm=4)


async def test_a_slave_gets_the_masters_tables_and_keeps_them(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        write_tables(master, ORDERS, BILLS, revision=9)
        slave.topics.put(TopicConfig(name="gone"))
        slave.follow(master.address)
        config = tmp_path / "s" / "config"
        await until(lambda: (config / "delayOffset.json").exists())
        assert [topic.name for topic in slave.topics.configs()] == ["bills", "orders"]
        assert slave.topics.get("bills") == BILLS
        assert slave.topics.metadata_revision == 9
        group = slave.groups.get("readers")
        assert group is not None
        assert group.retry_times_max == 3
        assert (config / "delayOffset.json").read_bytes() == b'{"offsetTable":{1:5}}'
        saved = TopicTable.load((config / "topics.json").read_bytes())
        assert saved.names() == ["bills", "orders"]
        assert SubscriptionGroupTable.load(
            (config / "subscriptionGroup.json").read_bytes()
        ).names() == ["readers"]
        # Offsets travel in the log.
        assert not (config / "consumerOffset.json").exists()


async def test_a_change_reaches_the_slave_within_seconds(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        slave.follow(master.address)
        await until(lambda: slave.follower.is_connected)
        write_tables(master, ORDERS)
        await until(lambda: slave.topics.get("orders") == ORDERS)
        changed = replace(ORDERS, perm=2)
        write_tables(master, changed)
        await until(lambda: slave.topics.get("orders") == changed)


async def test_what_a_slave_has_is_not_sent_again(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        write_tables(master, ORDERS)
        slave.follow(master.address)
        await until(lambda: len(slave.tables.taken) == 3)
        await slave.stop()
        taken: list[str] = []
        take = slave.tables.take

        async def note(path: str, content: bytes) -> None:
            taken.append(path)
            await take(path, content)

        slave.tables.take = note  # type: ignore[method-assign]
        write(master, DELAY_OFFSETS_PATH, b'{"offsetTable":{1:6}}')
        slave.follow(master.address)
        path = tmp_path / "s" / DELAY_OFFSETS_PATH
        await until(lambda: path.read_bytes().endswith(b"6}}"))
        assert taken == [DELAY_OFFSETS_PATH]


async def test_topics_that_are_newer_here_are_left_alone(tmp_path: Path) -> None:
    """The nameserver told the slave first."""
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        write_tables(master, ORDERS, revision=9)
        slave.topics.put(BILLS)
        slave.topics.metadata_revision = 10
        slave.follow(master.address)
        await until(lambda: len(slave.tables.taken) == 3)
        assert slave.topics.names() == ["bills"]
        write_tables(master, BILLS, ORDERS, revision=11)
        await until(lambda: slave.topics.names() == ["bills", "orders"])
        assert slave.topics.metadata_revision == 11


async def test_a_lower_revision_of_another_history_is_not_older(tmp_path: Path) -> None:
    """The master has heard of an etcd that was emptied."""
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        write_tables(master, ORDERS, revision=3, history="new")
        slave.topics.put(BILLS)
        slave.topics.metadata_revision, slave.topics.metadata_history = 1_000, "former"
        slave.follow(master.address)
        await until(lambda: slave.topics.names() == ["orders"])
        assert (slave.topics.metadata_revision, slave.topics.metadata_history) == (3, "new")


async def test_damaged_or_unknown_tables_change_nothing(tmp_path: Path) -> None:
    async with running_slave(tmp_path / "s") as slave:
        slave.topics.put(BILLS)
        tables = slave.tables
        await tables.take(TOPICS_PATH, b"{ not a table")
        await tables.take(SUBSCRIPTION_GROUPS_PATH, b"[]")
        await tables.take("../escape.json", b"{}")
        await tables.take(CONSUMER_OFFSETS_PATH, b"{}")
        assert slave.topics.names() == ["bills"]
        assert not list(tmp_path.rglob("escape*"))
        assert not (tmp_path / "s" / CONSUMER_OFFSETS_PATH).exists()
        # What is damaged at the master is not asked for again and again.
        assert set(tables.taken) == {TOPICS_PATH, SUBSCRIPTION_GROUPS_PATH}


@replaces_what_is_compiled(queue_set)
async def test_a_slave_counts_on_in_queues_that_retention_has_emptied(tmp_path: Path) -> None:
    """As master it must not give out offsets that were given out before."""
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        master.store.queues.emptied = lambda: {("old", 2): 700, ("t", 0): 5}  # type: ignore[method-assign]
        master.append(batch_of("t", b"x"))
        slave.follow(master.address)
        await until(lambda: slave.store.queues.bounds("old", 2).max_offset == 700)
        await until(lambda: slave.store.appended_end == master.store.appended_end)
        await slave.stop()
        assert slave.store.append(batch_of("old", b"y"), queue_id=2).base_queue_offset == 700


@replaces_what_is_compiled(queue_set)
async def test_a_damaged_list_of_emptied_queues_changes_nothing(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        master.store.queues.emptied = lambda: {("old", -2): 700}  # type: ignore[method-assign]
        assert json.loads(encode_emptied(master.store.queues.emptied()))
        slave.follow(master.address)
        end = master.append(batch_of("t", b"x"))
        await until(lambda: slave.store.confirmed_end == end)
        assert slave.store.queues.names() == [("t", 0)]


async def test_a_file_is_read_once_for_each_time_that_it_is_written(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        source = TableSource(disk, pool)
        replace_atomically(disk, TOPICS_PATH, b"one")
        first = (await source.current())[TOPICS_PATH]
        assert first.content == b"one"
        assert (await source.current())[TOPICS_PATH] is first
        replace_atomically(disk, TOPICS_PATH, b"two")
        source.written(TOPICS_PATH)
        assert (await source.current())[TOPICS_PATH].content == b"two"
        # In the middle of being replaced there is none for a moment.
        disk.remove(TOPICS_PATH)
        source.written(TOPICS_PATH)
        assert (await source.current())[TOPICS_PATH].content == b"two"


async def test_tables_that_change_all_the_time_are_sent_once_a_second(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        taken: list[bytes] = []
        take = slave.tables.take

        async def note(path: str, content: bytes) -> None:
            taken.append(content)
            await take(path, content)

        slave.tables.take = note  # type: ignore[method-assign]
        slave.follow(master.address)
        await until(lambda: slave.follower.is_connected)
        began_s = time.monotonic()
        for number in range(100):
            write(master, DELAY_OFFSETS_PATH, b'{"offsetTable":{1:%d}}' % number)
            await asyncio.sleep(0.005)
        await until(lambda: taken[-1:] == [b'{"offsetTable":{1:99}}'])
        assert len(taken) <= 2 + (time.monotonic() - began_s)
