"""Messages that Apache's broker handed out by POP before the folder changed owners return.

    the timer stores a checkpoint, and its acks, in the revive log -> its time is over
      -> what nobody acknowledged is copied into the group's retry topic -> the offset is committed

Owns: the revive log, while this replica is master. Its formats and its group are Apache's, so
either broker continues where the other one was; this one only reads it. The group's offset of a
queue is that of the last finished record, not of the next one as in other groups. A crash between a
copy and the committed offset duplicates the copy.

A round belongs to one stretch of a term: what it did not copy because the term was left must not
count as done once the term is resumed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.groups.ownership import NOBODYS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.broker.reading.confirmed_records import ConfirmedReader, ConfirmedRecords
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.replication.duties import Duty
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.term_keeper import Stretch, TermKeeper
from aerobee.broker.retries.topics import make_retry_topic
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event
from aerobee.runtime.worker import Worker, warns
from aerobee.store.engine.errors import EntryMismatch
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.tables.config_tables import TOPICS_PATH, TopicTable
from aerobee.store.flush.table_files import TableFiles
from aerobee.store.format.batch import BatchIllegal
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX
from aerobee.store.format.pop_records import (
    REVIVE_GROUP,
    REVIVE_TOPIC_PREFIX,
    PollKey,
    PopCheckpoint,
    PopRecordIllegal,
    pop_record_of,
    pop_retry_topics,
    revived_record,
)
from aerobee.store.format.record_layout import RecordCorrupt, RecordIllegal
from aerobee.store.format.record_view import Record

log = logging.getLogger(__name__)

LATE_MS: Final = 5_000
"""How long after a checkpoint's time its acks are waited for."""
RETRY_S: Final = 1.0
_STEP_BYTES: Final = 128 * 1024
_STEP_RECORDS: Final = 256
_OPEN_MAX: Final = 50_000
"""Checkpoints held at a time; the oldest are settled before more are read."""


class _Open:
    """A checkpoint whose time is not up, or not known to be."""

    __slots__ = ("key", "offset", "unfinished", "visible_ms")

    def __init__(self, offset: int, checkpoint: PopCheckpoint) -> None:
        self.offset = offset
        self.key, self.visible_ms, unfinished = checkpoint
        self.unfinished = set(unfinished)


class Parts(Protocol):
    """What they need of the broker."""

    clock: Clock
    store: MessageStore
    topics: TopicTable
    guard: Guard
    roles: Roles
    writes: OwnWrites
    reads: ReadPool
    queues: QueueReader
    files: TableFiles
    journal: OffsetJournal
    offsets: ConsumerOffsets


