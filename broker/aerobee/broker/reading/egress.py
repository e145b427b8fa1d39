"""The pull path: what a queue has from an offset on, and who is woken when more comes.

Owns: single reads (consume queue, then log), the waiting readers of each queue, and the running
pulls that depend on a lease. Synchronous on the loop except `load`, which reads cold data on a
pool.
Invariants: a reader that was told "no new message" and then waits in the same turn misses nothing,
because dispatch runs on this loop; a waiting reader is woken once and asks again; only `load` waits
for the disk. Only a master that knows its queues' bounds corrects a reader's offset: the master may
have what a slave lacks, and a slave may have messages that it does not show yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Protocol

from aerobee.access.meter import PATIENCE_S, reading_meter
from aerobee.access.quota import Traffic
from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.groups.queue_leases import GroupQueue, Lease
from aerobee.broker.reading.left_out import without_finished
from aerobee.broker.sending.guard import Guard
from aerobee.runtime.errors import ReplicaBehind
from aerobee.store.engine.queue_reads import QueueRead, QueueReads
from aerobee.store.engine.queues.reading import GetStatus
from aerobee.store.engine.read_work import ReadOutcome, ReadWork
from aerobee.store.engine.tables.finished_ranges import FinishedRanges

KIB = 1024
READ_BYTES_DEFAULT = 512 * KIB
READ_BYTES_MAX = 4 * 1024 * KIB
"""A single record may exceed it: the first is always returned whatever its size."""
READ_MESSAGES_MAX = 65_536


class ReadCode(Enum):
    """How a read ended."""

    OK = auto()
    NO_NEW_MESSAGE = auto()
    OFFSET_TOO_SMALL = auto()
    OFFSET_TOO_LARGE = auto()
    MESSAGE_REMOVED = auto()


_CODE_OF_STATUS: dict[GetStatus, ReadCode] = {
    GetStatus.FOUND: ReadCode.OK,
    GetStatus.NO_MATCHED_MESSAGE: ReadCode.OK,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ReadCode.NO_NEW_MESSAGE,
    GetStatus.NO_MESSAGE_IN_QUEUE: ReadCode.NO_NEW_MESSAGE,
    GetStatus.OFFSET_OVERFLOW_ONE: ReadCode.NO_NEW_MESSAGE,
    GetStatus.OFFSET_OVERFLOW_BADLY: ReadCode.OFFSET_TOO_LARGE,
    GetStatus.OFFSET_TOO_SMALL: ReadCode.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_FOUND_NULL: ReadCode.MESSAGE_REMOVED,
    GetStatus.MESSAGE_WAS_REMOVING: ReadCode.MESSAGE_REMOVED,
}


@dataclass(slots=True)
class Fetched:
    """What a read found. `records` is empty unless OK, and may be empty then too: nothing matched
    the filter up to `next_offset`."""

    code: ReadCode
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes = b""
    count: int = 0
    suggested_broker_id: int | None = None
    """The replica at which the reader should continue; None: here."""
    wait_s: float = 0.0
    """How long the reader's quota delays this answer."""


@dataclass(slots=True)
class ColdRead:
    """To be loaded in the reader's turn: the reader is far behind while others want something, its
    data is not in the page cache, or much must be evaluated to find it."""

    wanted: QueueRead
    work: ReadWork | None
    waits_for_loop: bool = False
    """Not cold: it is long, and other long work has the loop now."""


def _within(bytes_max: int, wanted: QueueRead) -> QueueRead:
    """The same read limited to fewer bytes; the first record comes whatever its size."""
    if wanted.max_bytes <= bytes_max:
        return wanted
    return replace(wanted, max_bytes=bytes_max)


class ReadableStore(Protocol):
    """What the pull path needs of the store."""

    @property
    def reads(self) -> QueueReads: ...


class Places(Protocol):
    """This replica's place in its group; implemented by
    aerobee.broker.replication.read_places.ReadPlaces."""

    @property
    def is_slave(self) -> bool: ...

    @property
    def knows_bounds(self) -> bool:
        """Whether an offset outside a queue's bounds is the reader's mistake."""
        ...

    def suggested(self, queue_id: int, read_end: int | None) -> int | None:
        """Where a reader that has read up to `read_end`, or everything (None), should continue."""
        ...


class OnlyReplica:
    """A master without slaves."""

    is_slave = False
    knows_bounds = True

    def suggested(self, queue_id: int, read_end: int | None) -> int | None:
        return None


Wake = Callable[[], None]
FinishedBy = Callable[[str, str, int], FinishedRanges | None]
"""What a reader that is a group has finished of a queue after its committed offset."""


