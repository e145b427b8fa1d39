"""A broker's POP: the product's own composition over the simulated log.

Journal, term, queues, polls, reads, moves, commits and the translation for clients run unmodified,
put together by `popping.feature`. Simulated here is what they see of the rest of the broker: a
store with records that have bytes, the offset journal of the present term, and who is master.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.edge.rocketmq.own_pops import OwnPops
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.writer import OffsetWriter
from aerobee.broker.pop.entries import POP_JOURNAL_TOPIC
from aerobee.broker.pop.journal_state import PopJournalState, file_reader
from aerobee.broker.pop.requests import PopLimits
from aerobee.broker.pop.term import EntryWriter, PopTerm
from aerobee.broker.popping.feature import Popping
from aerobee.broker.reading.egress import Egress
from aerobee.broker.retries.policy import RetryPolicy
from aerobee.broker.retries.send_backs import SendBacks
from aerobee.broker.sending.guard import Guard
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.rules.renewal import RenewalRules
from aerobee.runtime.errors import NotMaster, NotWritable, ReplicaBehind, StoreFailed
from aerobee.runtime.loop_turns import LoopTurns
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.queues.reading import GetStatus, Located, QueueBounds, out_of_range
from aerobee.store.engine.read_work import ReadOutcome
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.format.consume_queue_entry import pack_entry
from aerobee.store.format.dead_letter_fields import retry_topic
from tests.simulation.cluster.log import Record

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.stored_queues import Placed
    from tests.simulation.cluster.waiting import Waiting

ERRANDS: Final = "errands"
"""What is consumed by POP."""
PLAIN: Final = "P"
ORDERED: Final = "O"
"""Order matters for this group."""
QUEUE_COUNT: Final = 2
KEYS: Final = (
    *(
        GroupQueue(group, ERRANDS, each)
        for group in (PLAIN, ORDERED)
        for each in range(QUEUE_COUNT)
    ),
    GroupQueue(PLAIN, retry_topic(PLAIN), 0),
)
ATTEMPTS_MAX: Final = 3
LIMITS: Final = PopLimits(flights_max=10, waiting_max=8, span_max=6, repeated_ms=5_000)
RULES: Final = RenewalRules(silence_ms_max=2_500, held_ms_max=6_000, released_ms=200)
_IMAGE_INTERVAL_BYTES: Final = 12_000


def open_state(broker: Broker, waiting: Waiting) -> PopJournalState:
    """The folder's messages in flight."""
    folder = broker.folder
    if folder.pop_file is not None:
        try:
            journal_end = waiting.queues.bounds((POP_JOURNAL_TOPIC, 0)).max_offset
            return file_reader(journal_end)(folder.pop_file)
        except ValueError:
            folder.pop_file = None
    return PopJournalState()


class SimulatedPopping(Popping):
    """With queues that soon reach their limits, and the clients' side of it."""

    def __init__(self, broker: Broker, waiting: Waiting) -> None:
        self._broker = broker
        self._waiting = waiting
        self._seen = parts = _Parts(broker, waiting)
        any_parts: Any = parts
        super().__init__(any_parts, open_state(broker, waiting))
        parts.clients.on_gone = self.pops.client_gone
        self.offsets: ConsumerOffsets = parts.offsets
        self.clients: ClientTable = parts.clients
        no_lookup: Any = None  # no client gives up a message without its handle here
        self.own = OwnPops(
            "b",
            self.pops,
            parts.topics,
            parts.offsets,
            parts.guard,
            no_lookup,
            waiting.clock,
            waiting.chance,
            is_master=lambda: broker.master is not None,
            is_ordered=self.is_ordered,
            on_delivered=lambda *what: None,
        )
        self._growing: deque[tuple[int, QueueName]] = deque()

    def start(self) -> None:
        """What `run` runs, one by one: a process that dies ends each of them where it is."""
        for part in (self.journal, self.commits, self.file):
            self._waiting.loop.start(part.run())

    def _make_term(self, writer: EntryWriter) -> PopTerm:
        return self._broker.world.variant.pop_term(
            self.state,
            writer,
            self._waiting.clock,
            is_ordered=self.is_ordered,
            held_until_ms=self.clients.held_until_ms,
            finished_elsewhere=self._finished_elsewhere,
            limits=LIMITS,
        )

    # ------------------------------------------------------------------------------ the broker

    def appended(self, record: Record, start: int) -> None:
        """The log has grown by this record of a named queue."""
        assert isinstance(record.queue_id, tuple)
        self._growing.append((start + record.size, record.queue_id))

    def on_confirmed(self) -> None:
        """More of it is confirmed: consumers see it."""
        end, growing = self._broker.confirmed_end, self._growing
        grown: dict[QueueName, None] = {}
        while growing and growing[0][0] <= end:
            grown[growing.popleft()[1]] = None
        self._seen.egress.on_grown(list(grown))

    def save_now(self) -> None:
        """At a stop, with all of the log on disk."""
        self._broker.folder.pop_file = self.state.snapshot()()

    def needs(self, position: int) -> bool:
        """Whether a group has not finished something below this position."""
        queues, table = self._waiting.queues, self._broker.derived.table
        for key in KEYS:
            name = key.topic, key.queue_id
            first = max(table.query(*key) or 0, queues.bounds(name).min_offset)
            if any(start < position for start, _ in queues.records(name, first, 1)):
                return True
        return False


