"""Retry and dead-letter topics are made when they are needed, once each."""

from __future__ import annotations

from aerobee.broker.retries.topics import RetryTopics
from aerobee.store.engine.tables.config_tables import TopicTable


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
