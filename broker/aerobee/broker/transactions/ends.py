"""A master ends transactions: stores the message and marks the half message, or only marks it.

    is it known? -> read the half message -> may we? -> intent, message, op message, in one turn
      -> answer once all of it is as safe as an ordinary send

A half message whose producers are asked is stored again at the end of its topic; one that they
never decided is set aside, for an operator to decide. Both are a copy and an op message in one
turn. A log that ends between them has both records, and the half message is the valid one.

Owns: the order of these steps, and what was decided under this term and is not followed yet. A
transaction ends once. A repeated request, for the same end or another, later or concurrently, waits
for the first one and gets its result.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from aerobee.broker.reading.message_lookup import KeyQuery, MessageLookup
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.halves import HALF_QUEUE
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.intents import TRANSACTION_JOURNAL_TOPIC, CommitIntent
from aerobee.broker.transactions.known import KnownHalves
from aerobee.broker.transactions.pending import PendingHalves, TransactionName, name_of
from aerobee.broker.transactions.questions import Question
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    AerobeeError,
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    MessageIllegal,
    MessageNotFound,
    NotMaster,
    NotWritableTopic,
    StoreFailed,
    TopicNotFound,
)
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.histogram import Histogram
from aerobee.runtime.waiting import Waiters
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import Appended
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.batch import BatchIllegal
from aerobee.store.format.delayed_records import HALF_TOPIC, Moved
from aerobee.store.format.message_content import id_before
from aerobee.store.format.record_layout import RecordCorrupt, RecordIllegal
from aerobee.store.format.record_view import Record
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    OP_TOPIC,
    HalfIllegal,
    HalfMessage,
    Outcome,
    aside_record,
    checked_record,
    committed_record,
    op_body,
    op_properties,
    transaction_id_of,
)

log = logging.getLogger(__name__)

LATENCY_S: Final = (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 3_600)
ENDS: Final = (Outcome.COMMITTED, Outcome.ROLLED_BACK)

ReadHalf = Callable[[str, HalfMessage], Awaitable[bytes]]
"""The half message's record in a topic. Raises MessageNotFound, AerobeeError."""


class _Ending(NamedTuple):
    """An end that is in the log up to `end`, and not followed yet. `is_aside`: the transaction had
    been set aside."""

    outcome: Outcome
    end: int
    is_aside: bool = False


class _Owed(NamedTuple):
    """An op message that must follow what is already stored."""

    name: TransactionName
    offsets: Sequence[int]
    outcome: Outcome
    is_aside: bool = False


