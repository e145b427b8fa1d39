"""The journal of POP as bytes: the page's example, and that what was encoded is read as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.records import body_of, read_body
from aerobee.broker.pop.entries import (
    NO_LANE,
    Begun,
    Ended,
    Finished,
    Flight,
    Invisible,
    InvisibleKind,
    PopEntry,
    QueueImage,
    decode_entry,
    entry_text,
    joined,
    ranges_of,
)
from aerobee.broker.pop.journal_state import (
    PopJournalState,
    apply_entries,
    file_reader,
    image_of,
)
from aerobee.broker.pop.standing import IMAGE_FLIGHTS, IMAGE_RANGES, Standing
from aerobee.store.engine.tables.finished_ranges import Range

PAGE = Path(__file__).resolve().parents[3] / "docs" / "internals" / "pop-journal.md"
KEY = GroupQueue("billing", "Orders", 3)

keys = st.builds(GroupQueue, st.text(), st.text(), st.integers(0, 9))
times = st.integers(0, 1 << 50)
serials = st.integers(0, 1 << 62)
offsets = st.lists(st.integers(0, 500), min_size=1, max_size=9, unique=True).map(sorted)


@st.composite
def invisibles(draw: st.DrawFn) -> Invisible:
    found = tuple(draw(offsets))
    holder = draw(st.sampled_from(("", "ada@1")))

    def each(numbers: st.SearchStrategy[int]) -> tuple[int, ...]:
        one_each = st.lists(numbers, min_size=len(found), max_size=len(found))
        return draw(st.one_of(st.just(()), one_each.map(tuple)))

    return Invisible(
        draw(st.sampled_from(InvisibleKind)),
        draw(keys),
        found,
        draw(serials),
        draw(times),
        0 if holder else draw(times),
        holder,
        each(st.integers(0, 99)),
        each(st.integers(0, (1 << 32) - 1)),
    )


entries = st.one_of(
    invisibles(),
    st.builds(Begun, keys, st.integers(0, 99), serials, times),
    st.builds(Ended, keys, times),
    st.builds(Finished, keys, offsets.map(ranges_of), times),
)


@given(st.lists(entries, max_size=5))
def test_what_was_encoded_is_read_as_it_was(written: list[PopEntry]) -> None:
    assert read_body(body_of(map(entry_text, written)), decode_entry) == written


def test_the_example_of_the_page_is_read() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    read = read_body(example.encode(), decode_entry)
    assert len(read) == len(json.loads(example))
    queues: dict[GroupQueue, Standing] = {}
    apply_entries(queues, read)  # type: ignore[arg-type]
    (standing,) = queues.values()
    assert (standing.committed, list(standing.finished)) == (1208, [Range(1210, 1211)])
    assert standing.flights[1209] == Flight(
        1818653122560049157, 2, 1734423200123, 1734423205123, "", NO_LANE, True
    )
    assert standing.flights[1211].holder == "10.0.0.7@4711"


@pytest.mark.parametrize(
    "broken",
    [
        '{"kind":"finished","messages":[3,3]}',
        '{"kind":"finished","messages":[3]}',
        '{"kind":"finished","messages":[-1,3]}',
        '{"kind":"taken","messages":[0,200000],"serial":1,"visible":5}',
        '{"kind":"taken","messages":[0,2],"serial":1,"visible":5,"attempts":[1]}',
        '{"kind":"taken","messages":[0,2],"serial":1}',
        '{"kind":"begun","offset":"0","serial":1}',
        '{"kind":"image","offset":0,"serial":1,"finished":[],"flights":[[1,2]]}',
    ],
)
def test_what_is_no_entry_is_refused(broken: str) -> None:
    value = {"group": "g", "topic": "t", "queueId": 0, "timestamp": 5, **json.loads(broken)}
    with pytest.raises(ValueError, match="not a record of the journal"):
        read_body(json.dumps([value]).encode(), decode_entry)


def test_a_kind_that_is_not_known_is_passed_over() -> None:
    assert read_body(b'[{"kind":"postponed"}]', decode_entry) == []


def test_ranges_that_touch_are_one() -> None:
    assert ranges_of([1, 2, 5, 6, 9]) == (Range(1, 3), Range(5, 7), Range(9, 10))
    assert joined([Range(1, 2), Range(2, 5), Range(6, 7)]) == (Range(1, 5), Range(6, 7))


def large_queue() -> Standing:
    """More of everything than one entry of an image takes."""
    standing = Standing(5, 77)
    for index in range(3 * IMAGE_RANGES):
        standing.finish(10 + 2 * index, 11 + 2 * index)
    for index in range(3 * IMAGE_FLIGHTS):
        standing.flights[11 + 2 * index] = Flight(index, 1, 5, 9, "", NO_LANE, index % 2 == 0)
    return standing


def test_an_image_in_parts_says_everything() -> None:
    queues = {KEY: large_queue()}
    parts = list(image_of(queues, now_ms=5))
    assert len(parts) == 3
    assert max(len(entry_text(part)) for part in parts) < 64 * 1024
    copies: dict[GroupQueue, Standing] = {}
    apply_entries(copies, parts)
    assert copies == queues


def test_an_image_changes_nothing_for_a_reader_that_knows_everything() -> None:
    queues = {KEY: large_queue()}
    apply_entries(queues, list(image_of({KEY: large_queue()}, now_ms=5)))
    assert queues == {KEY: large_queue()}


def test_entries_of_a_queue_wait_for_its_image() -> None:
    state = PopJournalState()
    state.skip_to(7)
    state.apply([Finished(KEY, (Range(0, 3),), 5)], 7)
    assert state.standing(KEY) is None
    assert not state.is_whole
    state.apply([QueueImage(KEY, 3, 9, (), (), 5)], 8)
    standing = state.standing(KEY)
    assert standing is not None
    assert standing.committed == 3


def test_the_file_says_what_the_journal_said() -> None:
    state = PopJournalState({KEY: large_queue()})
    state.apply([Begun(GroupQueue("g", "t", 0), 4, 1, 5)], 0)
    data = state.snapshot()()
    read = file_reader(journal_end=1)(data)
    assert (read.copies(), read.next_offset) == (state.copies(), 1)
    with pytest.raises(ValueError, match="ahead of its journal"):
        file_reader(journal_end=0)(data)
    with pytest.raises(ValueError, match="damaged"):
        file_reader(journal_end=1)(data.replace(b"finished", b"Finished"))