class Egress:
    """Reads, waits and wakes, for all queues."""

    def __init__(
        self,
        guard: Guard,
        store: ReadableStore,
        counters: Counters,
        *,
        pool: ReadPool,
        places: Places | None = None,
        finished_by: FinishedBy = lambda reader, topic, queue_id: None,
    ) -> None:
        """Without `places`: a master without slaves."""
        self._finished_by = finished_by
        self._places = OnlyReplica() if places is None else places
        self._guard = guard
        self._store = store
        self._counters = counters
        self._pool = pool
        self._waiting: dict[tuple[str, int], dict[Wake, None]] = {}
        self._leased: dict[GroupQueue, dict[Wake, None]] = {}

    @property
    def is_slave(self) -> bool:
        """Whether leases are unknown here and not required."""
        return self._places.is_slave

    # ---------------------------------------------------------------------- reading

    def read(self, wanted: QueueRead) -> Fetched | ColdRead:
        """What is at an offset; never blocks.

        Raises:
            TopicNotFound, QueueNotFound, NotReadableTopic, ShuttingDown, StoreFailed;
            ReplicaBehind: another replica may have it; QuotaExceeded: only for a single read.
        """
        self._guard.check_available()
        self._guard.check_read(wanted.topic, wanted.queue_id)
        pool = self._pool
        if wanted.is_long and not pool.loop_turns.begin():
            return ColdRead(wanted, None, waits_for_loop=True)
        return self._read(wanted)

    def _read(self, wanted: QueueRead) -> Fetched | ColdRead:
        reads, pool = self._store.reads, self._pool
        is_behind = reads.is_behind(wanted)
        if is_behind and pool.spares_sends():
            return ColdRead(replace(wanted, max_bytes=min(wanted.max_bytes, pool.step_bytes)), None)
        if is_behind and pool.has_waiting:
            return ColdRead(wanted, None)
        meter = reading_meter(wanted.reader)
        if meter is not None:
            wanted = _within(meter.room(Traffic.READ, wanted.reader), wanted)
        found = reads.read(wanted)
        if isinstance(found, ReadWork):
            return ColdRead(wanted, found)
        if is_behind:
            self._advise(wanted)
        fetched = self._fetched(wanted, found)
        if meter is not None and fetched.count:
            fetched.wait_s = meter.spend(
                Traffic.READ, len(fetched.records), wanted.reader, requests=int(meter.follows)
            )
        return fetched

    async def load(self, cold: ColdRead) -> Fetched:
        """Read in the reader's turn, on a thread if the page cache does not have everything.

        Raises:
            Busy, StoreFailed; QuotaExceeded: only for a single read.
            AerobeeError: the disk could not be read, or its files are damaged.
        """
        if cold.waits_for_loop:
            await self.loop_turn(cold.wanted.reader)
            found = self._read(cold.wanted)
            if isinstance(found, Fetched):
                return found
            cold = found
        meter = reading_meter(cold.wanted.reader)
        if meter is None:
            return (await self._load(cold))[0]
        reader = cold.wanted.reader
        wanted = _within(meter.room(Traffic.COLD_READ, reader), cold.wanted)
        if wanted is not cold.wanted:
            cold = ColdRead(wanted, None)
        size, read_bytes = cold.wanted.max_bytes, 0
        patience_s = float("inf") if meter.follows else PATIENCE_S
        # The actual amount is known only afterwards: the excess is given back.
        wait_s = meter.spend(Traffic.COLD_READ, size, reader, patience_s=patience_s)
        try:
            await meter.pause(wait_s)
            fetched, read_bytes = await self._load(cold)
        finally:
            meter.spend(Traffic.COLD_READ, read_bytes - size, reader, requests=0)
        return fetched

    async def loop_turn(self, asker: str) -> None:
        """Wait for the next piece of long work on the loop, as `LoopTurns.turn`."""
        await self._pool.loop_turns.turn(asker)

    async def _load(self, cold: ColdRead) -> tuple[Fetched, int]:
        """What was found, and the bytes read for it."""
        wanted = cold.wanted
        reads, pool, counters = self._store.reads, self._pool, self._counters
        async with pool.turn(wanted.reader, wanted.max_bytes) as turn:
            found = cold.work or (reads.plan(wanted) if wanted.is_long else reads.read(wanted))
            if isinstance(found, ReadWork):
                counters.cold_reads += 1
                await turn.run(partial(found.run, pool.judging))
                found = reads.finish(wanted, found)
                counters.cold_bytes += found.read_bytes
            pool.spend(found.read_bytes)
            self._advise(wanted)
        return self._fetched(wanted, found), found.read_bytes

    def _advise(self, wanted: QueueRead) -> None:
        advice = self._store.reads.take_advice(wanted)
        if advice is not None:
            self._pool.run_aside(advice.run)

    def _fetched(self, wanted: QueueRead, outcome: ReadOutcome) -> Fetched:
        located = outcome.located
        if outcome.judged:
            self._counters.filter_judged += outcome.judged
            self._counters.filter_matched += located.count
        fetched = Fetched(
            _CODE_OF_STATUS[located.status],
            located.next_offset,
            located.min_offset,
            located.max_offset,
        )
        if located.status is not GetStatus.FOUND:
            if located.max_offset == 0 and wanted.offset > 0:
                fetched.code, fetched.next_offset = ReadCode.OFFSET_TOO_LARGE, 0
            if not self._places.knows_bounds:
                self._correct_nothing(wanted, fetched)
            return fetched
        fetched.count = located.count
        fetched.records = outcome.records
        finished = self._finished_by(wanted.reader, wanted.topic, wanted.queue_id)
        if finished is not None and finished.overlaps(wanted.offset, located.next_offset):
            fetched.records, fetched.count = without_finished(outcome.records, finished)
        read_end = sum(located.runs[-1])
        fetched.suggested_broker_id = self._places.suggested(wanted.queue_id, read_end)
        self._counters.messages_out += fetched.count
        self._counters.bytes_out += len(fetched.records)
        return fetched

    def _correct_nothing(self, wanted: QueueRead, fetched: Fetched) -> None:
        """Only a master that knows its queues' bounds sends a reader to another offset."""
        if fetched.code in (ReadCode.OFFSET_TOO_SMALL, ReadCode.MESSAGE_REMOVED):
            raise ReplicaBehind(
                f"this replica does not have the message at offset {wanted.offset} of queue "
                f"{wanted.queue_id} of topic {wanted.topic}; read it from the master"
            )
        if fetched.code is ReadCode.OFFSET_TOO_LARGE:
            fetched.code = ReadCode.NO_NEW_MESSAGE
        if fetched.code is ReadCode.NO_NEW_MESSAGE:
            fetched.next_offset = wanted.offset
            if self._places.is_slave:
                fetched.suggested_broker_id = self._places.suggested(wanted.queue_id, None)

    # ---------------------------------------------------------------------- waiting

    def wait(self, topic: str, queue_id: int, wake: Wake) -> None:
        """Call `wake` once when the queue grows."""
        self._waiting.setdefault((topic, queue_id), {})[wake] = None

    def forget(self, topic: str, queue_id: int, wake: Wake) -> None:
        """The reader no longer waits."""
        waiting = self._waiting.get((topic, queue_id))
        if waiting is not None:
            waiting.pop(wake, None)
            if not waiting:
                del self._waiting[topic, queue_id]

    @property
    def waiting(self) -> int:
        """The number of waiting readers."""
        return sum(map(len, self._waiting.values()))

    def on_grown(self, queues: Iterable[tuple[str, int]]) -> None:
        """Dispatch has added to these queues."""
        waiting = self._waiting
        if not waiting:
            return
        for queue in queues:
            wakes = waiting.pop(queue, None)
            if wakes is not None:
                for wake in wakes:
                    wake()

    def wake_all(self) -> None:
        """Make every reader ask again: a topic is gone, or the broker is stopping."""
        self.on_grown(list(self._waiting))

    # ---------------------------------------------------------------------- leases

    def watch_lease(self, key: GroupQueue, ended: Wake) -> None:
        """Call `ended` once when the present lease of the queue ends."""
        self._leased.setdefault(key, {})[ended] = None

    def unwatch_lease(self, key: GroupQueue, ended: Wake) -> None:
        watching = self._leased.get(key)
        if watching is not None:
            watching.pop(ended, None)
            if not watching:
                del self._leased[key]

    def on_lease_ended(self, lease: Lease) -> None:
        """Running pulls under this lease stop before another member gets the queue."""
        for ended in self._leased.pop(lease.key, ()):
            ended()


def clamp_bytes(max_bytes: int) -> int:
    """A reader's byte limit within the broker's; 0 asks for the default."""
    return min(max_bytes or READ_BYTES_DEFAULT, READ_BYTES_MAX)


def clamp_messages(max_messages: int) -> int:
    """A reader's message limit within the broker's; 0 asks for the maximum."""
    return min(max_messages or READ_MESSAGES_MAX, READ_MESSAGES_MAX)
