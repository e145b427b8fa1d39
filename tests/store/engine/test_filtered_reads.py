"""Reads with a filter: what an exact one keeps from the reader, and what the other leaves to it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.broker.reading.sql_filter import JUDGED_MAX, SqlFilter
from aerobee.broker.reading.tag_filter import TagFilter
from aerobee.domain.sql_filter.expression import SqlExpression
from aerobee.store.engine.errors import EntryMismatch
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.queues.reading import GetStatus
from aerobee.store.engine.queues.surveys import Counted
from aerobee.store.engine.read_work import ReadOutcome, ReadWork
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.consume_queue_ext import ext_address
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import Record, iterate_records
from aerobee.store.format.record_layout import RecordCorrupt
from tests.support.cold_disk import ColdDisk
from tests.support.refusals import ANSWERED_STEP_S_MAX
from tests.support.stores import SMALL, append, batch_with, flush, open_store

# "Aa" and "BB" have the same hash.
SENT = [(b"1", "Aa"), (b"2", "BB"), (b"3", "other"), (b"4", ""), (b"5", "Aa"), (b"6", "BB")]


def filled(root: Path, *, is_cold: bool) -> MessageStore:
    disk = ColdDisk(root, lambda _: is_cold)
    config = replace(SMALL, segment_bytes=1_024)
    store = open_store(disk, config)
    for body, tag in SENT:
        append(store, "Orders", 0, body + bytes(300), tag=tag)
    flush(store)
    store.close()
    return open_store(disk, config)


def read(store: MessageStore, wanted: QueueRead, *, is_cold: bool) -> ReadOutcome:
    found = store.reads.read(wanted)
    assert isinstance(found, ReadWork) is is_cold
    if isinstance(found, ReadWork):
        found.run()
        found = store.reads.finish(wanted, found)
    return found


def bodies_of(outcome: ReadOutcome) -> list[bytes]:
    return [record.body[:1] for record in iterate_records(outcome.records)]


@pytest.mark.parametrize("is_cold", [False, True])
def test_only_an_exact_filter_tells_tags_with_one_hash_apart(tmp_path: Path, is_cold: bool) -> None:
    store = filled(tmp_path, is_cold=is_cold)
    wanted = QueueRead("Orders", 0, 0, 1 << 20, 32, TagFilter(["Aa"]))
    outcome = read(store, wanted, is_cold=is_cold)
    assert bodies_of(outcome) == [b"1", b"2", b"5", b"6"]
    exact = read(store, replace(wanted, filter=TagFilter(["Aa"], is_exact=True)), is_cold=is_cold)
    assert bodies_of(exact) == [b"1", b"5"]
    located = exact.located
    assert (located.status, located.next_offset, located.count) == (GetStatus.FOUND, 6, 2)
    assert located.sizes.sum() == len(exact.records)
    assert exact.read_bytes == outcome.read_bytes == len(outcome.records)


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_read_of_which_an_exact_filter_leaves_nothing_goes_on_after_it(
    tmp_path: Path, is_cold: bool
) -> None:
    store = filled(tmp_path, is_cold=is_cold)
    wanted = QueueRead("Orders", 0, 1, 1 << 20, 1, TagFilter(["Aa"], is_exact=True), "group")
    outcome = read(store, wanted, is_cold=is_cold)
    assert (outcome.located.status, outcome.located.count, outcome.records) == (
        GetStatus.NO_MATCHED_MESSAGE,
        0,
        b"",
    )
    assert outcome.located.next_offset == 2
    assert store.reads.is_behind(wanted) is is_cold  # what it read counts all the same
    rest = read(store, replace(wanted, offset=2), is_cold=is_cold)
    assert bodies_of(rest) == [b"5"]


def test_a_record_that_an_exact_filter_cannot_read_is_damage_and_no_mismatch(
    tmp_path: Path,
) -> None:
    class Unreadable(TagFilter):
        def verdict(self, record: object) -> tuple[bool, int]:
            raise RecordCorrupt(0, "properties exceed the record")

    store = filled(tmp_path, is_cold=False)
    with pytest.raises(EntryMismatch, match="log offset 0"):
        store.reads.read(QueueRead("Orders", 0, 0, 1 << 20, 32, Unreadable(["Aa"], is_exact=True)))


def with_numbers(root: Path, count: int, *, is_cold: bool) -> MessageStore:
    """A queue of messages whose property `a` is their offset."""
    disk = ColdDisk(root, lambda _: is_cold)
    config = replace(SMALL, segment_bytes=8_192)
    store = open_store(disk, config)
    for begin in range(0, count, 50):
        numbers = range(begin, min(begin + 50, count))
        properties = [encode_properties({"b": "x", "a": str(number)}) for number in numbers]
        store.append(batch_with("Orders", properties), queue_id=0)
        store.confirm(store.appended_end)
        flush(store)
    store.close()
    return open_store(disk, config)


def sql_filter(text: str) -> SqlFilter:
    return SqlFilter(SqlExpression(text))


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("max_messages", [1, 3, 1_000])
def test_reads_by_an_expression_give_each_match_once_and_judge_each_record_once(
    tmp_path: Path, is_cold: bool, max_messages: int
) -> None:
    store = with_numbers(tmp_path, 300, is_cold=is_cold)
    passing = sql_filter("b = 'x' AND a > 100 AND a NOT BETWEEN 110 AND 280")
    offset, found, judged, size = 0, [], 0, 0
    while offset < 300:
        wanted = QueueRead("Orders", 0, offset, 10_000, max_messages, passing, "g")
        outcome = read(store, wanted, is_cold=is_cold)
        located = outcome.located
        assert located.count <= max_messages
        assert located.next_offset > offset
        found += [record.queue_offset for record in iterate_records(outcome.records)]
        assert located.offsets.tolist() == found[len(found) - located.count :]
        offset = located.next_offset
        judged += outcome.judged
        size += outcome.read_bytes
    assert found == [*range(101, 110), *range(281, 300)]
    assert judged == 300
    everything = read(store, QueueRead("Orders", 0, 0, 1 << 20, 300), is_cold=is_cold)
    assert size == everything.read_bytes  # what lies beyond a read's end is the next one's


@pytest.mark.parametrize(
    ("text", "judged"),
    [("a > 5000", JUDGED_MAX), (" OR ".join(["a > 5000"] * 333), 5)],
    ids=["short", "long"],
)
def test_a_read_judges_a_bounded_number_of_records(tmp_path: Path, text: str, judged: int) -> None:
    store = with_numbers(tmp_path, JUDGED_MAX + 50, is_cold=False)
    wanted = QueueRead("Orders", 0, 0, 1 << 22, 65_536, sql_filter(text))
    outcome = read(store, wanted, is_cold=False)
    assert outcome.judged == outcome.located.next_offset == judged
    assert (outcome.located.status, outcome.records) == (GetStatus.NO_MATCHED_MESSAGE, b"")


def test_records_are_judged_by_few_or_by_many_properties_alike(tmp_path: Path) -> None:
    store = with_numbers(tmp_path, 20, is_cold=False)
    outcome = read(store, QueueRead("Orders", 0, 0, 1 << 20, 32), is_cold=False)
    records = list(iterate_records(outcome.records))
    few = sql_filter("a > 7")
    many = sql_filter("a > 7 AND " + " AND ".join(f"n{each} IS NULL" for each in range(30)))

    def matching(passing: SqlFilter, records: list[Record]) -> list[int]:
        return [each.queue_offset for each in records if passing.verdict(each)[0]]

    assert matching(few, records) == matching(many, records) == list(range(8, 20))
    views = list(iterate_records(memoryview(outcome.records)))
    assert matching(few, views) == list(range(8, 20))


@pytest.mark.parametrize("is_cold", [False, True])
def test_where_tags_codes_lie_in_an_extension_the_records_decide(
    tmp_path: Path, is_cold: bool
) -> None:
    """As a store has it that Apache wrote with `enableConsumeQueueExt`."""
    filled(tmp_path, is_cold=False).close()
    (queue_file,) = (tmp_path / "consumequeue/Orders/0").iterdir()
    data = bytearray(queue_file.read_bytes())
    for number in range(4):  # the last two messages came when it was switched off
        at = number * ENTRY_SIZE + 12
        data[at : at + 8] = ext_address(28 * number).to_bytes(8, "big", signed=True)
    queue_file.write_bytes(data)
    disk = ColdDisk(tmp_path, lambda _: is_cold)
    store = open_store(disk, replace(SMALL, segment_bytes=1_024))
    wanted = QueueRead("Orders", 0, 0, 1 << 20, 32, TagFilter(["Aa"]))
    assert bodies_of(read(store, wanted, is_cold=is_cold)) == [b"1", b"5"]
    assert bodies_of(read(store, replace(wanted, offset=4), is_cold=is_cold)) == [b"5", b"6"]
    by_sql = replace(wanted, filter=sql_filter("TAGS IN ('Aa', 'other')"))
    assert bodies_of(read(store, by_sql, is_cold=is_cold)) == [b"1", b"3", b"5"]
    passing = TagFilter(["Aa"])
    work = store.surveys.count_matching("Orders", 0, 0, 6, passing)
    assert work is not None
    counted = work.run()
    assert isinstance(counted, Counted)
    assert (counted.matching, len(counted.positions)) == (2, 4)
    judged = store.surveys.judge("Orders", 0, passing, counted.positions, counted.sizes)
    assert judged.run() == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "properties",
    [{"a": "1" * 32_000}, {"a": "0" * 32_000}, {f"p{each}": "v" for each in range(4_000)}],
    ids=["a long number", "many zeros", "many properties"],
)
def test_no_read_judges_for_longer_than_a_request_may_take(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    config = replace(SMALL, segment_bytes=16 << 20)
    store = open_store(tmp_path, config)
    for _ in range(130):
        store.append(batch_with("Orders", [encode_properties(properties)]), queue_id=0)
        store.confirm(store.appended_end)
    for text in (
        " AND ".join(["a <> 5"] * 300),
        " OR ".join(["a < 5.5"] * 300),
        "a > 5.5 OR a > 7",
        " OR ".join(["a CONTAINS '" + "0" * 1_000 + "1'"] * 15),
        " OR ".join(f"n{each} > 5" for each in range(64)),
        " OR ".join(f"n{each} > 5" for each in range(8)),
        "a IN ('" + "', '".join(map(str, range(2_000))) + "')",
    ):
        passing = sql_filter(text)
        began_s = time.thread_time()
        outcome = store.reads.read(QueueRead("Orders", 0, 0, 4 << 20, 65_536, passing))
        assert time.thread_time() - began_s < ANSWERED_STEP_S_MAX, text[:40]
        assert isinstance(outcome, ReadOutcome)
        assert outcome.judged


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_read_ends_once_its_records_have_cost_enough_however_few_they_are(
    tmp_path: Path, is_cold: bool
) -> None:
    disk = ColdDisk(tmp_path, lambda _: is_cold)
    config = replace(SMALL, segment_bytes=1 << 20)
    store = open_store(disk, config)
    for _ in range(30):
        properties = [encode_properties({"a": "y" * 8_000})]
        store.append(batch_with("Orders", properties), queue_id=0)
    store.confirm(store.appended_end)
    flush(store)
    store.close()
    store = open_store(disk, config)
    dear = sql_filter(" OR ".join(f"a CONTAINS 'yyyy{number:02d}'" for number in range(24)))
    wanted = QueueRead("Orders", 0, 0, 1 << 20, 32, dear, "g")
    outcome = read(store, wanted, is_cold=is_cold)
    # 24 searches of 8,000 characters are about 3,000 steps.
    assert outcome.judged == outcome.located.next_offset == 2
    rest = read(store, replace(wanted, offset=2), is_cold=is_cold)
    assert (rest.judged, rest.located.next_offset) == (2, 4)
