"""What replicas know of schedules follows from their journal, however it is read and written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.recurring.entries import decode_entry, entry_text
from aerobee.broker.recurring.schedules import (
    LATE_MS,
    Acted,
    Definition,
    MissedRule,
    Passed,
    Progress,
    Put,
    Ran,
    Removed,
    Schedule,
    ScheduleEntry,
    Schedules,
    image_of,
    step_of,
)
from aerobee.broker.recurring.state import ScheduleJournalState, ScheduleTerm, file_reader
from aerobee.broker.recurring.times import When
from tests.support.property_runs import examples

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(0, 1 << 40)
PROGRESS = st.builds(Progress, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
DEFINITIONS = st.builds(
    Definition,
    name=NAMES,
    topic=st.just("reports"),
    body=st.binary(min_size=1, max_size=20),
    when=st.builds(When, cron=st.just("0 8 * * *"), from_ms=NUMBERS, until_ms=NUMBERS),
    tag=st.sampled_from(["", "t"]),
    keys=st.lists(NAMES, max_size=2).map(tuple),
    properties=st.dictionaries(NAMES, NAMES, max_size=2),
    runs_max=NUMBERS,
    missed=st.sampled_from(MissedRule),
)
SCHEDULES = st.builds(
    Schedule,
    DEFINITIONS,
    created_ms=NUMBERS,
    revision=NUMBERS,
    is_paused=st.booleans(),
    progress=PROGRESS,
)


@st.composite
def journals(draw: st.DrawFn) -> list[ScheduleEntry]:
    """As masters write them: the numbers of runs rise."""
    entries: list[ScheduleEntry] = []
    number = 0
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.integers(0, 4))
        if kind == 0:
            entries.append(Put(draw(SCHEDULES)))
        elif kind == 1:
            entries.append(Removed(draw(NAMES)))
        elif kind == 2:
            entries.append(Ran(number, draw(NAMES), draw(NUMBERS), 0, draw(PROGRESS)))
            number += 1
        elif kind == 3:
            entries.append(Acted(number))
        else:
            entries.append(Passed(draw(NAMES), draw(PROGRESS)))
    return entries


def known(schedules: Schedules) -> tuple[object, ...]:
    return schedules.by_name, schedules.next_number, schedules.open


def after(entries: list[Any]) -> Schedules:
    schedules = Schedules()
    schedules.apply(entries)
    return schedules


@settings(max_examples=examples(100))
@given(journals())
def test_entries_are_read_as_they_were_written(entries: list[ScheduleEntry]) -> None:
    assert [decode_entry(json.loads(entry_text(each))) for each in entries] == entries


@settings(max_examples=examples(100))
@given(journals(), journals())
def test_an_image_has_everything_and_changes_nothing(
    before: list[ScheduleEntry], meanwhile: list[ScheduleEntry]
) -> None:
    schedules = after(before)
    image = list(image_of(lambda: schedules))
    # A run that is open is named again; one that was acted on since the image began is not.
    assert known(after(image)) == known(schedules)
    assert known(after([*before, *image])) == known(schedules)
    # Entries that come in between count.
    live = after(before)
    written: list[ScheduleEntry] = []
    rest = iter(meanwhile)
    for entry in image_of(lambda: live):
        written.append(entry)
        live.apply((entry,))
        if (other := next(rest, None)) is not None:
            written.append(other)
            live.apply((other,))
    assert after(written).by_name == live.by_name


@settings(max_examples=examples(50))
@given(journals())
def test_the_file_has_the_state_and_is_ignored_if_the_journal_is_shorter(
    entries: list[ScheduleEntry],
) -> None:
    state = ScheduleJournalState()
    for number, entry in enumerate(entries):
        state.apply([entry], number)
    data = state.snapshot()()
    read = file_reader(len(entries))(data)
    assert known(read.schedules) == known(state.schedules)
    assert read.next_offset == len(entries)
    if entries:
        with pytest.raises(ValueError, match="ahead"):
            file_reader(len(entries) - 1)(data)


def test_a_replica_that_lost_a_part_forgets_all_until_an_image() -> None:
    state = ScheduleJournalState()
    state.apply([Put(schedule())], 0)
    state.skip_to(5)
    assert state.schedules.by_name == {}
    assert not state.is_whole
    state.apply([Put(schedule(name="b")), ImageEnd(7, 5, 0)], 5)
    assert state.is_whole
    assert list(state.schedules.by_name) == ["b"]


class FailingWriter:
    """Drops what is added when it is told so."""

    def __init__(self) -> None:
        self.term: ScheduleTerm | None = None
        self.added: list[Any] = []

    def add(self, entry: Any, *, is_durable: bool = True) -> Any:
        self.added.append(entry)
        return None

    def flush(self) -> None:
        return


def test_what_could_not_be_written_was_never_decided() -> None:
    writer = FailingWriter()
    term = ScheduleTerm(ScheduleJournalState(), writer)
    term.put(schedule())
    term.put(schedule(name="b"))
    term.dropped([writer.added[1]])
    assert list(term.schedules.by_name) == ["b"]


def schedule(rule: MissedRule = MissedRule.SKIP, *, name: str = "a", **fields: Any) -> Schedule:
    when = When(every_ms=10_000, from_ms=0)
    definition = Definition(name, "reports", b"r", when, missed=rule, **fields)
    return Schedule(definition, created_ms=0, progress=Progress(next_ms=10_000))


def test_nothing_is_due_before_its_time() -> None:
    assert step_of(schedule(), 9_999) is None
    step = step_of(schedule(), 10_000)
    assert step == (10_000, Progress(next_ms=20_000, runs=1, last_ms=10_000))


def test_of_several_due_runs_the_rule_decides() -> None:
    now_ms = 45_000
    skip = step_of(schedule(), now_ms)
    assert skip == (40_000, Progress(next_ms=50_000, runs=1, missed=3, last_ms=40_000))
    every = step_of(schedule(MissedRule.ALL), now_ms)
    assert every == (10_000, Progress(next_ms=20_000, runs=1, last_ms=10_000))


def test_a_run_that_is_more_than_a_minute_late_is_skipped_or_sent_by_the_rule() -> None:
    rare = replace(schedule().definition, when=When(every_ms=3_600_000, from_ms=0))
    at = Progress(next_ms=3_600_000)
    skipping = Schedule(rare, 0, progress=at)
    assert step_of(skipping, 3_600_000 + LATE_MS) is not None
    late_ms = 3_600_001 + LATE_MS
    passed = step_of(skipping, late_ms)
    assert passed == (0, Progress(next_ms=7_200_000, missed=1))
    one = Schedule(replace(rare, missed=MissedRule.ONE), 0, progress=at)
    sent = step_of(one, late_ms)
    assert sent == (3_600_000, Progress(next_ms=7_200_000, runs=1, last_ms=3_600_000))


def test_the_last_run_ends_it() -> None:
    step = step_of(schedule(runs_max=1), 10_000)
    assert step is not None
    ended = replace(schedule(runs_max=1), progress=step.progress)
    assert ended.has_ended
    assert step_of(ended, 1 << 50) is None
    assert ended.planned(20_000) == ended
