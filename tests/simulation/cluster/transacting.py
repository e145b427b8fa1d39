"""A broker's transactions: the product's own composition over the simulated log.

Follower, state, ends, hold and what a new master finishes run unmodified, put together by
`transactions.feature`. Simulated here is what they see of the rest of the broker, and the send
path's handling of half messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.reading.message_lookup import KeyQuery
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.halves import HALF_QUEUE
from aerobee.broker.transactions.feature import Transactions
from aerobee.broker.transactions.intents import Commit, CommitIntent
from aerobee.broker.transactions.known import KnownHalves, opened_halves
from aerobee.broker.transactions.pending import TransactionName
from aerobee.broker.transactions.questions import Question
from aerobee.runtime.errors import MessageNotFound, NotWritable
from aerobee.runtime.loop_turns import LoopTurns
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import Appended
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.message_content import content_digest
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.properties import PropertyName, encode_properties
from aerobee.store.format.record_encode import body_crc
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    OP_TOPIC,
    HalfMessage,
    Outcome,
    half_of,
    half_properties,
)
from tests.simulation.cluster.log import Record
from tests.simulation.cluster.popping import (
    BrokerParts,
    OffsetJournal,
    QueueCoordinator,
    StoreQueues,
)
from tests.simulation.cluster.stored_queues import Placed

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.waiting import Waiting

SAGAS: Final = "sagas"
"""The topic whose messages belong to transactions."""
QUEUE_COUNT: Final = 2
_END_TIMEOUT_MS: Final = 1_500
_PENDING_MAX: Final = 1_000
CHECKS_MAX: Final = 3
_CONFIG: Final = SimpleNamespace(
    transactions=SimpleNamespace(timeout_ms=600, check_interval_ms=1_000, checks_max=CHECKS_MAX),
    store=SimpleNamespace(retention=SimpleNamespace(enabled=False)),
    metrics=SimpleNamespace(topics_max=10),
)


def name_of(number: int) -> TransactionName:
    """A client's transaction."""
    return TransactionName(SAGAS, f"T{number}")


class SimulatedTransactions(Transactions):
    """With the clients' side."""

    def __init__(self, broker: Broker, waiting: Waiting) -> None:
        self._broker = broker
        self._waiting = waiting
        parts: Any = _Parts(broker, waiting)
        self.known: KnownHalves = parts.halves
        super().__init__(parts)
        self.ask_also(parts)
        self._finish_as_varied()
        if not broker.world.variant.checks_open_ones_only:
            ends: Any = self.ends
            ends._is_open = lambda half: True

    def start(self) -> None:
        """What `run` runs, one by one: a process that dies ends each of them where it is."""
        for part in (self.follower.run(), self.leading.run(), self.checks.run()):
            self._waiting.loop.start(part)

    def appended(self, record: Record) -> None:
        """The log has grown by this record."""
        if isinstance(record.queue_id, tuple):
            self.follower.on_grown([record.queue_id])

    async def _read_half(self, topic: str, half: HalfMessage) -> bytes:
        if (data := await self._parts.queues.record(topic, HALF_QUEUE, half.offset)) is not None:
            return data
        raise MessageNotFound("it was removed from the log")

    def _finish_as_varied(self) -> None:
        """What a new master does with a commit that its predecessor has begun."""
        variant, ends, finish = self._broker.world.variant, cast("Any", self.ends), self.ends.finish

        def finish_as_varied(intent: CommitIntent, stored: Sequence[Commit]) -> bool:
            was_missing = variant.finishes_commits and finish(intent, stored)
            return was_missing and variant.knows_what_it_finished

        ends.finish = finish_as_varied

    # ------------------------------------------------------------------------------ clients

    async def take(self, number: int) -> bool:
        """A half message, unless it is stored. Returns whether it is safe. Raises AerobeeError."""
        name = name_of(number)
        if self._broker.world.variant.knows_before_it_takes:
            self.known.check_takes()
        data = encode_properties({PropertyName.UNIQ_KEY: name.transaction_id})
        content = content_digest(body_crc(b"%d" % number), data)
        transaction_id, placed = self.known.standing(*name, content)
        assert transaction_id == name.transaction_id, "nobody else has its id"
        if placed is None:
            properties = half_properties(data, topic=SAGAS, queue_id=number % QUEUE_COUNT)
            waiting = self._waiting
            stored = waiting.store(HALF_TOPIC, HALF_QUEUE, b"%d" % number, properties=properties)
            half = half_of(self._broker.folder.log.records[-1].data.record)
            placed = Appended(half.offset, half.position, stored.end, half.stored_ms)
            self.known.stored(half, placed)
        return await self._waiting.confirmed.wait(placed.end, float("inf"))

    async def end_by(self, number: int, outcome: Outcome, *, by_operator: bool) -> Outcome:
        """A client's call. Raises AerobeeError."""
        name = name_of(number)
        return await self.ends.end(name, outcome, _END_TIMEOUT_MS, by_operator=by_operator)