class Revivals(Duty):
    """On the loop, while `run` runs; one of the master's duties."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._term: TermKeeper[MasterTerm] = TermKeeper()
        self._worker = Worker(
            self._revive_all_due,
            warns(log, "messages that Apache's broker handed out wait"),
            retry_s=RETRY_S,
            retries_when_woken=True,
            # A new master needs a moment to learn the groups' offsets: one failure is harmless.
            tells_at=2,
            matters=lambda: self._term.stretch is not None,
        )
        self._reader = ConfirmedReader("revivals", parts.store, parts.roles, parts.reads)
        self._copied: dict[tuple[PollKey, int], tuple[QueueName, int]] = {}
        """Copied, and their checkpoints, which are not below the committed offset yet: what comes
        after an error or an open checkpoint is read again, and not copied again."""
        parts.store.on_grown(self._on_grown)

    def begin(self, term: MasterTerm) -> None:
        self._term.begin(term)
        self._worker.wake()

    async def leave(self) -> None:
        self._term.leave()

    def resume(self) -> None:
        if self._term.resume() is not None:
            self._worker.wake()

    def end(self) -> None:
        self._term.end()

    def _on_grown(self, names: Iterable[QueueName]) -> None:
        if any(topic.startswith(REVIVE_TOPIC_PREFIX) for topic, _ in names):
            self._worker.wake()

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        await self._worker.run()

    async def _revive_all_due(self) -> float | None:
        """Seconds until something is due; None: until the revive log grows. Raises AerobeeError:
        not possible now; NotMaster also if the stretch is over."""
        if (stretch := self._term.stretch) is None:
            return None
        self._parts.journal.writer()  # otherwise the result could not be recorded
        waits = [
            wait_s
            for topic in [each for each in self._parts.topics.names() if _is_revive(each)]
            for queue_id in range(self._queues_of(topic))
            if (wait_s := await self._settle_queue((topic, queue_id), stretch)) is not None
        ]
        return min(waits, default=None)

    def _queues_of(self, topic: str) -> int:
        config = self._parts.topics.get(topic)
        return 0 if config is None else config.read_queue_count

    async def _settle_queue(self, queue: QueueName, stretch: Stretch[MasterTerm]) -> float | None:
        """Settle one queue, from its committed offset on. As `_revive_all_due`."""
        key = GroupQueue(REVIVE_GROUP, *queue)
        low, end = self._parts.queues.bounds(*queue)
        known = self._parts.offsets.query(key)
        begin = 0 if known is None else known + 1
        at = max(begin, low)
        open_: dict[PollKey, _Open] = {}
        newest_ms = 0
        while at < end:
            found = await self._read_part(queue, at)
            if found.next_offset <= at:
                break
            for record in found.records:
                newest_ms = max(newest_ms, self._read(record, open_))
            at = found.next_offset
            if len(open_) > _OPEN_MAX:
                await self._revive_due(queue, open_, newest_ms, stretch)
            await asyncio.sleep(0)  # let others run
        now_ms = self._parts.clock.now_ms()
        await self._revive_due(queue, open_, now_ms, stretch)
        done = min((each.offset for each in open_.values()), default=at)
        stretch.check()
        if done > begin:
            written = self._parts.offsets.commit(key, done - 1, NOBODYS)
            if written is not None:
                await asyncio.shield(written)
            self._copied = {
                copied: place
                for copied, place in self._copied.items()
                if place[0] != queue or place[1] >= done
            }
        visible_ms = min((each.visible_ms for each in open_.values()), default=None)
        return None if visible_ms is None else max(0.1, (visible_ms + LATE_MS - now_ms) / 1_000)

    async def _read_part(self, queue: QueueName, at: int) -> ConfirmedRecords:
        for count in (_STEP_RECORDS, 1):
            try:
                return await self._reader.read(*queue, at, max_bytes=_STEP_BYTES, max_records=count)
            except EntryMismatch as error:
                damage = str(error)
        _tell("a record of Apache's revive log is damaged", queue[0], at, damage)
        return ConfirmedRecords([], at + 1, False)

    @staticmethod
    def _read(record: Record, open_: dict[PollKey, _Open]) -> int:
        """The checkpoint's time, if the record is one."""
        try:
            told = pop_record_of(record)
        except (PopRecordIllegal, RecordCorrupt) as error:
            what = "a record in Apache's revive log has another format"
            _tell(what, record.topic, record.queue_offset, str(error))
            return 0
        if isinstance(told, PopCheckpoint):
            open_[told.key] = _Open(record.queue_offset, told)
            return told.visible_ms
        if (checkpoint := open_.get(told.key)) is not None:
            checkpoint.unfinished.difference_update(told.offsets)
        return 0

    async def _revive_due(
        self,
        queue: QueueName,
        open_: dict[PollKey, _Open],
        now_ms: int,
        stretch: Stretch[MasterTerm],
    ) -> None:
        for checkpoint in [each for each in open_.values() if each.visible_ms + LATE_MS <= now_ms]:
            for offset in sorted(checkpoint.unfinished):
                copied = checkpoint.key, offset
                if copied not in self._copied and await self._revive(*copied, stretch):
                    self._copied[copied] = queue, checkpoint.offset
                checkpoint.unfinished.discard(offset)
            del open_[checkpoint.key]

    async def _revive(self, poll: PollKey, offset: int, stretch: Stretch[MasterTerm]) -> bool:
        """False: it is lost, or cannot come again. Raises AerobeeError: not possible now."""
        try:
            data = await self._parts.queues.record(poll.topic, poll.queue_id, offset)
        except EntryMismatch as error:
            _tell(
                "a message that Apache's broker handed out is lost", poll.topic, offset, str(error)
            )
            return False
        if data is None:
            return False
        writes = self._parts.writes
        topic = self._retry_topic(poll)
        try:
            copy = revived_record(
                Record(data, 0, len(data)),
                topic,
                pop_ms=poll.pop_ms,
                store_host_ipv6=writes.store_host_ipv6,
            )
            if make_retry_topic(self._parts.topics, topic):
                await self._parts.files.save_if_room(TOPICS_PATH)
            stretch.check()
            self._parts.guard.check_master()
            with writes.publishing:
                writes.append_copies(topic, 0, [copy], ())
        except (BatchIllegal, RecordCorrupt, RecordIllegal) as error:
            what = "a message that Apache's broker handed out cannot be redelivered"
            _tell(what, poll.topic, offset, str(error))
            return False
        return True

    def _retry_topic(self, poll: PollKey) -> str:
        """The one that Apache's broker used, if it used one."""
        if poll.topic.startswith(RETRY_PREFIX):
            return poll.topic
        first, second = pop_retry_topics(poll.group, poll.topic)
        return second if second in self._parts.topics else first


def _is_revive(topic: str) -> bool:
    return topic.startswith(REVIVE_TOPIC_PREFIX)


def _tell(event: str, topic: str, offset: int, reason: str) -> None:
    log_event(log, event, level=logging.ERROR, topic=topic, offset=offset, reason=reason)
