"""POP: a feature, put together from its parts.

The journal and its file work on every replica; queues are handed out only while this one is master.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Feature, Task
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.journal import Journal
from aerobee.broker.journal.log import JournalLog
from aerobee.broker.journal.state_file import StateFile
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.pop.entries import POP_JOURNAL_TOPIC, PopEntry
from aerobee.broker.pop.journal_state import POP_PATH, PopJournalState
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.term import EntryWriter, PopTerm, PopTerms
from aerobee.broker.popping.beginnings import Beginnings, finished_by
from aerobee.broker.popping.bells import Bells
from aerobee.broker.popping.commits import PopCommits
from aerobee.broker.popping.confirmed import until_confirmed
from aerobee.broker.popping.hand_overs import HandOvers
from aerobee.broker.popping.moves import Moves
from aerobee.broker.popping.opening import forget_pops, open_pops
from aerobee.broker.popping.pops import Pops
from aerobee.broker.popping.reads import PopReads
from aerobee.broker.popping.revivals import Parts as RevivalParts
from aerobee.broker.popping.revivals import Revivals
from aerobee.broker.reading.egress import Egress
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.retention.holds import JournalHold
from aerobee.broker.retries.feature import Receivers, Retries
from aerobee.broker.sending.durability import Durability
from aerobee.runtime.errors import AerobeeError, Busy, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.finished_ranges import Range

log = logging.getLogger(__name__)

IN_ORDER_MAX: Final = 100_000
"""Groups in which polls ask for order, and not the settings."""
SAVE_TIMEOUT_S: Final = 20.0
LEAVE_TIMEOUT_S: Final = 3.0


class Clients(Receivers, Protocol):
    """Whose messages are in flight."""

    def begin(self) -> None:
        """This node becomes master: until now clients may have called other nodes."""
        ...

    def held_until_ms(self, client: str, taken_ms: int, /) -> int:
        """See `HeldUntil`."""
        ...


class Parts(RevivalParts, Protocol):
    """What POP needs of the broker."""

    config: BrokerConfig
    durability: Durability
    on_store_failed: Callable[[StoreFailed], None]
    egress: Egress
    coordinator: GroupCoordinator
    journal_state: OffsetJournalState
    retries: Retries

    @property
    def clients(self) -> Clients: ...


class Popping(Feature):
    """On the loop, while `run` runs."""

    @classmethod
    def own_topics(cls, config: StoreConfig) -> Mapping[str, int]:
        return {POP_JOURNAL_TOPIC: 1}

    @classmethod
    def open(cls, disk: Disk, store: MessageStore, config: StoreConfig) -> PopJournalState:
        return open_pops(disk, store)

    @classmethod
    def forget(cls, disk: Disk, position: int) -> None:
        forget_pops(disk)

    def __init__(self, parts: Parts, opened: PopJournalState) -> None:
        self._parts = parts
        self.state = opened
        self._in_order: set[str] = set()
        journal_log = JournalLog(
            POP_JOURNAL_TOPIC,
            parts.store,
            parts.durability,
            parts.roles,
            parts.reads,
            parts.writes,
            on_store_failed=parts.on_store_failed,
        )
        self.journal: Journal[PopEntry, PopTerm] = Journal(
            self.state,
            journal_log,
            PopTerms(self._make_term, on_begin=self._on_begin, on_end=self._on_end),
            parts.clock,
            name="POP journal",
            subject="messages in flight",
            image_interval_bytes=parts.config.store.segment_bytes,
            linger_s=0.0,
        )
        self.file = StateFile(
            POP_PATH, self.state, self.journal, parts.files, parts.store, parts.durability
        )
        parts.durability.listen(self.file.look)
        self.revivals = Revivals(parts)
        self.holds = (JournalHold(self.journal, self.file.save_if_room),)
        self.bells = Bells(
            parts.egress,
            parts.clock,
            next_ms=self._next_ms,
            polls_max=parts.config.groups.waiting_polls_max,
        )
        self.commits = PopCommits(parts.offsets, self.state.standing, is_behind=self._is_behind)
        self.hand_overs = HandOvers(
            parts.offsets, parts.clock, writer=self.journal.writer, is_used=self._is_used
        )
        beginnings = Beginnings(
            parts.offsets,
            parts.coordinator.ownership,
            writer=self.journal.writer,
            bounds=parts.queues.bounds,
        )
        self.pops = Pops(
            self.journal.writer,
            beginnings.begin,
            PopReads(parts.egress),
            self.bells,
            parts.clock,
            end_of=parts.queues.max_offset,
            make_moves=self._make_moves,
            on_finished=self.commits.note,
        )

    def is_popped(self, key: GroupQueue) -> bool:
        """Whether POP consumes a queue; on a slave as far as confirmed."""
        term = self.journal.term
        return self.state.standing(key) is not None if term is None else term.has(key)

    def queue(self, key: GroupQueue) -> QueueState | None:
        """What this master knows of a queue; None if POP does not consume it, and on a slave."""
        term = self.journal.term
        try:
            return None if term is None else term.queue(key)
        except AerobeeError:
            return None

    async def until_written(self) -> None:
        """Until everything decided so far is in effect. Raises AerobeeError: possibly it is not."""
        if (term := self.journal.term) is not None:
            await until_confirmed(term.newest)

    def is_ordered(self, group: str) -> bool:
        """Whether order counts for a group."""
        return group in self._in_order or self._parts.retries.settings.policy(group).is_ordered

    def ask_order(self, group: str) -> None:
        """Order counts for a group from now on, while this broker runs: a poll says so, and not the
        group's settings. Raises Busy."""
        if not self.is_ordered(group):
            if len(self._in_order) >= IN_ORDER_MAX:
                raise Busy(
                    f"polls ask for order in {IN_ORDER_MAX} groups already: set it in group {group}"
                )
            self._in_order.add(group)

    def tasks(self) -> Mapping[str, Task]:
        return {"pop": self.run}

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.journal.run(), name="pop-journal")
            tasks.create_task(self.commits.run(), name="pop-commits")
            tasks.create_task(self.file.run(), name="pop-file")
            tasks.create_task(self.revivals.run(), name="pop-revivals")

    # ------------------------------------------------------------------------------ the role

    def begin(self, term: MasterTerm) -> None:
        self.revivals.begin(term)

    async def leave(self) -> None:
        """Commit while the offset journal takes commits: Apache's broker reads nothing else."""
        await self.revivals.leave()
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self.journal.followed()
                await self.commits.commit()
        except StoreFailed:
            raise
        except (AerobeeError, TimeoutError) as error:
            log_event(
                log,
                "what POP has finished is left uncommitted",
                level=logging.WARNING,
                reason=error,
            )

    def resume(self) -> None:
        self.revivals.resume()

    def end(self) -> None:
        self.revivals.end()

    async def save(self) -> None:
        """At a stop, so that the next start has little to read. Raises StoreFailed."""
        try:
            async with asyncio.timeout(SAVE_TIMEOUT_S):
                await self.journal.followed()
                await self.file.save_if_room()
        except StoreFailed:
            raise
        except (AerobeeError, TimeoutError) as error:
            log_event(
                log, "messages in flight could not be saved", level=logging.WARNING, reason=error
            )

    def offset_set(self, key: GroupQueue) -> None:
        """The group's offset on a queue was set or removed."""
        if self.journal.term is not None:
            self.pops.begin_again(key, self._parts.offsets.query(key))

    def _is_behind(self, key: GroupQueue) -> bool:
        """Whether more is finished than is confirmed. Raises AerobeeError: it is not known now."""
        term, standing = self.journal.term, self.state.standing(key)
        if term is None or standing is None:
            return False
        # A new term writes here what copies have replaced meanwhile, though nobody polls the queue.
        term.queue(key)
        return term.is_ahead(key, standing.committed)

    def _is_used(self, key: GroupQueue) -> bool:
        return self.bells.is_waited_at(key) or bool(self._parts.clients.members(key.group))

    def _make_term(self, writer: EntryWriter) -> PopTerm:
        parts = self._parts
        return PopTerm(
            self.state,
            writer,
            parts.clock,
            is_ordered=self.is_ordered,
            held_until_ms=parts.clients.held_until_ms,
            finished_elsewhere=self._finished_elsewhere,
        )

    def _finished_elsewhere(self, key: GroupQueue) -> Iterable[Range] | None:
        self._parts.journal.writer()  # raises while it is not known yet
        return finished_by(self._parts.journal_state, key)

    def _make_moves(self, pops: Pops) -> Moves:
        retries = self._parts.retries
        return Moves(
            retries.send_backs,
            self._parts.clock,
            make_topics=retries.topics.make,
            on_moved=pops.moved,
            on_kept=pops.kept,
        )

    def _next_ms(self, key: GroupQueue) -> int | None:
        queue = self.queue(key)
        return None if queue is None else queue.wake_ms()

    def _on_begin(self, term: PopTerm) -> None:
        self._parts.clients.begin()
        for queue in term.queues():
            self.commits.note(queue.key)

    def _on_end(self) -> None:
        self.bells.ring_all()
