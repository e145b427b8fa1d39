"""Transactions: a feature, put together from its parts, and what it does as master.

Owns: when a master may end transactions and ask about them, and the progress that it reports for
their topics. The state is followed on every replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Feature, Task
from aerobee.broker.groups.ownership import NOBODYS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.broker.reading.confirmed_records import ConfirmedReader
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.term_keeper import Stretch, TermKeeper
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.asked import AskedProducers
from aerobee.broker.transactions.checks import CheckRules, Checks
from aerobee.broker.transactions.ends import Ends
from aerobee.broker.transactions.figures import TransactionFigures
from aerobee.broker.transactions.follower import (
    ASIDES,
    HALVES,
    OPS,
    READER,
    TransactionFollower,
)
from aerobee.broker.transactions.hold import TransactionsHold
from aerobee.broker.transactions.intents import TRANSACTION_JOURNAL_TOPIC, Commit, CommitIntent
from aerobee.broker.transactions.known import KnownHalves
from aerobee.broker.transactions.listing import Listing
from aerobee.broker.transactions.questions import Producers, Question
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, MessageNotFound, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.families import AnyFamily
from aerobee.runtime.worker import Worker
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.record_view import Record
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    OP_TOPIC,
    TRANSACTIONS_GROUP,
    HalfMessage,
    is_commit_of,
)

log = logging.getLogger(__name__)

RETRY_S: Final = 0.25
LEAVE_TIMEOUT_S: Final = 3.0
PROGRESS_S: Final = 5.0
"""How often a master records its progress, if it has changed."""


class Parts(Protocol):
    """What transactions need of the broker."""

    config: BrokerConfig
    clock: Clock
    store: MessageStore
    topics: TopicTable
    guard: Guard
    roles: Roles
    durability: Durability
    writes: OwnWrites
    reads: ReadPool
    queues: QueueReader
    lookup: MessageLookup
    halves: KnownHalves
    journal: OffsetJournal
    offsets: ConsumerOffsets


class Transactions(Feature):
    """On the loop, while `run` runs."""

    @classmethod
    def own_topics(cls, config: StoreConfig) -> Mapping[str, int]:
        return {TRANSACTION_JOURNAL_TOPIC: 1, HALF_TOPIC: 1, OP_TOPIC: 1, ASIDE_TOPIC: 1}

    def __init__(self, parts: Parts, opened: None = None) -> None:
        self._parts = parts
        self._term: TermKeeper[MasterTerm] = TermKeeper()
        self._begun_end = 0
        self._worker = Worker(
            self._do_what_is_due,
            _tell,
            retry_s=RETRY_S,
            retries_when_woken=True,
            matters=lambda: self._term.stretch is not None,
        )
        store, durability = parts.store, parts.durability
        self.turns = parts.reads.loop_turns
        self.pending, self.aside = parts.halves.pending, parts.halves.aside
        self._said = (self.pending.next_half, self.pending.next_op, self.aside.next_half)
        self.follower = TransactionFollower(
            self.pending,
            self.aside,
            ConfirmedReader(READER, store, parts.roles, parts.reads),
            store,
            on_followed=self._on_followed,
        )
        self.ends = Ends(
            parts.halves,
            parts.writes,
            store,
            parts.guard,
            parts.topics,
            durability,
            parts.lookup,
            parts.clock,
            read_half=self._read_half,
            on_owing=self._worker.wake,
        )
        self.checks = Checks(
            self.ends,
            self.pending,
            parts.clock,
            _rules(parts.config),
            read_half=self._read_half,
            ask=self._ask,
        )
        self.asked = AskedProducers()
        self.producers: Sequence[Producers] = (self.asked,)
        """The producers that can be asked, by protocol."""
        self.listing = Listing(
            self.pending,
            self.aside,
            parts.guard,
            has_all=lambda: self.ends.is_ready or self.follower.has_all,
        )
        self.hold = TransactionsHold(self.pending, self.aside, self.follower, store, durability)
        self.holds = (self.hold,)
        self.measured = TransactionFigures(
            self.pending,
            self.aside,
            self.ends,
            self.checks,
            parts.clock,
            topics_max=parts.config.metrics.topics_max,
        )
        store.on_grown(self.follower.on_grown)
        durability.listen(self._on_confirmed)

    # ------------------------------------------------------------------------------ the role

    def begin(self, term: MasterTerm) -> None:
        if self._term.begin(term) is not None:
            self._begun_end = self._parts.store.appended_end
        self._worker.wake()

    async def leave(self) -> None:
        stretch = self._term.stretch
        self.checks.end()
        try:
            if stretch is not None and self.ends.is_ready:
                self.ends.pay()
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._say_progress(stretch)
        except StoreFailed:
            raise
        except (AerobeeError, TimeoutError) as error:
            log_event(log, "transactions are left as they are", level=logging.WARNING, reason=error)
        finally:
            if stretch is not None and not stretch.is_over:
                # Even if the hand-over was cancelled meanwhile: `resume` continues from here.
                self.ends.end_term()
                self._term.leave()

    def resume(self) -> None:
        if self._term.resume() is not None:
            self._begun_end = self._parts.store.appended_end
            self._worker.wake()

    def end(self) -> None:
        self._term.end()
        self.checks.end()
        self.ends.end_term()
        self._worker.wake()

    # ------------------------------------------------------------------------------ running

    def tasks(self) -> Mapping[str, Task]:
        return {"transactions": self.run}

    async def figures(self) -> Sequence[AnyFamily]:
        return self.measured.families()

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.follower.run(), name="transactions-follower")
            tasks.create_task(self._worker.run(), name="transactions-master")
            tasks.create_task(self.checks.run(), name="transactions-checks")

    async def _do_what_is_due(self) -> float | None:
        """Returns the seconds until something is due. Raises AerobeeError."""
        if (stretch := self._term.stretch) is None:
            return None
        if not self.ends.is_ready:
            if not self._knows_everything():
                return None
            was_missing = await self._finish_newest(stretch)
            if self.ends.drop_leftovers() or was_missing:
                self._begun_end = self._parts.store.appended_end  # not before that is also known
                return None
            self.ends.begin()
            self.checks.begin()
        self.ends.pay()
        await self._say_progress(stretch)
        return PROGRESS_S

    def _knows_everything(self) -> bool:
        confirmed_end = self._parts.roles.confirmed_end
        return confirmed_end >= self._begun_end and self.follower.has_all

    async def _finish_newest(self, stretch: Stretch[MasterTerm]) -> bool:
        """Commits of the last master may have their messages but not their op message: returns
        whether this was the case. Raises AerobeeError; NotMaster also if the stretch is over."""
        end = self._parts.store.queues.bounds(TRANSACTION_JOURNAL_TOPIC, 0).max_offset
        data = await self._record(TRANSACTION_JOURNAL_TOPIC, 0, end - 1) if end else None
        stretch.check()
        if data is None:
            return False
        try:
            intent = CommitIntent.decode(bytes(Record(data).body))
            if intent is None:
                return False
            stored = [each for each in intent.commits if await self._is_stored(each, intent)]
        except (RecordCorrupt, ValueError) as error:
            raise AerobeeError(f"the newest intent of a commit cannot be read: {error}") from None
        stretch.check()
        return self.ends.finish(intent, stored)

    async def _is_stored(self, commit: Commit, intent: CommitIntent) -> bool:
        """Whether its message is there and its half message waits. Raises RecordCorrupt,
        AerobeeError."""
        state = self.aside if intent.is_aside else self.pending
        if state.at(commit.half_offset) is None:
            return False
        data = await self._record(commit.topic, commit.queue_id, commit.offset)
        return data is not None and is_commit_of(Record(data), commit.half_position)

    def _on_followed(self) -> None:
        self.ends.followed()
        self.listing.followed()
        if self._term.stretch is not None and not self.ends.is_ready:
            self._worker.wake()

    def _on_confirmed(self) -> None:
        self.follower.on_confirmed()
        if self._term.stretch is not None and not self.ends.is_ready:
            self._worker.wake()

    # ------------------------------------------------------------------------------ asking

    def ask_also(self, producers: Producers) -> None:
        """Those of another protocol; they are asked before those known so far."""
        self.producers = (producers, *self.producers)

    def _ask(self, question: Question) -> bool:
        # Each protocol's first in turn, if it has any.
        turn = question.checks % len(self.producers)
        ordered = (*self.producers[turn:], *self.producers[:turn])
        return any(each.ask(question) for each in ordered)

    # ------------------------------------------------------------------------------ progress

    async def _say_progress(self, stretch: Stretch[MasterTerm]) -> None:
        """In Apache's form. Raises AerobeeError."""
        pending, aside = self.pending, self.aside
        said = (pending.half_progress, pending.op_progress, aside.half_progress)
        if said == self._said or not self._parts.journal.is_ready:
            return
        end = self._parts.store.appended_end
        # Not before what it reports is on disk: a power cut must not lose only an end.
        self._parts.durability.request_flush()
        await self._parts.durability.flushed.wait(end, float("inf"))
        # Half messages first: reading op messages again is harmless.
        for (topic, queue_id), offset in zip((HALVES, OPS, ASIDES), said, strict=True):
            stretch.check()
            key = GroupQueue(TRANSACTIONS_GROUP, topic, queue_id)
            if (written := self._parts.offsets.commit(key, offset, NOBODYS)) is not None:
                await asyncio.shield(written)
        self._said = said

    # ------------------------------------------------------------------------------ reading

    async def _read_half(self, topic: str, half: HalfMessage) -> bytes:
        try:
            return await self._parts.queues.piece(half.position, half.size)
        except MessageNotFound:
            raise MessageNotFound(
                f"the half message of transaction {half.transaction_id} was removed from the log"
            ) from None

    async def _record(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        return await self._parts.queues.record(topic, queue_id, offset)


def _tell(error: AerobeeError) -> None:
    log_event(log, "transactions wait", level=logging.WARNING, reason=error)


def _rules(config: BrokerConfig) -> CheckRules:
    retention, ours = config.store.retention, config.transactions
    reserved_ms = retention.file_reserved_hours * 3_600_000 if retention.enabled else None
    return CheckRules(ours.timeout_ms, ours.check_interval_ms, ours.checks_max, reserved_ms)
