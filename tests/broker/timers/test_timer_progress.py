"""Which messages are done, as the journal says it, in whatever parts and how often it is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.journal.records import UNKNOWN_IMAGE, ImageEnd, read_body
from aerobee.broker.timers.acts import (
    ActsUnknown,
    Destination,
    all_acts,
    missing_acts,
    producer_runs,
)
from aerobee.broker.timers.entries import (
    TIMER_QUEUE,
    Acted,
    Floor,
    GivenUp,
    Intent,
    IntentKind,
    Marked,
    Removed,
    Source,
    TimerEntry,
    decode_entry,
    entry_text,
)
from aerobee.broker.timers.frontier import Frontier, Region
from aerobee.broker.timers.pending import FIRST, Key, make_rows
from aerobee.broker.timers.progress import TimerProgress
from aerobee.broker.timers.state import TimerJournalState, file_reader
from aerobee.store.engine.producers.producer_windows import ProducerWindows
from aerobee.store.format.producer_number import BROKER_PRODUCER_IDS, PRODUCER_ID_END, SEQUENCE_END

SMALL = st.integers(0, 12)
KEYS = st.builds(Key, SMALL, SMALL)
REGIONS = st.builds(Region, st.one_of(st.just(FIRST), KEYS), KEYS, SMALL)
EVERY_SOURCE = [
    Source(queue, offset, (5 * offset + queue) % 13) for queue in range(3) for offset in range(13)
]
"""A message is due when it is: one time for each offset."""
SOURCES = st.sampled_from(EVERY_SOURCE)
MARKS = st.lists(st.one_of(REGIONS, st.builds(Floor, st.integers(0, 2), SMALL)), max_size=3)
SOURCE_TUPLES = st.lists(SOURCES, max_size=4, unique=True).map(tuple)


@st.composite
def journals(draw: st.DrawFn) -> list[TimerEntry]:
    """Entries as masters write them: the numbers of intents rise without gaps."""
    entries: list[TimerEntry] = []
    number = 0
    for kind in draw(st.lists(st.sampled_from("iiiargm"), max_size=12)):
        sources, marks = draw(SOURCE_TUPLES), tuple(draw(MARKS))
        if kind == "i":
            intent_kind = draw(st.sampled_from(IntentKind))
            new_due_ms = draw(SMALL) if intent_kind is IntentKind.RETIME else 0
            entries.append(Intent(intent_kind, number, sources, marks, new_due_ms, draw(SMALL)))
            number += len(sources)
        elif kind == "a":
            entries.append(Acted(number))
        elif kind == "g" and number:
            entries.append(GivenUp(number - 1, "damaged", draw(SMALL)))
        elif kind == "r":
            entries.append(Removed(sources, "recalled", draw(SMALL)))
        else:
            entries.append(Marked(marks))
    return entries


def after(entries: list[TimerEntry]) -> TimerProgress:
    progress = TimerProgress()
    progress.apply(entries)
    return progress


def facts(progress: TimerProgress) -> object:
    """All that anybody can ask."""
    done = [progress.is_done(source) for source in EVERY_SOURCE]
    numbers = progress.next_number, progress.acted_number
    return done, numbers, progress.open, progress.given_up


@given(REGIONS, st.lists(REGIONS, max_size=6))
def test_a_frontier_is_an_end_for_each_key_that_only_rises(
    region: Region, regions: list[Region]
) -> None:
    frontier = Frontier()
    for low, high, end in regions:
        frontier = frontier.raised(low, high, end)
    raised = frontier.raised(*region)
    for due in range(13):
        for offset in range(13):
            key = Key(due, offset)
            before = frontier.end_at(key)
            is_inside = region.low < key <= region.high
            assert raised.end_at(key) == (max(before, region.end) if is_inside else before)
    for step, following in zip(raised.steps, raised.steps[1:], strict=False):
        assert step.high < following.high
        assert step.end != following.end


@given(journals())
def test_entries_are_what_they_were_after_the_journal(entries: list[TimerEntry]) -> None:
    assert [decode_entry(json.loads(entry_text(entry))) for entry in entries] == entries


REMOVED: dict[str, object] = {"kind": "removed", "timestamp": 1, "reason": ""}


@pytest.mark.parametrize(
    "value",
    [
        REMOVED | {"sources": [{"queue": 0, "offsets": [1], "due": []}]},
        REMOVED | {"sources": [{"queue": 0, "offsets": [1, -2], "due": [1, 1]}]},
        REMOVED | {"sources": [{"queue": 0, "offsets": ["1"], "due": [1]}]},
        {"kind": "move"},
        {"kind": "move", "timestamp": 1, "first": -1, "sources": []},
        {"kind": "move", "timestamp": 1, "first": 0, "sources": [{"queue": 0}]},
        {"kind": "marks", "marks": [[1, 2, 3]]},
        {"kind": "marks", "marks": [[1, 2.5]]},
        {"kind": "acted", "through": True},
    ],
)
def test_what_is_no_entry_is_refused(value: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        decode_entry(value)


def test_the_documented_example_is_what_the_page_says() -> None:
    page = (Path(__file__).parents[3] / "docs/internals/timer-journal.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    entries = read_body(example.encode(), decode_entry)
    progress = TimerProgress()
    progress.apply(cast("list[TimerEntry]", entries))
    assert len(entries) == 7
    assert progress.given_up == {7006}
    assert [progress.is_done(Source(0, at, 1732212060000)) for at in (530, 531, 529)] == [
        True,
        False,
        True,
    ]
    assert progress.is_done(Source(3, 88, 1732212059999))


def test_an_entry_of_a_later_version_is_passed_over() -> None:
    assert decode_entry({"kind": "cron"}) is None


@given(journals(), st.data())
def test_records_that_are_applied_again_change_nothing(
    entries: list[TimerEntry], data: st.DataObject
) -> None:
    progress = after(entries)
    again = progress.copy()
    again.apply(entries[data.draw(st.integers(0, len(entries))) :])
    assert facts(again) == facts(progress)


@given(journals(), st.data())
def test_an_image_says_the_whole_state_to_those_who_know_any_part_of_it(
    entries: list[TimerEntry], data: st.DataObject
) -> None:
    progress = after(entries)
    known = after(entries[: data.draw(st.integers(0, len(entries)))])
    known.apply(progress.image())
    assert facts(known) == facts(progress)


@pytest.mark.thorough
@given(journals(), journals())
def test_nothing_is_ever_undone(entries: list[TimerEntry], more: list[TimerEntry]) -> None:
    progress = after(entries)
    done = [source for source in EVERY_SOURCE if progress.is_done(source)]
    progress.apply(more)
    assert all(progress.is_done(source) for source in done)


@given(journals())
def test_many_are_judged_as_each_one_is(entries: list[TimerEntry]) -> None:
    progress = after(entries)
    of_timers = [source for source in EVERY_SOURCE if source.queue == TIMER_QUEUE]
    offsets = [source.offset for source in of_timers]
    rows = make_rows([source.due_ms for source in of_timers], offsets, offsets, offsets)
    pending = progress.view().pending(rows)
    assert pending.tolist() == [not progress.is_done(source) for source in of_timers]


def test_what_was_done_out_of_turn_is_forgotten_as_the_frontier_passes() -> None:
    progress = TimerProgress()
    for first in range(0, 100_000, 100):
        sources = tuple(Source(TIMER_QUEUE, at, at) for at in range(first, first + 100))
        progress.apply([Removed(sources), Marked((Region(FIRST, Key(first, 0), first + 100),))])
    assert progress.loose_count <= 2_000
    progress.apply([Marked((Floor(TIMER_QUEUE, 100_000),))])
    assert all(progress.is_done(Source(TIMER_QUEUE, at, at)) for at in range(0, 100_000, 999))


# ---------------------------------------------------------------------------------- the state


def test_a_replica_that_missed_records_knows_everything_after_a_whole_image() -> None:
    state = TimerJournalState()
    state.apply([Removed((Source(TIMER_QUEUE, 1, 5),))], 0)
    assert (state.is_whole, state.image_position) == (True, 0)
    state.skip_to(10)
    assert (state.is_whole, state.image_position) == (False, UNKNOWN_IMAGE)
    state.apply([ImageEnd(100, 8, 0)], 10)  # began before the gap
    assert not state.is_whole
    state.apply([Removed((Source(TIMER_QUEUE, 2, 5),)), ImageEnd(900, 11, 0)], 11)
    assert (state.is_whole, state.image_position, state.next_offset) == (True, 900, 12)
    assert state.progress.is_done(Source(TIMER_QUEUE, 1, 5))


@given(journals())
def test_the_file_of_the_state_says_the_same(entries: list[TimerEntry]) -> None:
    state = TimerJournalState()
    state.apply(entries, 0)
    state.skip_to(7)
    again = file_reader(journal_end=7)(state.snapshot()())
    assert facts(again.progress) == facts(state.progress)
    assert (again.next_offset, again.is_whole) == (7, False)


def test_a_file_that_is_ahead_of_the_journal_or_damaged_does_not_count() -> None:
    state = TimerJournalState()
    state.skip_to(7)
    data = state.snapshot()()
    with pytest.raises(ValueError, match="ahead"):
        file_reader(journal_end=6)(data)
    for place in range(0, len(data), 3):
        damaged = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        with pytest.raises(ValueError):  # noqa: PT011
            file_reader(journal_end=7)(damaged)


# ---------------------------------------------------------------------------------- acts


def test_numbers_go_on_with_the_next_producer_when_its_sequences_end() -> None:
    runs = list(producer_runs(SEQUENCE_END - 2, 5))
    assert [tuple(run) for run in runs] == [
        (BROKER_PRODUCER_IDS, SEQUENCE_END - 2, 2),
        (BROKER_PRODUCER_IDS + 1, 0, 3),
    ]
    (last,) = producer_runs((1 << 48) - 1, 1)
    assert last.producer_id == PRODUCER_ID_END - 1


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.data())
def test_a_new_master_does_exactly_the_acts_that_are_not_stored(
    queues: list[int], data: st.DataObject
) -> None:
    first = data.draw(st.sampled_from([0, 7, SEQUENCE_END - 3]))
    stored = data.draw(st.integers(0, len(queues)))
    sources = tuple(Source(TIMER_QUEUE, at, 1) for at in range(len(queues)))
    intent = Intent(IntentKind.MOVE, first, sources)
    acts = all_acts(intent, [Destination("flights", queue) for queue in queues])
    windows = ProducerWindows()
    ends = [0, 0, 0]
    for act in acts[:stored]:
        queue = act.destination.queue_id
        windows.appended("flights", queue, list(producer_runs(act.number, 1)), ends[queue], 1)
        ends[queue] += 1
    given_up = {acts[-1].number} if data.draw(st.booleans()) else set()
    missing = missing_acts(acts, given_up, windows.standing)
    assert missing == [act for act in acts[stored:] if act.number not in given_up]


def test_an_intent_that_the_windows_do_not_reach_back_to_is_not_guessed_at() -> None:
    windows = ProducerWindows()
    for number in range(0, 1_000, 2):  # each an interval of its own
        windows.appended("flights", 0, list(producer_runs(number, 1)), number, 1)
    intent = Intent(IntentKind.MOVE, 1, (Source(TIMER_QUEUE, 0, 1),))
    with pytest.raises(ActsUnknown):
        missing_acts(all_acts(intent, [Destination("flights", 0)]), (), windows.standing)


def test_one_intent_is_open_until_the_next_one_or_until_it_is_said() -> None:
    first = Intent(IntentKind.MOVE, 0, (Source(0, 1, 1), Source(0, 2, 2)))
    second = Intent(IntentKind.ROLL, 2, (Source(0, 3, 3),))
    progress = after([first, GivenUp(1, "damaged")])
    assert (progress.open, progress.given_up) == (first, {1})
    progress.apply([second])
    assert (progress.open, progress.given_up, progress.acted_number) == (second, set(), 2)
    progress.apply([Acted(3)])
    assert (progress.open, progress.next_number) == (None, 3)
    assert np.asarray([progress.is_done(Source(0, at, at)) for at in (1, 2, 3)]).all()
