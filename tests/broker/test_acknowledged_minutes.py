"""How many messages a master says that it acknowledged, by minute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from aerobee.broker.observe.audit.acknowledged_minutes import (
    ENTRIES_MAX,
    MINUTES_MAX,
    MS_PER_MINUTE,
    AcknowledgedMinutes,
)

FIRST = 30_000_000
"""The first minute of these tests."""


@dataclass
class Master:
    """What the counters ask; a test moves it."""

    acknowledged_end: int = 0
    epoch: int = 1
    now_ms: int = FIRST * MS_PER_MINUTE
    waits: bool = False
    minutes: AcknowledgedMinutes = field(init=False)
    end: int = 0

    def __post_init__(self) -> None:
        self.minutes = AcknowledgedMinutes(
            waits=self.waits,
            acknowledged_end=lambda: self.acknowledged_end,
            epoch=lambda: self.epoch,
            now_ms=lambda: self.now_ms,
        )

    def store(self, topic: str, minute: int, messages: int) -> None:
        self.end += 100
        store_ms = (FIRST + minute) * MS_PER_MINUTE + 59_999
        self.minutes.stored(topic, store_ms, self.end, messages)

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
    master.store("a", 0, 3)
    master.store("b", 0, 1)
    master.store("a", 0, 2)
    master.store("a", 1, 4)
    assert master.counted() == {(0, "a"): 5, (0, "b"): 1, (1, "a"): 4}


def test_where_acknowledgements_wait_nothing_counts_before_them() -> None:
    master = Master(waits=True)
    master.store("a", 0, 3)
    master.store("a", 0, 2)
    assert master.counted() == {}
    master.acknowledged_end = 100
    assert master.counted() == {(0, "a"): 3}
    master.store("b", 1, 1)
    assert master.counted() == {(0, "a"): 3}
    master.acknowledged_end = 300
    assert master.counted() == {(0, "a"): 5, (1, "b"): 1}


def test_what_is_acknowledged_minutes_later_counts_where_it_was_stored() -> None:
    master = Master(waits=True)
    for minute in range(5):
        master.store("a", minute, 1 + minute)
    master.acknowledged_end = master.end
    assert master.counted() == {(minute, "a"): 1 + minute for minute in range(5)}
    assert [counts.minute - FIRST for counts in master.minutes.minutes()] == [0, 1, 2, 3, 4]


def test_what_an_ended_term_left_open_never_counts() -> None:
    master = Master(waits=True)
    master.store("a", 0, 3)
    master.acknowledged_end = 100
    master.store("a", 0, 2)
    master.epoch = 2
    assert master.counted() == {}
    master.store("a", 0, 7)
    master.acknowledged_end = master.end
    assert master.counted() == {(0, "a"): 7}


def test_minutes_are_whole_from_the_next_one_after_counting_began() -> None:
    master = Master()
    assert master.minutes.first_whole_minute == FIRST + 1
    master.store("a", 0, 1)
    assert master.minutes.first_whole_minute == FIRST + 1
    master.epoch, master.now_ms = 2, (FIRST + 5) * MS_PER_MINUTE
    master.store("a", 5, 1)
    assert master.minutes.first_whole_minute == FIRST + 6


def test_a_slave_that_becomes_master_has_counted_nothing_before() -> None:
    master = Master()
    master.epoch, master.now_ms = 2, (FIRST + 60) * MS_PER_MINUTE
    master.store("a", 60, 5)
    assert master.counted() == {(60, "a"): 5}
    assert master.minutes.first_whole_minute == FIRST + 61


def test_about_a_day_is_kept_and_what_went_is_not_whole_any_more() -> None:
    master = Master()
    for minute in range(MINUTES_MAX + 10):
        master.store("a", minute, 1)
    counted = master.counted()
    assert len(counted) == MINUTES_MAX
    oldest = min(minute for minute, _ in counted)
    assert master.minutes.first_whole_minute == FIRST + oldest


def test_very_many_topics_shorten_what_is_kept() -> None:
    master = Master()
    topics = [f"topic-{number}" for number in range(ENTRIES_MAX // 4)]
    for minute in range(7):
        for topic in topics:
            master.store(topic, minute, 1)
    minutes = {minute for minute, _ in master.counted()}
    assert minutes == {2, 3, 4, 5, 6}
    assert master.minutes.first_whole_minute == FIRST + 2


def test_many_topics_acknowledged_late_are_added_to_their_minute_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = Master(waits=True)
    for number in range(300):
        master.store(f"topic-{number}", 0, 1)
    master.store("other", 1, 1)
    master.acknowledged_end = master.end
    closed: list[int] = []
    close = AcknowledgedMinutes._close

    def counting(self: AcknowledgedMinutes, minute: int, *rest: Any) -> None:
        closed.append(minute)
        close(self, minute, *rest)

    monkeypatch.setattr(AcknowledgedMinutes, "_close", counting)
    assert len(master.counted()) == 301
    assert closed == [FIRST], "the minute is written anew once, not once for each topic"