class _Parts(BrokerParts):
    """The rest of a broker, as `Transactions` needs it."""

    def __init__(self, broker: Broker, waiting: Waiting) -> None:
        super().__init__(broker, waiting)
        some: Any = self
        journal: Any = OffsetJournal(broker, waiting)
        coordinator: Any = QueueCoordinator(broker)
        self.store = _Store(broker, waiting)
        self.store_host_ipv6 = False
        self.config: Any = _CONFIG
        self.durability: Any = _Durability(
            waiting, is_waited_for=broker.world.variant.waits_for_ends
        )
        self.roles = waiting
        self.reads = self.writes = self.queues = self.lookup = some
        self.loop_turns = LoopTurns(waiting.clock)
        counts = {SAGAS: QUEUE_COUNT, HALF_TOPIC: 1, OP_TOPIC: 1, ASIDE_TOPIC: 1}
        topics = TopicTable(
            {
                name: TopicConfig(name=name, read_queue_count=count, write_queue_count=count)
                for name, count in counts.items()
            }
        )
        self.topics = topics
        self.guard: Guard = Guard(topics, broker_name="b", authority=some)
        store: MessageStore = some.store
        self.halves = opened_halves(broker.derived.table, store, _PENDING_MAX)
        self.journal = journal
        self.offsets: ConsumerOffsets = ConsumerOffsets(
            broker.derived.table,
            journal,
            coordinator,
            self.guard,
            self.clock,
            queue_max=self.store.max_offset,
        )

    def check_reads(self) -> None:
        """There are no readers here."""

    # ------------------------------------------------------------------------------ writes

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        properties: bytes = b"",
        reserve: bool = False,
    ) -> Placed:
        """A record of the broker's own; sometimes the disk is full even for small records."""
        self._check_room()
        is_end = topic in (OP_TOPIC, ASIDE_TOPIC)
        if is_end and not self._broker.world.variant.writes_ends:
            return cast(Placed, SimpleNamespace(end=self.store.appended_end))
        return self._waiting.store(topic, queue_id, body, properties=properties)

    def append_copies(
        self, topic: str, queue_id: int, records: Sequence[bytes], numbers: Sequence[ProducerRun]
    ) -> Placed:
        assert not numbers
        self._waiting.check()
        self._check_room()
        if topic == ASIDE_TOPIC and not self._broker.world.variant.keeps_what_is_set_aside:
            return cast(Placed, SimpleNamespace(end=self.store.appended_end))
        placed = [self._waiting.append_copy(topic, queue_id, data) for data in records]
        return Placed(placed[0].base_queue_offset, placed[-1].end)

    def _check_room(self) -> None:
        if self._waiting.chance.random() < self._broker.world.full_share:
            raise NotWritable("the disk is full")

    publishing = nullcontext()
    """It is published at the end of the turn."""

    # ------------------------------------------------------------------------------ checks

    def ask(self, question: Question) -> bool:
        """A producer, if there is one."""
        world, number = self._broker.world, int(bytes(question.record.body))
        return world.ask_producer(self._broker, number)

    # ------------------------------------------------------------------------------ reads

    async def record(
        self, topic: str, queue_id: int, offset: int, *, even_unkept: bool = False
    ) -> bytes | None:
        """As consumers see it."""
        await self._waiting.read_takes_time()
        found = self._waiting.queues.confirmed((topic, queue_id), offset, 1)
        return bytes(found[0][1].data.data) if found else None

    async def by_key(self, query: KeyQuery) -> Any:
        """What the index finds."""
        await self._waiting.read_takes_time()
        queues, name = self._waiting.queues, (query.topic, HALF_QUEUE)
        found = queues.confirmed(name, queues.bounds(name).min_offset, 1 << 30)
        records = [bytes(each.data.data) for _, each in found]
        key = query.key
        return SimpleNamespace(
            records=[
                data
                for data, (_, each) in zip(records, found, strict=True)
                if each.data.record.unique_key == key
            ]
        )


class _Store(StoreQueues):
    """With what a commit needs of its destination queue."""

    def get_or_create(self, topic: str, queue_id: int) -> Any:
        return SimpleNamespace(next_offset=self.bounds(topic, queue_id).max_offset)


class _Durability:
    """Safe means confirmed, even where nothing waits for replicas: more than is promised, so that
    answers can be judged."""

    def __init__(self, waiting: Waiting, *, is_waited_for: bool) -> None:
        self._waiting = waiting
        self._is_waited_for = is_waited_for
        self.flushed = waiting.flushed
        self.listen = waiting.listen
        self.request_flush = waiting.request_flush

    async def wait_safe(self, end: int, deadline_s: float) -> Any:
        if not self._is_waited_for:
            return None
        left_s = deadline_s - self._waiting.clock.monotonic_s()
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                is_safe = await self._waiting.confirmed.wait(end, float("inf"))
        except TimeoutError:
            is_safe = False
        return None if is_safe else SimpleNamespace(value="replicas")
