"""A master ends transactions: stores the message and marks the half message, or only marks it.

    is it known? -> read the half message -> carried out with the other ends of this turn of the
      loop (end_turns) -> answer once all of it is as safe as an ordinary send

A half message whose producers are asked is stored again at the end of its topic; one that they
never decided is set aside, for an operator to decide. Both are a copy and an op message in one
turn. A log that ends between them has both records, and the half message is the valid one.

Owns: the order of these steps. A transaction ends once. A repeated request, for the same end or
another, later or concurrently, waits for the first one and gets its result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aerobee.broker.reading.handed import Handed
from aerobee.broker.reading.message_lookup import KeyQuery, MessageLookup
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.halves import HALF_QUEUE
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.deliverable import Deliverable, half_record, undeliverable
from aerobee.broker.transactions.end_turns import (
    Caller,
    Ending,
    EndTurns,
    WantedEnd,
    not_master,
)
from aerobee.broker.transactions.intents import Commit, CommitIntent
from aerobee.broker.transactions.known import KnownHalves
from aerobee.broker.transactions.op_messages import OpMessage
from aerobee.broker.transactions.pending import TransactionName, name_of
from aerobee.broker.transactions.questions import Question
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    AerobeeError,
    DeadlineExceeded,
    InvalidArgument,
    MessageNotFound,
    TopicNotFound,
)
from aerobee.runtime.log import log_event
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
    HalfMessage,
    Outcome,
    aside_record,
    checked_record,
    transaction_id_of,
)

log = logging.getLogger(__name__)

ENDS: Final = (Outcome.COMMITTED, Outcome.ROLLED_BACK)

ReadHalf = Callable[[str, HalfMessage], Awaitable[bytes]]
"""The half message's record in a topic. Raises MessageNotFound, AerobeeError."""


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
        self._durability = durability
        self._lookup = lookup
        self._clock = clock
        self._read_half = read_half
        self._turns = turns = EndTurns(
            known, Deliverable(topics, writes), writes, store, guard, clock, on_owing=on_owing
        )
        self._ops, self._ending = turns.ops, turns.ending
        self._term: object | None = None
        self._progress = Waiters()
        self.committed, self.rolled_back = turns.committed, turns.rolled_back
        self.latency_s = turns.latency_s
        self.checked = 0

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
        self._turns.end_term()
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

    def _knows(self, name: TransactionName, begun: Ending) -> bool:
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
        if self._term is None:
            await self._until(lambda: self._term is not None, deadline_s)
        while True:
            if self._known.is_recent(name):
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
                raise not_master()
            caller = Caller()
            wanted = self._turns.want(name, outcome, state, waiting, data, caller)
            await caller.wait()
            if (ending := wanted.result()) is not None:
                return await self._safe(ending, deadline_s)

    async def standing(self, name: TransactionName, timeout_ms: int) -> Outcome | None:
        """How a transaction ended, as safe as an end; None: it is open. UNKNOWN: it has ended, and
        the index no longer has its topic. Raises as `end`."""
        deadline_s = self._clock.monotonic_s() + timeout_ms / 1_000
        await self._until(lambda: self._term is not None, deadline_s)
        if (begun := self._ending.get(name)) is not None:
            return await self._safe(begun, deadline_s)
        if self._known.is_recent(name) or self._pending.of(name):
            return None
        outcome = await self._ended_before(name)
        if outcome is not Outcome.UNKNOWN:
            return outcome
        try:
            return await self._by_its_message(name)
        except TopicNotFound:
            return Outcome.UNKNOWN

    async def _by_its_message(self, name: TransactionName) -> Outcome:
        """It ended so long ago that only the index tells: its message is after its half message, so
        the index has both or none."""
        for message_id in {name.transaction_id, id_before(name.transaction_id)}:
            query = KeyQuery(name.topic, message_id, is_unique_key=True, even_unkept=True)
            for record in map(Record, (await self._lookup.by_key(query)).records):
                if transaction_id_of(record) == name.transaction_id:
                    return Outcome.COMMITTED
        return Outcome.ROLLED_BACK

    async def end_together(
        self, wanted: Sequence[tuple[TransactionName, Outcome]], timeout_ms: int
    ) -> list[Outcome | None]:
        """End what can be ended without waiting. Returns how each transaction ended; None: it has
        ended, or not, and `end` says which."""
        deadline_s = self._clock.monotonic_s() + timeout_ms / 1_000
        caller = Caller()
        asked = [self._want_now(name, outcome, caller) for name, outcome in wanted]
        await caller.wait()
        endings = [each.decided if isinstance(each, WantedEnd) else each for each in asked]
        known = [each if isinstance(each, Ending) else None for each in endings]
        end = max((each.end for each in known if each is not None), default=0)
        if await self._durability.wait_safe(end, deadline_s) is not None:
            return [None] * len(wanted)
        return [each and each.outcome for each in known]

    def _want_now(
        self, name: TransactionName, outcome: Outcome, caller: Caller
    ) -> WantedEnd | Ending | None:
        """None: it cannot be ended at once."""
        if self._term is None or self._known.is_recent(name):
            return None
        if (begun := self._ending.get(name)) is not None:
            return begun
        waiting = self._pending.of(name)
        data: bytes | None = b""
        if waiting and outcome is Outcome.COMMITTED:
            data = self._half_at_once(waiting[-1])
        if not waiting or data is None:
            return None
        return self._turns.want(name, outcome, self._pending, waiting, data, caller)

    def _half_at_once(self, half: HalfMessage) -> bytes | None:
        """Its record, if it is in the page cache."""
        try:
            found = self._store.reads.pieces(((half.position, half.size),))
        except AerobeeError:
            return None
        return found if isinstance(found, bytes) else None

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

    async def _safe(self, begun: Ending, deadline_s: float) -> Outcome:
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

    def check(self, half: HalfMessage, data: bytes, ask: Callable[[Question], bool]) -> bool:
        """Ask its producers how an open transaction ends; its half message is stored again.

        False: no producer can be asked now, or it has ended. Raises AerobeeError: nothing has
        happened, or the check was not counted.
        """
        if not self._is_open(half):
            return False
        self._guard.check_master()
        self.pay()
        record, checks = half_record(half, data), half.checks + 1
        try:
            copy = checked_record(
                record,
                checks=checks,
                transaction_id=half.transaction_id,
                store_host_ipv6=self._writes.store_host_ipv6,
            )
        except (RecordCorrupt, RecordIllegal) as error:
            raise undeliverable(half, str(error)) from None
        if not ask(Question(half, record, checks)):
            return False
        name = name_of(half)
        offsets = self._pending.offsets(name)
        with self._writes.publishing:
            appended = self._append(half, Moved(HALF_TOPIC, HALF_QUEUE, copy))
            self.checked += 1
            # An end that comes before the copy is followed must also name it.
            self._known.stored_again(name, half.content, appended)
            self._ops.owe(OpMessage(Outcome.CHECKED, offsets))
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
                half_record(half, data),
                transaction_id=half.transaction_id,
                store_host_ipv6=self._writes.store_host_ipv6,
            )
        except (RecordCorrupt, RecordIllegal) as error:
            raise undeliverable(half, str(error)) from None
        name = name_of(half)
        with self._writes.publishing:
            appended = self._append(half, Moved(ASIDE_TOPIC, HALF_QUEUE, copy))
            self._ending[name] = Ending(Outcome.SET_ASIDE, appended.end)
            self._ops.owe(OpMessage(Outcome.SET_ASIDE, self._pending.offsets(name), [name]))
        return True

    def _is_open(self, half: HalfMessage) -> bool:
        """Whether this is the newest record of a transaction that is not being ended."""
        name = name_of(half)
        if self._term is None or name in self._ending or self._known.is_recent(name):
            return False
        return self._pending.of(name)[-1:] == [half]

    def _append(self, half: HalfMessage, moved: Moved) -> Appended:
        """The caller owes the op message before it publishes."""
        try:
            return self._writes.append_copies(moved.topic, moved.queue_id, [moved.record], ())
        except BatchIllegal as error:
            raise undeliverable(half, str(error)) from None

    @property
    def handed_ops(self) -> Handed[OpMessage]:
        """Op messages, for their follower."""
        return self._ops.handed

    def pay(self) -> None:
        """Write the op messages that could not be written with their messages. Raises
        AerobeeError: it is still not possible."""
        self._ops.pay()

    @property
    def owes(self) -> bool:
        """Whether an op message is missing."""
        return bool(self._ops)

    def finish(self, intent: CommitIntent, stored: Sequence[Commit]) -> bool:
        """Finish what the last master began last; the messages of `stored` are there. Returns
        whether something was missing, which must be followed before anything else ends. Raises
        AerobeeError: it is not finished."""
        state = self._aside if intent.is_aside else self._pending
        missing = [each for each in stored if state.at(each.half_offset) is not None]
        if not missing:
            return False
        offsets = [offset for each in missing for offset in each.offsets]
        self._ops.write(OpMessage(Outcome.COMMITTED, offsets, is_aside=intent.is_aside))
        log_event(
            log,
            "commits of the last master are finished",
            halves=[each.half_offset for each in missing],
            topics=sorted({each.topic for each in missing}),
        )
        return True

    def drop_leftovers(self) -> bool:
        """If the last master died while it set something aside, the half message is the valid one.
        Returns as `finish`. Raises AerobeeError."""
        leftovers = self._aside.names & self._pending.names
        for name in leftovers:
            offsets = self._aside.offsets(name)
            self._ops.write(OpMessage(Outcome.CHECKED, offsets, is_aside=True))
        return bool(leftovers)
