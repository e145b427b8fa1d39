"""Reading: statuses and next offsets, limits, tag filters, runs, time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.reading.tag_filter import TagFilter
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.reading import (
    GetStatus,
    Located,
    QueueBounds,
    ReadLimits,
    select,
)
from aerobee.store.engine.queues.time_search import Boundary
from aerobee.store.format.consume_queue_entry import PRE_BLANK_SIZE, pack_entries, pack_entry
from aerobee.store.format.consume_queue_ext import ext_address
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.record import iterate_records
from tests.support.stores import (
    SMALL,
    append,
    batch_of,
    flush,
    locate,
    open_store,
    read_queue,
    search_by_time,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> MessageStore:
    return open_store(tmp_path, replace(SMALL, segment_bytes=65_536), clock=clock)


def bodies_at(store: MessageStore, runs: list[tuple[int, int]]) -> list[bytes]:
    return [record.body for record in iterate_records(store.log.read(runs))]


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (0, GetStatus.FOUND, 3),
        (2, GetStatus.FOUND, 3),
        (3, GetStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
        (1 << 62, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
def test_each_offset_has_its_status_and_next_offset(
    store: MessageStore, offset: int, status: GetStatus, next_offset: int
) -> None:
    append(store, "Orders", 0, b"a", b"b", b"c")
    located = locate(store, "Orders", 0, offset, max_messages=32, max_bytes=65_536)
    assert (located.status, located.next_offset) == (status, next_offset)
    assert (located.min_offset, located.max_offset) == (0, 3)


def test_unknown_and_empty_queues_have_statuses_of_their_own(store: MessageStore) -> None:
    unknown = locate(store, "Nothing", 0, 5, max_messages=1, max_bytes=1)
    assert (unknown.status, unknown.next_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    store.append(batch_of("Orders", b"half", sys_flag=0x4), queue_id=0)
    store.confirm(store.appended_end)
    empty = locate(store, "Orders", 0, 5, max_messages=1, max_bytes=1)
    assert (empty.status, empty.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    assert store.queues.bounds("Nothing", 0) == QueueBounds(0, 0)
    assert store.queues.names() == []


def test_neighbours_in_the_log_are_read_in_one_run(store: MessageStore) -> None:
    append(store, "Orders", 0, b"a", b"b")
    append(store, "Orders", 0, b"c")
    append(store, "Other", 0, b"-")
    append(store, "Orders", 0, b"d")
    located = locate(store, "Orders", 0, 0, max_messages=32, max_bytes=65_536)
    assert len(located.runs) == 2
    assert located.count == 4
    assert bodies_at(store, located.runs) == [b"a", b"b", b"c", b"d"]
    assert store.log.read_nowait(located.runs) in (None, store.log.read(located.runs))


def test_limits_cut_a_read_but_never_its_first_message(store: MessageStore) -> None:
    append(store, "Orders", 0, b"x" * 500, b"y" * 500, b"z" * 500)
    by_count = locate(store, "Orders", 0, 0, max_messages=2, max_bytes=65_536)
    assert (by_count.count, by_count.next_offset) == (2, 2)
    by_bytes = locate(store, "Orders", 0, 0, max_messages=32, max_bytes=1_400)
    assert (by_bytes.count, by_bytes.next_offset) == (2, 2)
    two = store.appended_end // 3 * 2
    exactly = locate(store, "Orders", 0, 0, max_messages=32, max_bytes=two)
    assert exactly.count == 2
    assert locate(store, "Orders", 0, 0, max_messages=32, max_bytes=two - 1).count == 1
    first = locate(store, "Orders", 0, 1, max_messages=32, max_bytes=10)
    assert (first.count, first.next_offset) == (1, 2)
    assert bodies_at(store, first.runs) == [b"y" * 500]


def test_a_tag_filter_compares_the_low_32_bits(store: MessageStore) -> None:
    for body, tag in [(b"1", "Aa"), (b"2", "other"), (b"3", "BB"), (b"4", ""), (b"5", "茶")]:
        append(store, "Orders", 0, body, tag=tag)
    colliding = TagFilter(["Aa"])
    located = locate(store, "Orders", 0, 0, max_messages=32, max_bytes=65_536, filter=colliding)
    assert bodies_at(store, located.runs) == [b"1", b"3"]
    assert located.next_offset == 5
    negative = TagFilter([TAG_OF_LOWEST_CODE])
    none = locate(store, "Orders", 0, 1, max_messages=32, max_bytes=65_536, filter=negative)
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)


def test_a_filtered_read_looks_at_a_bounded_number_of_entries(tmp_path: Path) -> None:
    store = open_store(tmp_path, replace(SMALL, filter_scan_entries_max=8))
    for number in range(30):
        append(store, "Orders", 0, b"%d" % number, tag="wanted" if number == 20 else "other")
    wanted = TagFilter(["wanted"])
    offsets = [0]
    while True:
        located = locate(
            store, "Orders", 0, offsets[-1], max_messages=4, max_bytes=65_536, filter=wanted
        )
        if located.status is GetStatus.FOUND:
            break
        assert located.status is GetStatus.NO_MATCHED_MESSAGE
        offsets.append(located.next_offset)
    assert offsets == [0, 8, 16]
    assert bodies_at(store, located.runs) == [b"20"]


def test_reads_cross_from_files_into_memory_and_from_file_to_file(tmp_path: Path) -> None:
    store = open_store(tmp_path, replace(SMALL, queue_tail_bytes_max=300, open_files_max=1))
    for number in range(40):
        append(store, "Orders", number % 2, b"%d" % number)
        if number % 17 == 16:
            flush(store)
    for queue_id in (0, 1):
        expected = [b"%d" % number for number in range(queue_id, 40, 2)]
        assert read_queue(store, "Orders", queue_id) == expected
        for start in range(20):
            located = locate(store, "Orders", queue_id, start, max_messages=32, max_bytes=65_536)
            assert bodies_at(store, located.runs) == expected[start:]


def test_bytes_outside_the_log_are_not_found(store: MessageStore) -> None:
    append(store, "Orders", 0, b"a")
    for runs in ([(store.appended_end - 1, 2)], [(1 << 40, 100)], [(-5, 3)]):
        with pytest.raises(MessageNotFound, match="physical offset"):
            store.log.read(runs)
        with pytest.raises(MessageNotFound):
            store.log.read_nowait(runs)


def test_large_reads_come_whole(store: MessageStore) -> None:
    for number in range(50):
        append(store, "Orders", 0, bytes([number]) * 60_000)
    runs = [
        run
        for offset in range(50)
        for run in locate(store, "Orders", 0, offset, max_messages=1, max_bytes=1).runs
    ]
    data = store.log.read(runs)
    assert [record.body[:1] for record in iterate_records(data)] == [bytes([n]) for n in range(50)]
    assert store.log.read_nowait(runs) in (None, data)


# ---------------------------------------------------------------------------------- time


def test_search_by_time_finds_the_first_at_or_after_and_the_last_at_or_before(
    store: MessageStore, clock: ManualClock
) -> None:
    start = clock.now_ms()
    for step in (0, 0, 10, 10, 10, 30):
        clock.step_wall_ms(start + step - clock.now_ms())
        append(store, "Orders", 0, b"m")
        append(store, "Other", 0, b"-")
    flush(store)
    clock.step_wall_ms(10)
    append(store, "Orders", 0, b"tail")
    lower = {-5: 0, 0: 0, 1: 2, 10: 2, 11: 5, 30: 5, 31: 6, 40: 6, 41: 7}
    upper = {-5: 0, 0: 1, 1: 1, 10: 4, 11: 4, 30: 5, 31: 5, 40: 6, 41: 6}
    for step, offset in lower.items():
        assert search_by_time(store, "Orders", 0, start + step, Boundary.LOWER) == offset
    for step, offset in upper.items():
        assert search_by_time(store, "Orders", 0, start + step, Boundary.UPPER) == offset
    assert store.reads.plan_time_search("Nothing", 0) is None


def test_a_planned_search_is_not_disturbed_by_what_comes_later(
    store: MessageStore, clock: ManualClock
) -> None:
    append(store, "Orders", 0, b"a")
    search = store.reads.plan_time_search("Orders", 0)
    assert search is not None
    clock.advance_ms(10_000)
    append(store, "Orders", 0, b"b")
    flush(store)
    assert search.run(clock.now_ms(), Boundary.LOWER) == 1
    assert search_by_time(store, "Orders", 0, clock.now_ms()) == 1


# ---------------------------------------------------------------------------------- pure


TAG_OF_LOWEST_CODE = "polygenelubricants"
LOWEST_CODE = -(1 << 31)

sizes_lists = st.lists(st.integers(1, 500), min_size=1, max_size=60)


@given(
    sizes=sizes_lists,
    gaps=st.lists(st.sampled_from([0, 0, 0, 40]), min_size=60, max_size=60),
    codes=st.lists(st.sampled_from([1, 2, LOWEST_CODE, (5 << 32) + 1]), min_size=60, max_size=60),
    wanted=st.none() | st.frozensets(st.sampled_from(["\x01", "\x02", TAG_OF_LOWEST_CODE])),
    messages_max=st.integers(1, 70),
    bytes_max=st.integers(0, 4_000),
    removed=st.integers(0, 3_000),
)
def test_select_agrees_with_a_loop(
    sizes: list[int],
    gaps: list[int],
    codes: list[int],
    wanted: frozenset[str] | None,
    messages_max: int,
    bytes_max: int,
    removed: int,
) -> None:
    positions = []
    at = 0
    for size, gap in zip(sizes, gaps, strict=False):
        positions.append(at)
        at += size + gap
    codes = codes[: len(sizes)]
    located = select(
        pack_entries(positions, sizes, codes),
        offset=100,
        bounds=QueueBounds(0, 1_000),
        limits=ReadLimits(messages_max, bytes_max),
        log_min_offset=removed,
        next_file_offset=777,
        filter=None if wanted is None else TagFilter(wanted),
    )
    wanted_codes = None if wanted is None else {java_string_hash(tag) for tag in wanted}
    chosen: list[tuple[int, int]] = []
    taken = 0
    next_offset = 100
    for position, size, code in zip(positions, sizes, codes, strict=True):
        low = (code + (1 << 31)) % (1 << 32) - (1 << 31)
        passes = position >= removed and (wanted_codes is None or low in wanted_codes)
        if passes:
            if chosen and (len(chosen) == messages_max or taken + size > bytes_max):
                next_offset = next(
                    100 + index + 1
                    for index, start in enumerate(positions)
                    if start == chosen[-1][0]
                )
                break
            chosen.append((position, size))
            taken += size
        next_offset += 1
    assert located.next_offset == next_offset
    assert located.count == len(chosen)
    covered = [byte for start, size in located.runs for byte in range(start, start + size)]
    assert covered == [byte for start, size in chosen for byte in range(start, start + size)]
    if not chosen:
        some_removed = any(position < removed for position in positions)
        assert located.status is (
            GetStatus.MESSAGE_WAS_REMOVING if some_removed else GetStatus.NO_MATCHED_MESSAGE
        )


ANY_ENTRIES = st.lists(
    st.tuples(st.integers(-1, 9), st.sampled_from([0, 1, 2, 3, PRE_BLANK_SIZE]), st.just(0)),
    max_size=10,
)


@given(ANY_ENTRIES, st.integers(1, 4), st.integers(1, 6), st.integers(0, 9))
def test_few_entries_give_what_many_would(
    entries: list[tuple[int, int, int]], messages_max: int, bytes_max: int, removed: int
) -> None:
    """Whatever damage has made of them."""

    def selected(loop_entries_max: int) -> tuple[Located, list[int], list[int]]:
        located = select(
            b"".join(pack_entry(*entry) for entry in entries),
            offset=3,
            bounds=QueueBounds(0, 20),
            limits=ReadLimits(messages_max, bytes_max),
            log_min_offset=removed,
            next_file_offset=10,
            filter=None,
            loop_entries_max=loop_entries_max,
        )
        return located, located.positions.tolist(), located.sizes.tolist()

    assert selected(10) == selected(0)


@pytest.mark.parametrize("blank", [(0, 0x7FFF_FFFF, 0), (0, 0, 0), (-1, 10, 0)])
def test_a_blank_or_invalid_entry_sends_the_reader_to_the_next_file(
    blank: tuple[int, int, int],
) -> None:
    positions, sizes, codes = zip(blank, (50, 100, 0), strict=True)
    located = select(
        pack_entries(positions, sizes, codes),
        offset=3,
        bounds=QueueBounds(0, 20),
        limits=ReadLimits(32, 1_000),
        log_min_offset=0,
        next_file_offset=10,
        filter=None,
    )
    assert (located.status, located.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 10)


def test_an_entry_with_an_extension_passes_every_filter() -> None:
    """Its tags code lies elsewhere: no message may be dropped for that."""
    codes = [ext_address(28 * number) for number in range(3)] + [-(1 << 31), 5]
    located = select(
        pack_entries([0, 100, 200, 300, 400], [100] * 5, codes),
        offset=0,
        bounds=QueueBounds(0, 5),
        limits=ReadLimits(32, 1_000),
        log_min_offset=0,
        next_file_offset=10,
        filter=TagFilter(["\x05"]),
    )
    assert located.runs == [(0, 300), (400, 100)]
