"""How many messages a master says that it acknowledged, by minute."""

from __future__ import annotations

from dataclasses import dataclass, field

from aerobee.broker.observe.audit.acknowledged_minutes import (
    ENTRIES_MAX,
    MINUTES_MAX,
    MS_PER_MINUTE,
    AcknowledgedMinutes,
)
from aerobee.broker.sending.acknowledged import AcknowledgedBatch

FIRST = 30_000_000
"""The first minute of these tests."""


@dataclass
class Master:
    """What the counters ask; a test moves it."""

    epoch: int = 1
    now_ms: int = FIRST * MS_PER_MINUTE
    minutes: AcknowledgedMinutes = field(init=False)

    def __post_init__(self) -> None:
        self.minutes = AcknowledgedMinutes(epoch=lambda: self.epoch, now_ms=lambda: self.now_ms)

    def acknowledge(self, topic: str, minute: int, messages: int) -> None:
        store_ms = (FIRST + minute) * MS_PER_MINUTE + 59_999
        self.minutes.acknowledged(AcknowledgedBatch(0, topic, store_ms, messages, 100, None))

    def counted(self) -> dict[tuple[int, str], int]:
        found: dict[tuple[int, str], int] = {}
        for counts in self.minutes.minutes():
            for topic, messages in zip(counts.topics, counts.messages, strict=True):
                name = counts.minute - FIRST, topic
                assert name not in found, "a minute tells a topic once"
                found[name] = messages
        return found


def test_messages_count_in_the_minute_of_their_store_time() -> None:
    master = Master()
    master.acknowledge("a", 0, 3)
    master.acknowledge("b", 0, 1)
    master.acknowledge("a", 0, 2)
    master.acknowledge("a", 1, 4)
    assert master.counted() == {(0, "a"): 5, (0, "b"): 1, (1, "a"): 4}


def test_under_another_epoch_counting_begins_anew() -> None:
    master = Master()
    master.acknowledge("a", 0, 3)
    master.epoch = 2
    assert master.counted() == {}
    master.acknowledge("a", 0, 7)
    assert master.counted() == {(0, "a"): 7}


def test_minutes_are_whole_from_the_next_one_after_counting_began() -> None:
    master = Master()
    assert master.minutes.first_whole_minute == FIRST + 1
    master.acknowledge("a", 0, 1)
    assert master.minutes.first_whole_minute == FIRST + 1
    master.epoch, master.now_ms = 2, (FIRST + 5) * MS_PER_MINUTE
    master.acknowledge("a", 5, 1)
    assert master.minutes.first_whole_minute == FIRST + 6


def test_a_slave_that_becomes_master_has_counted_nothing_before() -> None:
    master = Master()
    master.epoch, master.now_ms = 2, (FIRST + 60) * MS_PER_MINUTE
    master.acknowledge("a", 60, 5)
    assert master.counted() == {(60, "a"): 5}
    assert master.minutes.first_whole_minute == FIRST + 61


def test_about_a_day_is_kept_and_what_went_is_not_whole_any_more() -> None:
    master = Master()
    for minute in range(MINUTES_MAX + 10):
        master.acknowledge("a", minute, 1)
    counted = master.counted()
    assert len(counted) == MINUTES_MAX
    oldest = min(minute for minute, _ in counted)
    assert master.minutes.first_whole_minute == FIRST + oldest


def test_very_many_topics_shorten_what_is_kept() -> None:
    master = Master()
    topics = [f"topic-{number}" for number in range(ENTRIES_MAX // 4)]
    for minute in range(7):
        for topic in topics:
            master.acknowledge(topic, minute, 1)
    minutes = {minute for minute, _ in master.counted()}
    assert minutes == {2, 3, 4, 5, 6}
    assert master.minutes.first_whole_minute == FIRST + 2
