"""Reads with a filter: what an exact one keeps from the reader, and what the other leaves to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.broker.reading.tag_filter import TagFilter
from aerobee.broker.store.errors import EntryMismatch
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.store.queue_reads import QueueRead
from aerobee.broker.store.queues.reading import GetStatus
from aerobee.broker.store.read_work import ReadOutcome, ReadWork
from aerobee.store_format.record import iterate_records
from aerobee.store_format.record_layout import RecordCorrupt
from tests.support.cold_disk import ColdDisk
from tests.support.stores import SMALL, append, flush, open_store

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
        def matches(self, record: object) -> bool:
            raise RecordCorrupt(0, "properties exceed the record")

    store = filled(tmp_path, is_cold=False)
    with pytest.raises(EntryMismatch, match="log offset 0"):
        store.reads.read(QueueRead("Orders", 0, 0, 1 << 20, 32, Unreadable(["Aa"], is_exact=True)))
