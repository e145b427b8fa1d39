"""Where queues begin, as the offset journal has it."""

from __future__ import annotations

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.offsets.entries import OffsetEntry, OffsetsRemoved, TopicEnded
from aerobee.broker.offsets.merge import Change, ChangeKind
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.domain.names import KEPT_FROM_GROUP
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable

QUEUE = GroupQueue(KEPT_FROM_GROUP, "t", 1)


class Told:
    """What the store was told last, by queue."""

    def __init__(self) -> None:
        self.begins: dict[tuple[str, int], int] = {}

    def __call__(self, topic: str, queue_id: int, offset: int) -> None:
        self.begins[topic, queue_id] = offset


def kept(offset: int, kind: ChangeKind = ChangeKind.COMMIT) -> OffsetEntry:
    return OffsetEntry(QUEUE, Change(kind, offset), 1)


def test_it_only_rises_and_is_told_again_after_a_restart() -> None:
    told, table = Told(), ConsumerOffsetTable()
    state = OffsetJournalState(table, journal_end=0)
    state.on_kept_from(told)
    for number, offset in enumerate((7, 5, 9)):
        state.apply([kept(offset)], number)
        assert told.begins == {("t", 1): max(7, offset)}
    again, stored = Told(), ConsumerOffsetTable.load(table.snapshot_bytes(1))
    OffsetJournalState(stored, journal_end=3).on_kept_from(again)
    assert again.begins == {("t", 1): 9}


def test_a_topics_next_life_begins_at_its_first_message() -> None:
    told = Told()
    state = OffsetJournalState(ConsumerOffsetTable(), journal_end=0)
    state.on_kept_from(told)
    state.apply([kept(7)], 0)
    state.apply([OffsetsRemoved("g", "t", None, 1)], 1)  # another group's
    assert told.begins == {("t", 1): 7}
    state.apply([TopicEnded.of("t", 1, 0, 1)], 2)
    assert told.begins == {("t", 1): 0}


def test_an_image_says_it_to_a_replica_that_has_missed_records() -> None:
    told, table = Told(), ConsumerOffsetTable()
    state = OffsetJournalState(table, journal_end=0)
    state.on_kept_from(told)
    state.apply([kept(7)], 0)
    state.skip_to(5)
    state.apply([kept(9, ChangeKind.IMAGE), ImageEnd(1, 100, 5)], 5)
    assert told.begins == {("t", 1): 9}
    # What the next image does not say was removed where nobody read.
    state.skip_to(9)
    state.apply([ImageEnd(1, 200, 9)], 9)
    assert told.begins == {("t", 1): 0}