class BrokerParts:
    """Of the rest of a broker, what POP and transactions both need."""

    def __init__(self, broker: Broker, waiting: Waiting) -> None:
        self._broker = broker
        self._waiting = waiting
        self.clock = waiting.clock

    def check_may_act(self) -> None:
        master = self._broker.master
        if master is None or not master.acts:
            raise NotMaster("this replica may not act as master now")

    def check_enough(self) -> None:
        """The broker's own records need no more replicas than others."""


class _Parts(BrokerParts):
    """The rest of a broker, as `Popping` needs it."""

    def __init__(self, broker: Broker, waiting: Waiting) -> None:
        super().__init__(broker, waiting)
        some: Any = self
        offset_journal: Any = OffsetJournal(broker, waiting)
        coordinator: Any = QueueCoordinator(broker)
        self.config = SimpleNamespace(
            store=SimpleNamespace(segment_bytes=_IMAGE_INTERVAL_BYTES),
            groups=SimpleNamespace(waiting_polls_max=1_000),
        )
        self.store = StoreQueues(broker, waiting)
        self.durability = self.roles = waiting
        self.writes = self.files = some
        self.on_store_failed = self.report
        send_backs: SendBacks = waiting.send_backs
        self.retries = SimpleNamespace(settings=some, send_backs=send_backs, topics=some)
        self.topics: TopicTable = TopicTable(
            {
                ERRANDS: TopicConfig(
                    name=ERRANDS, read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT
                ),
                retry_topic(PLAIN): TopicConfig(
                    name=retry_topic(PLAIN), read_queue_count=1, write_queue_count=1
                ),
            }
        )
        pool: Any = _ReadPool(waiting)
        self.reads = pool
        self.guard: Guard = Guard(self.topics, broker_name="b", authority=some)
        counters: Any = SimpleNamespace(
            messages_out=0,
            bytes_out=0,
            cold_reads=0,
            cold_bytes=0,
            cold_reads_waiting=0,
            filter_judged=0,
            filter_matched=0,
        )
        any_store: Any = self.store
        self.egress = Egress(
            self.guard,
            any_store,
            counters,
            pool=pool,
            finished_by=lambda *name: broker.derived.journal.finished_beyond(GroupQueue(*name)),
        )
        self.journal_state = broker.derived.journal
        self.journal, self.coordinator = offset_journal, coordinator
        self.queues = SimpleNamespace(
            bounds=self.store.confirmed_bounds, max_offset=self.store.max_offset
        )
        self.offsets: ConsumerOffsets = ConsumerOffsets(
            broker.derived.table,
            offset_journal,
            coordinator,
            self.guard,
            self.clock,
            queue_max=self.store.max_offset,
        )
        self.clients: ClientTable = ClientTable(self.clock, rules=RULES)

    def check_reads(self) -> None:
        if self._broker.readable_end is None:
            raise ReplicaBehind("this replica does not know what is confirmed")

    # ------------------------------------------------------------------------------ writes, files

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        reserve: bool = False,
        ends_topic: str = "",
    ) -> Placed:
        """A record of the journal."""
        return self._waiting.store(topic, queue_id, body)

    async def write_encoded(self, path: str, encode: Callable[[], bytes]) -> None:
        data = await asyncio.to_thread(encode)
        if self._waiting.chance.random() < self._broker.world.full_share:
            raise NotWritable("the disk is full")
        self._broker.folder.pop_file = data

    def report(self, error: StoreFailed) -> None:
        raise error

    # ------------------------------------------------------------------------------ groups

    def policy(self, group: str) -> RetryPolicy:
        return RetryPolicy(is_ordered=group == ORDERED)

    async def make(self, group: str) -> None:
        """A group's topics always exist."""
        await asyncio.sleep(0)


