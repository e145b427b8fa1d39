"""What a group has finished beyond its offset, against a set of numbers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.engine.tables.finished_ranges import (
    FinishedRanges,
    FinishedTable,
    Range,
    render_finished,
)

OFFSET = st.integers(0, 40)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), OFFSET, st.integers(1, 6)),
        st.tuples(st.just("drop"), OFFSET, st.just(0)),
    ),
    max_size=30,
)


@given(CHANGES)
def test_ranges_are_the_set_of_what_was_added_and_not_passed(
    changes: list[tuple[str, int, int]],
) -> None:
    ranges, numbers = FinishedRanges(), set[int]()
    for kind, offset, count in changes:
        if kind == "add":
            before = ranges.covers(offset, offset + count)
            assert before == (set(range(offset, offset + count)) <= numbers)
            ranges.add(offset, offset + count)
            numbers |= set(range(offset, offset + count))
        else:
            ranges.drop_below(offset)
            numbers = {number for number in numbers if number >= offset}
    assert [number for number in range(60) if number in ranges] == sorted(numbers)
    for begin in range(50):
        assert ranges.overlaps(begin, begin + 3) == bool(numbers & {begin, begin + 1, begin + 2})
    bounds = [bound for each in ranges for bound in each]
    assert bounds == sorted(set(bounds)), "they neither overlap nor touch"
    assert list(FinishedRanges.from_json([*ranges.as_json()])) == list(ranges)


@pytest.mark.parametrize("flat", [None, [], [0, 1], [0, 2, 1], [0, 1, 2, 2, 3], [0, -1, 2], ["0"]])
def test_what_is_no_list_of_ranges_is_refused(flat: object) -> None:
    with pytest.raises(ValueError, match=r"range|offset"):
        FinishedRanges.from_json(flat)  # type: ignore[arg-type]


def test_the_table_is_read_back_as_it_was_written() -> None:
    table = FinishedTable()
    table.add("g", "t", 0, 4, 6, record=9)
    table.add("g", "t", 0, 8, 9, record=11)
    table.add("%h", "%RETRY%g", 3, 1, 2, record=2)
    again = FinishedTable()
    again.load(json.loads(render_finished(table.taken())))
    assert {key: list(ranges) for key, ranges in again.items()} == {
        ("g", "t", 0): [Range(4, 6), Range(8, 9)],
        ("%h", "%RETRY%g", 3): [Range(1, 2)],
    }
    again.cut(11)
    assert [key for key, _ in again.items()] == [("%h", "%RETRY%g", 3)]


def test_what_is_selected_is_forgotten() -> None:
    table = FinishedTable()
    for group, topic, queue_id in (("g", "t", 0), ("g", "t", 1), ("g", "u", 0), ("h", "t", 0)):
        table.add(group, topic, queue_id, 1, 2, record=0)
    assert table.forget("g", "t", 1)
    assert not table.forget("g", "t", 1)
    assert [key for key, _ in table.items()] == [("g", "t", 0), ("g", "u", 0), ("h", "t", 0)]
    assert table.forget(None, "t", None)
    assert [key for key, _ in table.items()] == [("g", "u", 0)]
