"""A closed group refuses new messages after its grace, and nothing else."""

from __future__ import annotations

import pytest

from aerobee.broker.cluster.closing import Closing
from aerobee.broker.sending.guard import Guard
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import NotWritable
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable


def test_new_messages_are_refused_after_the_grace_and_taken_again_once_it_is_open() -> None:
    clock = ManualClock()
    closing = Closing(clock, broker_name="broker-a", grace_ms=60_000)
    topics = TopicTable()
    topics.put(TopicConfig(name="t", read_queue_count=1, write_queue_count=1))
    guard = Guard(topics, broker_name="broker-a", closed=closing)
    closing.hear(is_closed=False)
    guard.check_send("t", 0)
    assert not closing.refuses

    closing.hear(is_closed=True)
    clock.advance_ms(59_000)
    closing.hear(is_closed=True)  # with each directive, which does not begin the grace again
    guard.check_send("t", 0)
    assert not closing.refuses
    assert closing.refuses_in_ms == 1_000
    clock.advance_ms(1_000)
    with pytest.raises(NotWritable, match="broker group broker-a is closed"):
        guard.check_send("t", 0)
    assert closing.refuses
    assert closing.refuses_in_ms == 0
    # What the broker has already still moves: a dead letter that is sent again.
    guard.check_append("t", 0)
    guard.check_read("t", 0)

    closing.hear(is_closed=False)
    guard.check_send("t", 0)
