"""The audit reads the timer journal as its broker does, and leaves out what is done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given

from aerobee.broker.journal.records import body_of
from aerobee.broker.timers.entries import (
    TIMER_JOURNAL_TOPIC,
    Acted,
    Floor,
    GivenUp,
    Intent,
    IntentKind,
    Marked,
    Removed,
    Source,
    TimerEntry,
    entry_text,
)
from aerobee.broker.timers.frontier import Region
from aerobee.broker.timers.pending import FIRST, Key
from aerobee.broker.timers.progress import TimerProgress
from aerobee.offset_audit.sources.store.timer_journal import DoneTimers
from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from tests.broker.timers.test_timer_progress import EVERY_SOURCE, journals
from tests.offset_audit.damages.waiting_damages import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    append_record,
)
from tests.offset_audit.store_rows import store_rows

NOW_MS = 1_790_000_000_000
DUE_MS = NOW_MS + 60_000


@given(entries=journals())
def test_what_is_done_is_what_the_broker_says(entries: list[TimerEntry]) -> None:
    progress, done = TimerProgress(), DoneTimers()
    progress.apply(entries)
    for entry in entries:
        done.take(body_of([entry_text(entry)]))
    for source in EVERY_SOURCE:
        assert done.is_done(*source) == progress.is_done(source), source


def test_what_is_given_up_is_the_message_whose_act_had_the_number() -> None:
    done = DoneTimers()
    sources = (Source(0, 520, DUE_MS), Source(3, 88, DUE_MS + 1))
    entries: list[TimerEntry] = [
        Intent(IntentKind.MOVE, 7, sources, (), 0, NOW_MS),
        GivenUp(8, "its topic was deleted", NOW_MS),
        Intent(IntentKind.MOVE, 7, sources, (), 0, NOW_MS),  # of an image
        GivenUp(8, "image", NOW_MS),
        GivenUp(9, "of no intent", NOW_MS),
        Acted(9),
    ]
    for entry in entries:
        done.take(body_of([entry_text(entry)]))
    assert done.given_up == {(3, 88): (DUE_MS + 1, "its topic was deleted")}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[7,null]",
        b'[{"kind":"marks","marks":[[0],[0,"x"],7,[0,1,2]]}]',
        b'[{"kind":"removed","sources":[{"queue":0,"offsets":[1,2],"due":[1]},[],{}]}]',
        b'[{"kind":"removed","sources":{"queue":0}}]',
    ],
)
def test_what_is_no_entry_says_nothing(body: bytes) -> None:
    done = DoneTimers()
    done.take(body)
    assert not any(done.is_done(*source) for source in EVERY_SOURCE)


def test_what_marks_have_passed_is_forgotten() -> None:
    done = DoneTimers()
    for first in range(0, 20_000, 100):
        sources = tuple(Source(0, first + n, NOW_MS + first + n) for n in range(100))
        region = Region(FIRST, Key(NOW_MS + first + 99, first + 99), first + 100)
        done.take(body_of([entry_text(Intent(IntentKind.MOVE, first, sources, (region,)))]))
    assert done.is_done(0, 19_999, NOW_MS + 19_999)
    assert not done.is_done(0, 20_000, NOW_MS + 20_000)
    regions, single = map(int, re.findall(r"\d+", repr(done)))
    assert regions == 1
    assert single < 2_000


def test_an_intent_is_open_until_its_acts_or_the_next_one_are_told() -> None:
    first = Intent(IntentKind.MOVE, 0, (Source(0, 7, NOW_MS), Source(2, 3, NOW_MS)), (Floor(0, 9),))
    second = Intent(IntentKind.MOVE, 2, (Source(0, 9, NOW_MS),), (Floor(0, 10),))
    done = DoneTimers()
    for entry, opened, begin in (
        (first, {(0, 7), (2, 3)}, 7),
        (Acted(1), {(0, 7), (2, 3)}, 7),
        (second, {(0, 9)}, 9),
        (first, {(0, 9)}, 9),
        (Acted(3), set(), 10),
    ):
        done.take(body_of([entry_text(entry)]))
        places = [(0, 7), (2, 3), (0, 9)]
        assert {place for place in places if done.is_open(*place)} == opened, entry
        assert done.begin(0) == begin


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Six messages of each kind wait, then the journal says of most of them what became of them."""
    config = StoreConfig(
        segment_bytes=256 * 1024,
        consume_queue_entries_per_file=100,
        index_slots_max=499,
        index_entries_max=1_000,
        disk_free_bytes_min=0,
    )
    clock = ManualClock(NOW_MS)
    opened = MessageStore.open(RealDisk(tmp_path), clock, config)
    try:
        for number in range(6):
            timed = {"TIMER_OUT_MS": str(DUE_MS + number * 1_000), "REAL_TOPIC": "orders"}
            append_record(opened, clock, TIMER_TOPIC, 0, b"%d" % number, timed)
            delayed = {"DELAY": "2", "REAL_TOPIC": "bills"}
            append_record(opened, clock, SCHEDULE_TOPIC, 1, b"%d" % number, delayed)
        due_ms = [DUE_MS + (number + 1) * 1_000 for number in range(6)]
        entries: list[TimerEntry] = [
            Marked((Floor(0, 1), Floor(2, 2))),
            Intent(
                IntentKind.MOVE,
                0,
                (Source(0, 1, due_ms[1]), Source(2, 3, NOW_MS + 5_000)),
                (Region(FIRST, Key(due_ms[2], 2), 3),),
            ),
            Removed((Source(0, 4, due_ms[4]),), "recalled"),
        ]
        for entry in entries:
            append_record(opened, clock, TIMER_JOURNAL_TOPIC, 0, body_of([entry_text(entry)]))
    finally:
        opened.close()
    return tmp_path


def test_what_the_journal_says_is_done_does_not_wait(store: Path) -> None:
    found = store_rows("pending", store)
    rows = [row for row in found if not row["resolved"]]
    assert {(row["kind"], row["queue_offset"], row["real_topic"]) for row in rows} == {
        *(("TIMER", offset, "orders") for offset in (3, 5)),
        *(("DELAY", offset, "bills") for offset in (2, 4, 5)),
    }
    # Of these the journal does not say yet that their copies are in the log.
    on_their_way = {(row["kind"], row["queue_offset"]) for row in found if row["resolved"]}
    assert on_their_way == {("TIMER", 1), ("DELAY", 3)}
    # Never before the end of the slot that the message names.
    assert {row["queue_offset"]: row["due_ms"] for row in rows if row["kind"] == "TIMER"} == {
        3: DUE_MS + 4_000,
        5: DUE_MS + 6_000,
    }
