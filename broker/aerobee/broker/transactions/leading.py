"""What transactions do while this replica is master.

Owns: from when a master may end transactions and ask about them, which commits of the last master
it finishes first, and the progress that it reports for the topics of transactions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from aerobee.broker.groups.ownership import NOBODYS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.term_keeper import Stretch, TermKeeper
from aerobee.broker.sending.durability import Durability
from aerobee.broker.transactions.checks import Checks
from aerobee.broker.transactions.ends import Ends
from aerobee.broker.transactions.follower import ASIDES, HALVES, OPS, TransactionFollower
from aerobee.broker.transactions.intents import TRANSACTION_JOURNAL_TOPIC, Commit, CommitIntent
from aerobee.broker.transactions.pending import PendingHalves
from aerobee.runtime.errors import AerobeeError, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.worker import Worker, warns
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.record_view import Record
from aerobee.store.format.transaction_records import TRANSACTIONS_GROUP, is_commit_of

log = logging.getLogger(__name__)

RETRY_S: Final = 0.25
LEAVE_TIMEOUT_S: Final = 3.0
PROGRESS_S: Final = 5.0
"""How often a master records its progress, if it has changed."""


class Parts(Protocol):
    """What a master of transactions needs of the broker."""

    store: MessageStore
    roles: Roles
    durability: Durability
    queues: QueueReader
    journal: OffsetJournal
    offsets: ConsumerOffsets


class Leading:
    """On the loop."""

    def __init__(
        self,
        parts: Parts,
        pending: PendingHalves,
        aside: PendingHalves,
        follower: TransactionFollower,
        ends: Ends,
        checks: Checks,
    ) -> None:
        self._parts = parts
        self._pending = pending
        self._aside = aside
        self._follower = follower
        self._ends = ends
        self._checks = checks
        self._term: TermKeeper[MasterTerm] = TermKeeper()
        self._begun_end = 0
        self._worker = Worker(
            self._do_what_is_due,
            warns(log, "transactions wait"),
            retry_s=RETRY_S,
            retries_when_woken=True,
            matters=lambda: self._term.stretch is not None,
        )
        self._said = (pending.next_half, pending.next_op, aside.next_half)

    # ------------------------------------------------------------------------------ the role

    def begin(self, term: MasterTerm) -> None:
        if self._term.begin(term) is not None:
            self._begun_end = self._parts.store.appended_end
        self._worker.wake()

    async def leave(self) -> None:
        stretch = self._term.stretch
        self._checks.end()
        try:
            if stretch is not None and self._ends.is_ready:
                self._ends.pay()
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._say_progress(stretch)
        except StoreFailed:
            raise
        except (AerobeeError, TimeoutError) as error:
            log_event(log, "transactions are left as they are", level=logging.WARNING, reason=error)
        finally:
            if stretch is not None and not stretch.is_over:
                # Even if the hand-over was cancelled meanwhile: `resume` continues from here.
                self._ends.end_term()
                self._term.leave()

    def resume(self) -> None:
        if self._term.resume() is not None:
            self._begun_end = self._parts.store.appended_end
            self._worker.wake()

    def end(self) -> None:
        self._term.end()
        self._checks.end()
        self._ends.end_term()
        self._worker.wake()

    # ------------------------------------------------------------------------------ running

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        await self._worker.run()

    def wake(self) -> None:
        """Something is owed."""
        self._worker.wake()

    def look(self) -> None:
        """More is confirmed, or has been read: perhaps everything is known now."""
        if self._term.stretch is not None and not self._ends.is_ready:
            self._worker.wake()

    async def _do_what_is_due(self) -> float | None:
        """Returns the seconds until something is due. Raises AerobeeError."""
        if (stretch := self._term.stretch) is None:
            return None
        if not self._ends.is_ready:
            if not self._knows_everything():
                return None
            was_missing = await self._finish_newest(stretch)
            if self._ends.drop_leftovers() or was_missing:
                self._begun_end = self._parts.store.appended_end  # not before that is also known
                return None
            self._ends.begin()
            self._checks.begin()
        self._ends.pay()
        await self._say_progress(stretch)
        return PROGRESS_S

    def _knows_everything(self) -> bool:
        confirmed_end = self._parts.roles.confirmed_end
        return confirmed_end >= self._begun_end and self._follower.has_all

    async def _finish_newest(self, stretch: Stretch[MasterTerm]) -> bool:
        """Commits of the last master may have their messages but not their op message: returns
        whether this was the case. Raises AerobeeError; NotMaster also if the stretch is over."""
        queues, topic = self._parts.queues, TRANSACTION_JOURNAL_TOPIC
        end = self._parts.store.queues.bounds(topic, 0).max_offset
        data = await queues.record(topic, 0, end - 1) if end else None
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
        return self._ends.finish(intent, stored)

    async def _is_stored(self, commit: Commit, intent: CommitIntent) -> bool:
        """Whether its message is there and its half message waits. Raises RecordCorrupt,
        AerobeeError."""
        state = self._aside if intent.is_aside else self._pending
        if state.at(commit.half_offset) is None:
            return False
        data = await self._parts.queues.record(
            commit.topic, commit.queue_id, commit.offset, even_unkept=True
        )
        return data is not None and is_commit_of(Record(data), commit.half_position)

    # ------------------------------------------------------------------------------ progress

    async def _say_progress(self, stretch: Stretch[MasterTerm]) -> None:
        """In Apache's form. Raises AerobeeError."""
        pending, aside = self._pending, self._aside
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
