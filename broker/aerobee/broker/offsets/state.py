"""The state of the offset journal up to one of its records: the table of offsets, and the newest
record of queue leases.

Owns: how entries become offsets. Pure, except that it logs what it cannot read. Every replica
applies the same confirmed records in the same order, so all have the same offsets; the table is
written to consumerOffset.json together with the number of the next record.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.run_record import RunRecord
from aerobee.broker.journal.records import UNKNOWN_IMAGE, ImageEnd
from aerobee.broker.offsets.entries import (
    Entry,
    LeaseEntry,
    LeaseParts,
    OffsetEntry,
    OffsetsRemoved,
    TopicEnded,
    TopicEndKnown,
    TopicLivesOn,
    decode_entry,
    entry_text,
)
from aerobee.broker.offsets.merge import NO_LEASE, ChangeKind, Standing, merge
from aerobee.broker.offsets.sent_back import (
    Copied,
    FinishedBeyond,
    OutOfTurn,
    SentBack,
    TriedInOrder,
)
from aerobee.domain.names import KEPT_FROM_GROUP
from aerobee.runtime.log import log_event
from aerobee.store.engine.tables.consumer_offset_table import (
    ConsumerOffsetTable,
    JournalMark,
    OpenCopy,
    TopicEnd,
    Tried,
)
from aerobee.store.engine.tables.finished_ranges import FinishedRanges, QueueKey
from aerobee.store.engine.tables.last_changes import LastChange
from aerobee.store.format.transaction_records import TRANSACTIONS_GROUP

log = logging.getLogger(__name__)


def cut_mark(table: ConsumerOffsetTable, journal_end: int) -> bool:
    """Whether the table was ahead of a journal of `journal_end` records: it was written before a
    power failure cut off the journal's end. Records that come in that place are applied again, or
    instead. What the lost records finished out of order is not finished: its copies are lost with
    them. And transactions that they called done may be open again, so their topics are read from
    the beginning.

    If so, write the table before anything comes: a later start would take that for applied."""
    mark = table.mark
    if mark is None or mark.next_offset <= journal_end:
        return False
    table.mark = replace(
        mark,
        next_offset=journal_end,
        image_position=UNKNOWN_IMAGE,
        # New records may reuse the numbers of lost copies.
        copied_through=0,
        open_copies=tuple(each for each in mark.open_copies if each.record < journal_end),
    )
    table.finished.cut(journal_end)
    table.tried.clear()
    table.remove_all(TRANSACTIONS_GROUP, None)
    table.cut_topic_ends(journal_end)
    return True


class OffsetJournalState:
    """A `JournalState`, see the module; on the loop."""

    encode = staticmethod(entry_text)
    decode = staticmethod(decode_entry)

    def __init__(
        self,
        table: ConsumerOffsetTable,
        *,
        journal_end: int,
        now_ms: int = 0,
        on_group_removed: Callable[[str], object] = lambda group: None,
    ) -> None:
        """`journal_end`: the present number of records in the journal. `on_group_removed` is called
        for a group that was deleted as a whole.

        A table whose place is unknown is treated as newer than all of them; for one that is ahead
        of them see `cut_mark`.
        """
        self._table = table
        self._on_group_removed = on_group_removed
        self.on_topic_ended: Callable[[], object] = lambda: None
        """Called when a topic's end is known."""
        self._on_kept_from: Callable[[str, int, int], object] = lambda topic, queue_id, offset: None
        cut_mark(table, journal_end)
        mark = table.mark
        if mark is None:
            is_complete = journal_end == 0 and not table.groups()
            image_position = 0 if is_complete else UNKNOWN_IMAGE
            mark = JournalMark(journal_end, image_position, topic_ends_from_ms=now_ms)
        self._mark = mark
        self._whole_from = 0 if mark.is_whole else mark.next_offset
        self._unsaid: set[GroupQueue] = set() if mark.is_whole else set(self.keys())
        """After a gap: what the table has and no record since has repeated. What the next image
        does not contain either was removed in the gap."""
        self.lease_parts = LeaseParts()
        """Parts of a record that is not complete yet."""
        self.lease = _lease_of(mark.lease)
        """The newest record of queue leases; None: the journal has none."""
        self._open_copies = _copies_of(mark.open_copies)
        self._next_copy = mark.next_copy
        self._copied_through = mark.copied_through
        self._doubted = table.doubted
        self._end_doubt()

    def on_kept_from(self, told: Callable[[str, int, int], object]) -> None:
        """From now on, `told` gets the topic, the queue and the first message that is kept there,
        first what is known already; 0: the topic keeps all."""
        self._on_kept_from = told
        for topic, queues in self._table.of_group(KEPT_FROM_GROUP).items():
            for queue_id, offset in queues.items():
                told(topic, queue_id, offset)

    @property
    def rendered_mark(self) -> JournalMark | None:
        """The mark of the table's latest snapshot."""
        return self._table.rendered_mark

    @property
    def next_offset(self) -> int:
        """The number of the first record that is not applied."""
        return self._mark.next_offset

    @property
    def image_position(self) -> int:
        """A reader of the journal from this log position on knows the whole state; UNKNOWN_IMAGE:
        possibly none does."""
        return self._mark.image_position

    @property
    def is_whole(self) -> bool:
        """Whether the whole state is known here: a replica that began in the middle of the
        journal has to read an image first."""
        return self._mark.is_whole

    def standing(self, key: GroupQueue) -> Standing | None:
        """None: the group never committed on this queue."""
        offset = self._table.query(*key)
        return None if offset is None else Standing(offset, self._table.epoch_min(*key))

    def finished_beyond(self, key: GroupQueue) -> FinishedRanges | None:
        """What the group has finished there after its offset; do not modify."""
        return self._table.finished.of(*key)

    def tried(self, key: GroupQueue) -> Tried | None:
        """Which message of the queue, if any, is being retried in order."""
        return self._table.tried.get(QueueKey(*key))

    def all_tried(self) -> list[tuple[QueueKey, Tried]]:
        """Of all groups."""
        return list(self._table.tried.items())

    def all_finished_beyond(self) -> list[tuple[QueueKey, FinishedRanges]]:
        """Of all groups."""
        return list(self._table.finished.items())

    @property
    def next_copy(self) -> int:
        """The number of the next copy of a message that is sent back."""
        return self._next_copy

    @property
    def open_copies(self) -> list[SentBack]:
        """Copies that may not be in the log, ordered by number."""
        return [entry for _, entry in self._open_copies.values()]

    def keys(self) -> list[GroupQueue]:
        """Every queue of every group that ever committed."""
        return [
            GroupQueue(group, topic, queue_id)
            for group in self._table.groups()
            for topic, queues in self._table.of_group(group).items()
            for queue_id in queues
        ]

    def topic_ended_at_ms(self, topic: str) -> int:
        """When the topic was deleted whose end was last applied under this name; 0: no end was."""
        end = self._table.topic_ends.get(topic)
        return 0 if end is None else end.deleted_at_ms

    def has_topic(self, topic: str) -> bool:
        """Whether any group has an offset on a queue of the topic."""
        return any(self._table.has_committed(group, topic) for group in self._table.groups())

    def may_lack_end(self, deleted_at_ms: int) -> bool:
        """Whether the end of a topic deleted at that time may have been applied without being known
        here: the snapshot came from elsewhere, or records of the journal were missed."""
        return not self.is_whole or deleted_at_ms < self._mark.topic_ends_from_ms

    def topic_ends(self, timestamp_ms: int) -> list[TopicEndKnown]:
        """All remembered ends of topics, as entries of an image."""
        return [
            TopicEndKnown(topic, end.deleted_at_ms, end.lease_epoch, timestamp_ms)
            for topic, end in self._table.topic_ends.items()
        ]

    def selected(self, removed: OffsetsRemoved) -> list[GroupQueue]:
        """The queues on which a removal would remove an offset or what is finished after it; always
        includes the queue that it names."""
        if removed.queue_id is not None:
            return [removed.queue]
        groups = self._table.groups() if removed.group is None else [removed.group]
        found: list[GroupQueue] = []
        for group in groups:
            topics = self._table.topics_of(group) if removed.topic is None else [removed.topic]
            for topic in topics:
                queue_ids = self._table.of_topic(group, topic)
                found += [GroupQueue(group, topic, queue_id) for queue_id in queue_ids]
        beyond = (GroupQueue(*name) for name, _ in self._table.finished.items())
        return list(dict.fromkeys((*found, *filter(removed.selects, beyond))))

    def apply(self, entries: Sequence[Entry | ImageEnd], queue_offset: int) -> None:
        """Apply the next record of the journal."""
        assert queue_offset == self._mark.next_offset, "records count in the order of the journal"
        mark = self._mark
        image_position, is_whole, lease = mark.image_position, mark.is_whole, mark.lease
        ends_from_ms = mark.topic_ends_from_ms
        for entry in entries:
            if isinstance(entry, OffsetEntry):
                self._change(entry)
            elif isinstance(entry, ImageEnd):
                if entry.first_offset >= self._whole_from:
                    if not is_whole:
                        ends_from_ms = entry.timestamp_ms
                    image_position, is_whole = entry.position, True
                    self._end_gap()
            elif isinstance(entry, TopicEndKnown | TopicLivesOn):
                self._hear_of_end(entry, queue_offset)
            elif isinstance(entry, SentBack | Copied | FinishedBeyond | TriedInOrder):
                self._finish_out_of_turn(entry, queue_offset)
            elif isinstance(entry, TopicEnded):
                self._end_topic(entry, queue_offset)
            elif isinstance(entry, OffsetsRemoved):
                self._remove(entry)
                if entry.group is not None and entry.topic is None and self._doubted is None:
                    self._on_group_removed(entry.group)
            elif (record := self._take_lease(entry)) is not None:
                self.lease = record
                lease = json.dumps(record.as_object(), separators=(",", ":"))
        self._put(
            JournalMark(
                queue_offset + 1,
                image_position,
                is_whole,
                lease,
                ends_from_ms,
                self._next_copy,
                self._copied_through,
                tuple(
                    OpenCopy(record, entry_text(entry))
                    for record, entry in self._open_copies.values()
                ),
            )
        )

    def skip_to(self, queue_offset: int) -> None:
        """The records before this one are gone or cannot be read."""
        assert queue_offset > self._mark.next_offset
        self._whole_from = queue_offset
        self._unsaid = set(self.keys())
        self.lease_parts = LeaseParts()
        # The missing records may have revoked them; the next image lists those that still hold.
        self._table.finished.forget(None, None, None)
        self._table.tried.clear()
        self._open_copies.clear()
        self._put(
            replace(
                self._mark,
                next_offset=queue_offset,
                image_position=UNKNOWN_IMAGE,
                is_whole=False,
                open_copies=(),
            )
        )

    def _put(self, mark: JournalMark) -> None:
        self._mark = mark
        self._table.mark = mark
        self._end_doubt()

    def _end_doubt(self) -> None:
        """Tell what was taken from the journal, once a table that was changed by something else is
        right again."""
        doubted = self._doubted
        if doubted is None or self._mark.next_offset < doubted.through:
            return
        self._doubted = self._table.doubted = None
        for key in self.keys():
            offset = self._table.query(*key)
            before = doubted.offsets.get(key.group, {}).get(key.topic, {}).get(key.queue_id)
            if before is None or offset is None or offset > before:
                log_event(
                    log,
                    "offset taken from the journal",
                    level=logging.WARNING,
                    group=key.group,
                    topic=key.topic,
                    queue_id=key.queue_id,
                    offset_before=before,
                    offset=offset,
                )

    def _end_topic(self, entry: TopicEnded, record: int) -> None:
        assert entry.topic is not None
        self._remove(entry)
        # Their originals are gone: those offsets belong to the topic's next life now.
        self._open_copies = {
            number: each
            for number, each in self._open_copies.items()
            if each[1].key.topic != entry.topic
        }
        self._note_end(entry.topic, TopicEnd(entry.deleted_at_ms, record, entry.lease_epoch))

    def _hear_of_end(self, entry: TopicEndKnown | TopicLivesOn, record: int) -> None:
        """Take note of an end before this record, if it is news."""
        before = self._table.topic_ends.get(entry.topic)
        if before is not None and entry.deleted_at_ms <= before.deleted_at_ms:
            return
        if isinstance(entry, TopicEndKnown):
            self._end_topic(TopicEnded.of(*astuple(entry)), record)
        else:
            lease_epoch = NO_LEASE if before is None else before.lease_epoch
            self._note_end(entry.topic, TopicEnd(entry.deleted_at_ms, record, lease_epoch))

    def _note_end(self, topic: str, end: TopicEnd) -> None:
        self._table.note_topic_end(topic, end)
        self.on_topic_ended()

    def _end_gap(self) -> None:
        """A complete image has given the whole state."""
        for key in self._unsaid:
            self._table.remove(*key)
            if key.group == KEPT_FROM_GROUP:
                self._on_kept_from(key.topic, key.queue_id, 0)
        self._unsaid.clear()

    def _remove(self, entry: OffsetsRemoved) -> None:
        if entry.group in (None, KEPT_FROM_GROUP):
            for topic, queues in self._table.of_group(KEPT_FROM_GROUP).items():
                for queue_id in queues:
                    if entry.selects(GroupQueue(KEPT_FROM_GROUP, topic, queue_id)):
                        self._on_kept_from(topic, queue_id, 0)
        if entry.queue_id is None:
            self._table.remove_all(entry.group, entry.topic)
        else:
            self._table.remove(*entry.queue)
        self._table.finished.forget(entry.group, entry.topic, entry.queue_id)
        for name in [each for each in self._table.tried if entry.selects(GroupQueue(*each))]:
            del self._table.tried[name]
        if self._unsaid:
            self._unsaid = {key for key in self._unsaid if not entry.selects(key)}

    def _change(self, entry: OffsetEntry) -> None:
        self._unsaid.discard(entry.key)
        before = self.standing(entry.key)
        after = merge(before, entry.change)
        if after is not before:
            self._table.put(*entry.key, *after)
            self._table.note_change(*entry.key, _last_change(entry))
            if entry.key.group == KEPT_FROM_GROUP:
                self._on_kept_from(entry.key.topic, entry.key.queue_id, after.offset)
        elif entry.client_id and entry.change.offset == after.offset:
            # Nothing moves: it says who reads the queue now.
            self._table.note_change(*entry.key, _last_change(entry))
        if entry.change.kind is ChangeKind.RESET:
            # A reset is there to see messages again, including finished ones.
            self._table.finished.forget(*entry.key)
        else:
            self._table.finished.drop_below(*entry.key, after.offset)
        tried = self.tried(entry.key)
        if tried is not None and (
            entry.change.kind is ChangeKind.RESET or tried.offset < after.offset
        ):
            del self._table.tried[QueueKey(*entry.key)]

    def _note_tried(self, entry: TriedInOrder) -> None:
        standing, before = self.standing(entry.key), self.tried(entry.key)
        is_finished = standing is not None and entry.tried.offset < standing.offset
        is_known = before is not None and (
            before.offset == entry.tried.offset and before.attempts >= entry.tried.attempts
        )
        if not (is_finished or is_known):
            self._table.tried[QueueKey(*entry.key)] = entry.tried

    def _finish_out_of_turn(self, entry: OutOfTurn, record: int) -> None:
        if isinstance(entry, TriedInOrder):
            self._note_tried(entry)
        elif isinstance(entry, Copied):
            self._next_copy = max(self._next_copy, entry.through)
            self._copied_through = max(self._copied_through, entry.through)
            for number in [each for each in self._open_copies if each < entry.through]:
                del self._open_copies[number]
        elif isinstance(entry, FinishedBeyond):
            for begin, end in entry.ranges:
                self._finish(entry.key, begin, end, record)
        else:
            if entry.number >= self._copied_through:
                self._open_copies.setdefault(entry.number, (record, entry))
            self._next_copy = max(self._next_copy, entry.number + 1)
            if not entry.is_repeated:
                self._finish(entry.key, entry.offset, entry.offset + 1, record)

    def _finish(self, key: GroupQueue, begin: int, end: int, record: int) -> None:
        standing = self.standing(key)
        begin = max(begin, 0 if standing is None else standing.offset)
        if begin < end:
            self._table.finished.add(*key, begin, end, record=record)

    def _take_lease(self, entry: LeaseEntry) -> RunRecord | None:
        """The whole record, once its last part is there. If other parts are missing, it is unknown
        who held what, as after an unclean stop."""
        record = self.lease_parts.take(entry)
        if record is None and entry.part + 1 == entry.parts:
            log_event(log, "parts of a record of leases are missing", level=logging.WARNING)
        return record


def _last_change(entry: OffsetEntry) -> LastChange | None:
    """None: an image gives the state, not who caused it."""
    kind = entry.change.kind
    if kind is ChangeKind.IMAGE:
        return None
    return LastChange(
        entry.timestamp_ms,
        entry.client_id,
        is_reset=kind is ChangeKind.RESET,
        has_lease=entry.change.lease_epoch != NO_LEASE,
    )


def _lease_of(text: str) -> RunRecord | None:
    if not text:
        return None
    try:
        return RunRecord.from_object(json.loads(text))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        log_event(
            log, "the snapshot's record of leases is illegal", level=logging.WARNING, why=error
        )
        return None


def _copies_of(open_copies: Sequence[OpenCopy]) -> dict[int, tuple[int, SentBack]]:
    found: dict[int, tuple[int, SentBack]] = {}
    for record, text in open_copies:
        try:
            entry = decode_entry(json.loads(text))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            log_event(log, "the snapshot's open copy is illegal", level=logging.ERROR, why=error)
            continue
        if isinstance(entry, SentBack):
            found[entry.number] = record, entry
    return found
