"""Retry and dead-letter topics are made when they are needed, and what is owed keeps the log."""

from __future__ import annotations

from typing import Any

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.sent_back import SentBack
from aerobee.broker.retries.topics import RetryTopics
from aerobee.broker.retries.wired import OpenCopiesHold
from aerobee.broker.store.tables.config_tables import TopicTable
from aerobee.store_format.delayed_records import Delay


async def test_they_are_made_once_with_one_queue_each_and_saved() -> None:
    table, saved = TopicTable(), list[str]()

    async def save() -> None:
        saved.extend(table.names())

    topics = RetryTopics(table, save)
    await topics.make_subscribed("g", ["t", "%RETRY%other"])
    assert table.names() == []
    await topics.make_subscribed("g", ["t", "%RETRY%g"])
    assert saved == ["%RETRY%g"]
    await topics.make("g")
    assert table.names() == ["%DLQ%g", "%RETRY%g"]
    for config in table.configs():
        assert (config.read_queue_count, config.write_queue_count, config.perm) == (1, 1, 6)
    saved.clear()
    await topics.make("g")
    assert saved == []


async def test_originals_are_kept_while_their_copies_are_owed() -> None:
    owed = [SentBack(GroupQueue("g", "t", 0), 1, 0, Delay(level=3), 1)]
    hold = OpenCopiesHold(lambda: owed)
    anything: Any = None
    need = await hold.need(anything, anything)
    assert need is not None
    assert need.position == 0
    owed.clear()
    assert await hold.need(anything, anything) is None