class StoreQueues:
    """Its queues by name: readers see what is confirmed of them."""

    def __init__(self, broker: Broker, waiting: Waiting) -> None:
        self._broker = broker
        self._waiting = waiting
        self._found = waiting.queues
        self.queues = self.reads = self

    def on_grown(self, told: Callable[[list[QueueName]], None]) -> None:
        """Followers of a queue are notified by the broker's own part here."""

    @property
    def min_offset(self) -> int:
        return self._broker.folder.log.begin

    @property
    def appended_end(self) -> int:
        return self._broker.folder.log.end

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        return self._found.bounds((topic, queue_id))

    def confirmed_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        name = topic, queue_id
        return self._found.bounds(name).min_offset, self._found.confirmed_end(name)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.confirmed_bounds(topic, queue_id)[1]

    def read_entries(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        found = self._found.records((topic, queue_id), offset, count)
        return b"".join(pack_entry(start, record.size, 0) for start, record in found)

    def is_behind(self, wanted: QueueRead) -> bool:
        """Whether it must wait for its turn."""
        return self._waiting.chance.random() < 0.1

    def take_advice(self, wanted: QueueRead) -> None:
        return None

    def read(self, wanted: QueueRead) -> ReadOutcome:
        first, end = self.confirmed_bounds(wanted.topic, wanted.queue_id)
        located = out_of_range(QueueBounds(first, end), wanted.offset)
        if located is not None:
            return ReadOutcome(located)
        name = wanted.topic, wanted.queue_id
        found = self._found.confirmed(name, wanted.offset, wanted.max_messages)
        runs = [(start, record.size) for start, record in found]
        next_offset = wanted.offset + len(found)
        located = Located(GetStatus.FOUND, next_offset, first, end, runs, len(found))
        return ReadOutcome(located, b"".join(record.data.data for _, record in found))

    def plan(self, wanted: QueueRead) -> ReadOutcome:
        """For a filter that costs much: nothing is read on a thread here."""
        return self.read(wanted)


class _ReadPool:
    """For reads that must wait for the disk."""

    step_bytes = 1 << 20
    has_waiting = True

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self.loop_turns = LoopTurns(waiting.clock)
        self.judging = nullcontext()

    def spares_sends(self) -> bool:
        return False

    @asynccontextmanager
    async def turn(self, reader: str, size: int) -> AsyncIterator[None]:
        await self._waiting.wait_for_disk()
        yield

    def spend(self, size: int) -> None:
        """Not counted."""


class OffsetJournal:
    """The present term's journal, as seen by callers that commit."""

    def __init__(self, broker: Broker, waiting: Waiting) -> None:
        self._broker = broker
        self._waiting = waiting

    @property
    def is_ready(self) -> bool:
        return self._waiting.term() is not None

    def writer(self) -> OffsetWriter:
        writer = self._waiting.term()
        if writer is None and self._broker.master is not None:
            raise ReplicaBehind("this replica has just become master")
        if writer is None:
            raise NotMaster("this replica is a slave")
        return writer

    def check_granting(self) -> None:
        self.writer()

    async def begun(self, timeout_s: float) -> None:
        await asyncio.sleep(0.2 * timeout_s)


class QueueCoordinator:
    """The present term's members and owners of queues."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.ownership = self

    def _present(self) -> Any:
        master = self._broker.master
        if master is None:
            raise NotMaster("this replica is a slave")
        return master.groups.coordinator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._present().ownership, name)

    def expire(self, now_s: float) -> None:
        self._present().expire(now_s)