class Ends:
    """On the loop. `begin` and `end_term` set the parts of a term."""

    def __init__(
        self,
        known: KnownHalves,
        writes: OwnWrites,
        store: MessageStore,
        guard: Guard,
        topics: TopicTable,
        durability: Durability,
        lookup: MessageLookup,
        clock: Clock,
        *,
        read_half: ReadHalf,
        on_owing: Callable[[], None],
    ) -> None:
        """`on_owing`: `pay` must be called soon."""
        self._known = known
        self._pending = known.pending
        self._aside = known.aside
        self._writes = writes
        self._store = store
        self._guard = guard
        self._topics = topics
        self._durability = durability
        self._lookup = lookup
        self._clock = clock
        self._read_half = read_half
        self._on_owing = on_owing
        self._term: object | None = None
        self._ending: dict[TransactionName, _Ending] = {}
        self._owed: _Owed | None = None
        """What is stored has no op message yet."""
        self._progress = Waiters()
        self.committed: Counter[str] = Counter()
        """By topic."""
        self.rolled_back: Counter[str] = Counter()
        self.checked = 0
        self.latency_s = Histogram(LATENCY_S)

    # ------------------------------------------------------------------------------ the role

    def begin(self) -> None:
        """This master knows everything, and what the last one began is finished."""
        self._term = object()
        self._known.begin()
        self._wake()

    def end_term(self) -> None:
        """End no more transactions."""
        self._term = None
        self._known.end_term()
        self._ending.clear()
        self._owed = None
        self._wake()

    @property
    def is_ready(self) -> bool:
        """Whether transactions can be ended here."""
        return self._term is not None

    def followed(self) -> None:
        """The state has advanced."""
        for name in [name for name, begun in self._ending.items() if self._knows(name, begun)]:
            del self._ending[name]
        self._known.followed()
        self._wake()

    def _knows(self, name: TransactionName, begun: _Ending) -> bool:
        if begun.is_aside:
            return not self._aside.of(name)
        is_there = begun.outcome is not Outcome.SET_ASIDE or self._aside.of(name)
        return bool(is_there) and not self._pending.of(name)

    def _wake(self) -> None:
        self._progress.wake()

    # ------------------------------------------------------------------------------ ending

    async def end(
        self,
        name: TransactionName,
        outcome: Outcome,
        timeout_ms: int,
        *,
        by_operator: bool = False,
    ) -> Outcome:
        """End a transaction. Returns how it ended: with `outcome`, or as decided earlier.

        `by_operator`: also one that was set aside, which only an operator can end.

        Raises:
            MessageNotFound: there is no such transaction here.
            DeadlineExceeded: it may or may not have ended; ask again.
            NotMaster, Busy, and others: it has not ended here.
        """
        if outcome not in ENDS:
            raise InvalidArgument("end a transaction with COMMITTED or ROLLED_BACK")
        deadline_s = self._clock.monotonic_s() + timeout_ms / 1_000
        await self._until(lambda: self._term is not None, deadline_s)
        while True:
            await self._until(lambda: not self._known.is_recent(name), deadline_s)
            term = self._term
            if (begun := self._ending.get(name)) is not None:
                if not by_operator or begun.outcome is not Outcome.SET_ASIDE:
                    return await self._safe(begun, deadline_s)
                await self._until(lambda: name not in self._ending, deadline_s)
                continue
            state, waiting = self._pending, self._pending.of(name)
            if not waiting and by_operator:
                state, waiting = self._aside, self._aside.of(name)
            if not waiting:
                return await self._ended_before(name)
            data = b""
            if outcome is Outcome.COMMITTED:
                topic = HALF_TOPIC if state is self._pending else ASIDE_TOPIC
                data = await self._read_half(topic, waiting[-1])
            if term is None or term is not self._term:
                raise _not_master()
            is_new = name in self._ending or self._known.is_recent(name)
            if is_new or state.of(name) != waiting:
                continue  # it was ended or checked meanwhile
            self._act(name, state, waiting[-1], outcome, data)
            return await self._safe(self._ending[name], deadline_s)

    async def _ended_before(self, name: TransactionName) -> Outcome:
        if self._aside.of(name):
            return Outcome.SET_ASIDE
        ended = self._aside.ended(name) or self._pending.ended(name)
        if ended is not None:
            return ended.outcome
        # It ended long ago, or before this replica began to follow.
        try:
            if await self._was_stored(name):
                return Outcome.UNKNOWN
        except (InvalidArgument, TopicNotFound):
            pass
        # A master that has been replaced does not know what its successor has stored.
        self._guard.check_acting()
        raise MessageNotFound(
            f"topic {name.topic} has no transaction {name.transaction_id} here: it was not begun, "
            "or was forgotten because of its age"
        )

    async def _was_stored(self, name: TransactionName) -> bool:
        for message_id in {name.transaction_id, id_before(name.transaction_id)}:
            query = KeyQuery(HALF_TOPIC, message_id, is_unique_key=True)
            for record in map(Record, (await self._lookup.by_key(query)).records):
                is_of = record.property_value("REAL_TOPIC") == name.topic
                if is_of and transaction_id_of(record) == name.transaction_id:
                    return True
        return False

    async def _safe(self, begun: _Ending, deadline_s: float) -> Outcome:
        if (late := await self._durability.wait_safe(begun.end, deadline_s)) is not None:
            raise DeadlineExceeded(
                f"the end of the transaction is stored, but not safe in time because of: "
                f"{late.value}; ask again"
            )
        return begun.outcome

    async def _until(self, is_so: Callable[[], bool], deadline_s: float) -> None:
        """Raises NotMaster, DeadlineExceeded."""
        if is_so():
            return
        try:
            async with asyncio.timeout(max(0.0, deadline_s - self._clock.monotonic_s())):
                while not is_so():
                    self._guard.check_acting()
                    await self._progress.wait()
        except TimeoutError:
            raise DeadlineExceeded(
                "this broker is still reading the transactions that are open, or its replicas are "
                "late; ask again in a moment"
            ) from None

    # ------------------------------------------------------------------------------ acting

    def _act(
        self,
        name: TransactionName,
        state: PendingHalves,
        half: HalfMessage,
        outcome: Outcome,
        data: bytes,
    ) -> None:
        """Raises AerobeeError: nothing has happened."""
        self._guard.check_master()
        self.pay()
        is_aside = state is self._aside
        offsets = state.offsets(name)
        if outcome is Outcome.ROLLED_BACK:
            end = self._append_op(offsets, outcome, is_aside=is_aside)
            self._ending[name] = _Ending(outcome, end, is_aside)
            self.rolled_back[name.topic] += 1
            return
        moved = self._message(half, data)
        queue = self._store.queues.get_or_create(moved.topic, moved.queue_id)
        intent = CommitIntent(
            half.offset,
            half.position,
            moved.topic,
            moved.queue_id,
            queue.next_offset,
            tuple(offset for offset in offsets if offset != half.offset),
            is_aside,
        )
        with self._writes.publishing:
            self._writes.append(TRANSACTION_JOURNAL_TOPIC, 0, intent.encode())
            appended = self._append(half, moved)
            self.committed[name.topic] += 1
            self.latency_s.observe(max(0, self._clock.now_ms() - half.born_ms) / 1_000)
            # A reader that sees the message must find a broker that knows it is done.
            self._ending[name] = _Ending(outcome, appended.end, is_aside)
            self._owe(_Owed(name, offsets, outcome, is_aside))

    def check(self, half: HalfMessage, data: bytes, ask: Callable[[Question], bool]) -> bool:
        """Ask its producers how an open transaction ends; its half message is stored again.

        False: no producer can be asked now, or it has ended. Raises AerobeeError: nothing has
        happened, or the check was not counted.
        """
        if not self._is_open(half):
            return False
        self._guard.check_master()
        self.pay()
        record, checks = self._record(half, data), half.checks + 1
        try:
            copy = checked_record(
                record,
                checks=checks,
                transaction_id=half.transaction_id,
                store_host_ipv6=self._writes.store_host_ipv6,
            )
        except (RecordCorrupt, RecordIllegal) as error:
            raise _undeliverable(half, str(error)) from None
        if not ask(Question(half, record, checks)):
            return False
        name = name_of(half)
        offsets = self._pending.offsets(name)
        with self._writes.publishing:
            appended = self._append(half, Moved(HALF_TOPIC, HALF_QUEUE, copy))
            self.checked += 1
            # An end that comes before the copy is followed must also name it.
            self._known.stored(name.topic, name.transaction_id, half.content, appended)
            self._owe(_Owed(name, offsets, Outcome.CHECKED))
        return True

    def put_aside(self, half: HalfMessage, data: bytes) -> bool:
        """Set it aside for an operator to decide. False: the transaction has ended. Raises
        AerobeeError."""
        if not self._is_open(half):
            return False
        self._guard.check_master()
        self.pay()
        try:
            copy = aside_record(
                self._record(half, data),
                transaction_id=half.transaction_id,
                store_host_ipv6=self._writes.store_host_ipv6,
            )
        except (RecordCorrupt, RecordIllegal) as error:
            raise _undeliverable(half, str(error)) from None
        name = name_of(half)
        with self._writes.publishing:
            appended = self._append(half, Moved(ASIDE_TOPIC, HALF_QUEUE, copy))
            self._ending[name] = _Ending(Outcome.SET_ASIDE, appended.end)
            self._owe(_Owed(name, self._pending.offsets(name), Outcome.SET_ASIDE))
        return True

    def _is_open(self, half: HalfMessage) -> bool:
        """Whether this is the newest record of a transaction that is not being ended."""
        name = name_of(half)
        if self._term is None or name in self._ending or self._known.is_recent(name):
            return False
        return self._pending.of(name)[-1:] == [half]

    def _append(self, half: HalfMessage, moved: Moved) -> Appended:
        """The caller calls `_owe` before it publishes."""
        try:
            return self._writes.append_copies(moved.topic, moved.queue_id, [moved.record], ())
        except BatchIllegal as error:
            raise _undeliverable(half, str(error)) from None

    def _message(self, half: HalfMessage, data: bytes) -> Moved:
        """The message to deliver. Raises AerobeeError: it cannot be delivered."""
        topic = self._topics.get(half.topic)
        if topic is None:
            raise TopicNotFound(
                f"topic {half.topic} was deleted while the transaction was open: create it again, "
                "or roll the transaction back"
            )
        if half.topic in self._topics.ending:
            raise Busy(f"topic {half.topic} is being emptied; try again in a moment")
        if topic.has_batch_queues:
            raise NotWritableTopic(
                f"topic {half.topic} keeps batches as one message each, which this broker cannot "
                "write"
            )
        try:
            return committed_record(
                self._record(half, data), store_host_ipv6=self._writes.store_host_ipv6
            )
        except (RecordCorrupt, RecordIllegal, HalfIllegal) as error:
            raise _undeliverable(half, str(error)) from None

    def _record(self, half: HalfMessage, data: bytes) -> Record:
        try:
            record = Record(data, 0, len(data))
            if record.physical_offset == half.position:
                return record
        except RecordCorrupt as error:
            raise _undeliverable(half, str(error)) from None
        raise _undeliverable(half, f"it is not the record at {half.position}")

    def _owe(self, owed: _Owed) -> None:
        """Write the op message at once if possible."""
        self._owed = owed
        try:
            self.pay()
        except StoreFailed:
            raise
        except AerobeeError as error:
            # What is stored identifies it; the op message follows when the log takes it.
            log_event(log, "an op message waits to be written", level=logging.WARNING, reason=error)
            self._on_owing()

    def pay(self) -> None:
        """Write the op message that could not be written with its message. Raises AerobeeError: it
        is still not possible."""
        owed = self._owed
        if owed is None:
            return
        end = self._append_op(owed.offsets, owed.outcome, is_aside=owed.is_aside)
        self._owed = None
        if owed.outcome is not Outcome.CHECKED:
            self._ending[owed.name] = _Ending(owed.outcome, end, owed.is_aside)

    @property
    def owes(self) -> bool:
        """Whether an op message is missing."""
        return self._owed is not None

    def finish(self, intent: CommitIntent, is_stored: bool) -> bool:
        """Finish what the last master began last. Returns whether something was missing, which must
        be followed before anything else ends. Raises AerobeeError: it is not finished."""
        state = self._aside if intent.is_aside else self._pending
        if not is_stored or state.at(intent.half_offset) is None:
            return False
        self._append_op(intent.offsets, Outcome.COMMITTED, is_aside=intent.is_aside)
        log_event(
            log,
            "a commit of the last master is finished",
            half=intent.half_offset,
            topic=intent.topic,
            queue_id=intent.queue_id,
            offset=intent.offset,
        )
        return True

    def drop_leftovers(self) -> bool:
        """If the last master died while it set something aside, the half message is the valid one.
        Returns as `finish`. Raises AerobeeError."""
        leftovers = self._aside.names & self._pending.names
        for name in leftovers:
            self._append_op(self._aside.offsets(name), Outcome.CHECKED, is_aside=True)
        return bool(leftovers)

    def _append_op(self, offsets: Sequence[int], outcome: Outcome, *, is_aside: bool) -> int:
        # Even on a full disk: it is small, and what is done can be removed.
        return self._writes.append(
            ASIDE_TOPIC if is_aside else OP_TOPIC,
            HALF_QUEUE,
            op_body(offsets),
            properties=op_properties(outcome),
            reserve=True,
        ).end


def _not_master() -> NotMaster:
    return NotMaster("this replica's term as master has just ended; ask the master")


def _undeliverable(half: HalfMessage, reason: str) -> AerobeeError:
    return MessageIllegal(
        f"the message of transaction {half.transaction_id} cannot be delivered: {reason}; roll the "
        "transaction back"
    )
