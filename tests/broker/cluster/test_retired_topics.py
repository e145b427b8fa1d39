"""A retired topic refuses clients' new messages after its grace, and is sealed once all is seen."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aerobee.broker.cluster.retired_topics import RetiredTopics
from aerobee.broker.cluster.topic_directives import AnnouncedTopic, apply_topics
from aerobee.broker.sending.guard import Guard
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import NotWritable, QueueNotFound
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable


@dataclass
class Log:
    appended_end: int = 0
    dispatched_end: int = 0


class Scene:
    def __init__(self) -> None:
        self.clock, self.log, self.topics = ManualClock(), Log(), TopicTable()
        for name in ("t", "u"):
            self.topics.put(TopicConfig(name=name, read_queue_count=2, write_queue_count=2))
        self.retired = RetiredTopics(
            self.topics, self.log, self.clock, broker_name="broker-a", grace_ms=60_000
        )
        self.guard = Guard(self.topics, broker_name="broker-a", retired=self.retired)

    def announce(self, *, is_retired: bool = True, is_master: bool = True) -> None:
        self.retired.hear("t", is_retired=is_retired, is_master=is_master)
        topic = AnnouncedTopic(
            name="t", queue_count=2, perm=6, order=True, revision=7, is_retired=is_retired
        )
        apply_topics(self.topics, [topic], metadata_revision=7, is_complete=False)


def test_new_messages_are_taken_during_the_grace_and_then_refused() -> None:
    scene = Scene()
    scene.announce()
    scene.clock.advance_ms(59_000)
    scene.announce()  # told again, which does not begin the grace again
    scene.guard.check_send("t", 1)
    assert scene.retired.refuses_in_ms("t") == 1_000
    assert not scene.retired.is_sealed("t")
    scene.clock.advance_ms(1_000)
    with pytest.raises(NotWritable, match="topic t is retired from broker group broker-a"):
        scene.guard.check_send("t", 1)
    scene.guard.check_send("u", 1)


def test_what_the_broker_has_already_still_moves_and_is_read() -> None:
    scene = Scene()
    scene.announce(is_master=False)
    scene.guard.check_append("t", 1)
    scene.guard.check_read("t", 1)
    assert scene.guard.write_queues("t") == 2
    for check in (scene.guard.check_append, scene.guard.check_send, scene.guard.check_read):
        with pytest.raises(QueueNotFound, match="has queues 0 to 1"):
            check("t", 2)


def test_who_hears_of_it_as_a_slave_refuses_at_once() -> None:
    """Or what its master reported as sealed could grow."""
    scene = Scene()
    scene.announce(is_master=False)
    with pytest.raises(NotWritable):
        scene.guard.check_send("t", 0)


def test_a_topic_is_sealed_once_consumers_see_what_was_taken_last() -> None:
    scene = Scene()
    scene.announce(is_master=False)
    scene.log.appended_end, scene.log.dispatched_end = 100, 99
    assert not scene.retired.is_sealed("t")
    scene.log.appended_end, scene.log.dispatched_end = 300, 100  # of other topics
    assert scene.retired.is_sealed("t")
    assert not scene.retired.is_sealed("u")
    scene.announce(is_retired=False)
    assert not scene.retired.is_sealed("t")
    scene.guard.check_send("t", 0)
