"""Transactions: a feature, put together from its parts.

The state is followed on every replica; what a master does is in `leading.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Feature, Task
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.broker.reading.confirmed_records import ConfirmedReader
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.asked import AskedProducers
from aerobee.broker.transactions.checks import CheckRules, Checks
from aerobee.broker.transactions.ends import Ends
from aerobee.broker.transactions.figures import TransactionFigures
from aerobee.broker.transactions.follower import (
    READER,
    TransactionFollower,
)
from aerobee.broker.transactions.hold import TransactionsHold
from aerobee.broker.transactions.intents import TRANSACTION_JOURNAL_TOPIC
from aerobee.broker.transactions.known import KnownHalves
from aerobee.broker.transactions.leading import Leading
from aerobee.broker.transactions.listing import Listing
from aerobee.broker.transactions.questions import Producers, Question
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MessageNotFound
from aerobee.runtime.metrics.families import AnyFamily
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    LEAD,
    OP_TOPIC,
    HalfMessage,
)


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
        store, durability = parts.store, parts.durability
        self.turns = parts.reads.loop_turns
        self.pending, self.aside = parts.halves.pending, parts.halves.aside
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
            on_owing=self._on_owing,
        )
        self.follower = TransactionFollower(
            self.pending,
            self.aside,
            ConfirmedReader(READER, store, parts.roles, parts.reads),
            store,
            handed_halves=parts.halves.handed,
            handed_ops=self.ends.handed_ops,
            on_followed=self._on_followed,
        )
        self.checks = Checks(
            self.ends,
            self.pending,
            parts.clock,
            _rules(parts.config),
            read_half=self._read_half,
            ask=self._ask,
        )
        self.leading = Leading(
            parts, self.pending, self.aside, self.follower, self.ends, self.checks
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
        self.holds = (TransactionsHold(self.pending, self.aside, self.follower, store, durability),)
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
        self.leading.begin(term)

    async def leave(self) -> None:
        await self.leading.leave()

    def resume(self) -> None:
        self.leading.resume()

    def end(self) -> None:
        self.leading.end()

    # ------------------------------------------------------------------------------ running

    def tasks(self) -> Mapping[str, Task]:
        return {"transactions": self.run}

    async def figures(self) -> Sequence[AnyFamily]:
        return self.measured.families()

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.follower.run(), name="transactions-follower")
            tasks.create_task(self.leading.run(), name="transactions-master")
            tasks.create_task(self.checks.run(), name="transactions-checks")

    def _on_owing(self) -> None:
        self.leading.wake()

    def _on_followed(self) -> None:
        self.ends.followed()
        self.listing.followed()
        self.leading.look()

    def _on_confirmed(self) -> None:
        self.follower.on_confirmed()
        self.leading.look()

    # ------------------------------------------------------------------------------ asking

    def ask_also(self, producers: Producers) -> None:
        """Those of another protocol; they are asked before those known so far."""
        self.producers = (producers, *self.producers)

    def _ask(self, question: Question) -> bool:
        if question.record.property_value(LEAD):
            # Other protocols' clients know nothing of leads, and would decide by themselves.
            return self.asked.ask(question)
        # Each protocol's first in turn, if it has any.
        turn = question.checks % len(self.producers)
        ordered = (*self.producers[turn:], *self.producers[:turn])
        return any(each.ask(question) for each in ordered)

    # ------------------------------------------------------------------------------ reading

    async def _read_half(self, topic: str, half: HalfMessage) -> bytes:
        try:
            return await self._parts.queues.piece(half.position, half.size)
        except MessageNotFound:
            raise MessageNotFound(
                f"the half message of transaction {half.transaction_id} was removed from the log"
            ) from None


def _rules(config: BrokerConfig) -> CheckRules:
    retention, ours = config.store.retention, config.transactions
    reserved_ms = retention.file_reserved_hours * 3_600_000 if retention.enabled else None
    return CheckRules(ours.timeout_ms, ours.check_interval_ms, ours.checks_max, reserved_ms)
