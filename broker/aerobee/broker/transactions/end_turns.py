"""Carries out the ends that were asked for in one turn of the loop, together.

    intent -> the messages of the commits -> op message of the commits -> op message of the
      rollbacks, all published at once

Owns: what was decided under this term and is not followed yet. Each transaction is decided once: an
end that finds that another one came first has to be looked at again.
Invariant: the messages of an intent are stored in its order, up to the first that is refused; no
commit begins before what was stored by the last ones has its op message.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.deliverable import Deliverable, undeliverable
from aerobee.broker.transactions.intents import TRANSACTION_JOURNAL_TOPIC, Commit, CommitIntent
from aerobee.broker.transactions.known import KnownHalves
from aerobee.broker.transactions.op_messages import OpMessage, OpMessages
from aerobee.broker.transactions.pending import PendingHalves, TransactionName
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    AerobeeError,
    IllegalName,
    MessageTooLarge,
    NotMaster,
    StoreFailed,
)
from aerobee.runtime.metrics.histogram import Histogram
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchIllegal
from aerobee.store.format.delayed_records import Moved
from aerobee.store.format.transaction_records import HalfMessage, Outcome

LATENCY_S: Final = (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 3_600)
TOGETHER_MAX: Final = 128
TOGETHER_BYTES: Final = 1024 * 1024
"""So many ends, or the one that exceeds these bytes, are carried out before others get the loop."""


class Ending(NamedTuple):
    """An end that is in the log up to `end`, and not followed yet. `is_aside`: the transaction had
    been set aside."""

    outcome: Outcome
    end: int
    is_aside: bool = False


class Caller:
    """Waits for the ends that it asked for."""

    __slots__ = ("_told", "_unanswered")

    def __init__(self) -> None:
        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unanswered = 0

    def asked(self) -> None:
        """For one more."""
        self._unanswered += 1

    def answered(self) -> None:
        """One of them."""
        self._unanswered -= 1
        if not self._unanswered and not self._told.done():
            self._told.set_result(None)

    @property
    def has_gone(self) -> bool:
        """Whether it was cancelled."""
        return self._told.cancelled()

    async def wait(self) -> None:
        """Until all are answered."""
        if self._unanswered:
            await self._told


@dataclass(slots=True, eq=False)
class WantedEnd:
    """An end that may be carried out if the transaction still waits as it did."""

    name: TransactionName
    outcome: Outcome
    state: PendingHalves
    waiting: Sequence[HalfMessage]
    """Its records, newest last."""
    data: bytes
    """The newest record, of a commit."""
    caller: Caller
    is_answered: bool = False
    decided: Ending | AerobeeError | None = None
    """The answer. None: the transaction was ended or checked meanwhile. AerobeeError: nothing has
    happened."""

    @property
    def half(self) -> HalfMessage:
        return self.waiting[-1]

    def answer(self, decided: Ending | AerobeeError | None) -> None:
        """The first answer counts."""
        if not self.is_answered:
            self.is_answered, self.decided = True, decided
            self.caller.answered()

    def result(self) -> Ending | None:
        """Raises AerobeeError: nothing has happened."""
        if isinstance(self.decided, AerobeeError):
            raise self.decided
        return self.decided


class _Delivery(NamedTuple):
    """The message of a commit."""

    wanted: WantedEnd
    moved: Moved

    @property
    def destination(self) -> tuple[str, int]:
        return self.moved.topic, self.moved.queue_id


class EndTurns:
    """On the loop."""

    def __init__(
        self,
        known: KnownHalves,
        deliverable: Deliverable,
        writes: OwnWrites,
        store: MessageStore,
        guard: Guard,
        clock: Clock,
        *,
        on_owing: Callable[[], None],
    ) -> None:
        """`on_owing`: op messages must be paid soon."""
        self._known = known
        self._aside = known.aside
        self._deliverable = deliverable
        self._writes = writes
        self._store = store
        self._guard = guard
        self._clock = clock
        self.ops = OpMessages(writes, on_written=self._note_written, on_owing=on_owing)
        self._wanted: list[WantedEnd] = []
        self.ending: dict[TransactionName, Ending] = {}
        self.committed: Counter[str] = Counter()
        """By topic."""
        self.rolled_back: Counter[str] = Counter()
        self.latency_s = Histogram(LATENCY_S)

    def end_term(self) -> None:
        """Nothing that was asked for is carried out."""
        self.ending.clear()
        self.ops.forget()
        wanted, self._wanted = self._wanted, []
        for each in wanted:
            each.answer(not_master())

    def _note_written(self, op: OpMessage, end: int) -> None:
        if op.outcome is not Outcome.CHECKED:
            for name in op.names:
                self.ending[name] = Ending(op.outcome, end, op.is_aside)

    def want(
        self,
        name: TransactionName,
        outcome: Outcome,
        state: PendingHalves,
        waiting: Sequence[HalfMessage],
        data: bytes,
        caller: Caller,
    ) -> WantedEnd:
        """Carry it out with the other ends of this turn of the loop."""
        if not self._wanted:
            asyncio.get_running_loop().call_soon(self._act)
        caller.asked()
        wanted = WantedEnd(name, outcome, state, waiting, data, caller)
        self._wanted.append(wanted)
        return wanted

    # ------------------------------------------------------------------------------ acting

    def _act(self) -> None:
        together, self._wanted = _first_part(self._wanted)
        if self._wanted:
            asyncio.get_running_loop().call_soon(self._act)
        try:
            self._guard.check_master()
            # A reader that sees a message must find a broker that knows it is done.
            with self._writes.publishing:
                self._end_all(list(self._chosen(together)))
        except AerobeeError as error:
            for each in together:
                each.answer(error)
            return
        for each in together:
            each.answer(self.ending.get(each.name))

    def _chosen(self, together: Sequence[WantedEnd]) -> Iterator[WantedEnd]:
        names: set[TransactionName] = set()
        for each in together:
            name = each.name
            if each.caller.has_gone:
                continue
            is_new = name in names or name in self.ending or self._known.is_recent(name)
            if is_new or each.state.of(name) != each.waiting:
                each.answer(None)
                continue
            names.add(name)
            yield each

    def _end_all(self, chosen: Sequence[WantedEnd]) -> None:
        """Raises StoreFailed."""
        for is_aside in (False, True):
            own = [each for each in chosen if (each.state is self._aside) is is_aside]
            deliveries: list[_Delivery] = []
            for each in own:
                if each.outcome is Outcome.COMMITTED:
                    try:
                        moved = self._deliverable.message(each.half, each.data)
                    except AerobeeError as error:
                        each.answer(error)
                    else:
                        deliveries.append(_Delivery(each, moved))
            if deliveries:
                self._commit(deliveries, is_aside=is_aside)
            rollbacks = [each for each in own if each.outcome is Outcome.ROLLED_BACK]
            if rollbacks:
                self._roll_back(rollbacks, is_aside=is_aside)

    def _roll_back(self, wanted: Sequence[WantedEnd], *, is_aside: bool) -> None:
        try:
            self.ops.pay()
            self.ops.write(_op_of(wanted, Outcome.ROLLED_BACK, is_aside=is_aside))
        except StoreFailed:
            raise
        except AerobeeError as error:
            _refuse(wanted, error)
            return
        for each in wanted:
            self.rolled_back[each.name.topic] += 1

    def _commit(self, deliveries: list[_Delivery], *, is_aside: bool) -> None:
        deliveries.sort(key=lambda each: each.destination)
        groups = [list(group) for _, group in groupby(deliveries, lambda each: each.destination)]
        stored: list[WantedEnd] = []
        try:
            self.ops.pay()
            intent = CommitIntent(tuple(self._commits(groups)), is_aside)
            self._writes.append(TRANSACTION_JOURNAL_TOPIC, 0, intent.encode())
            for group in groups:
                (topic, queue_id), records = group[0].destination, [e.moved.record for e in group]
                appended = self._writes.append_copies(topic, queue_id, records, ())
                stored += self._note(group, appended, is_aside=is_aside)
        except StoreFailed:
            raise
        except (BatchIllegal, MessageTooLarge, IllegalName) as error:
            missing = deliveries[len(stored) :]
            if len(deliveries) == 1:
                missing[0].wanted.answer(undeliverable(missing[0].wanted.half, str(error)))
                return
            self._owe(stored, is_aside=is_aside)
            # One of them does not fit: each has an intent of its own.
            for each in missing:
                self._commit([each], is_aside=is_aside)
            return
        except AerobeeError as error:
            _refuse([each.wanted for each in deliveries[len(stored) :]], error)
        self._owe(stored, is_aside=is_aside)

    def _commits(self, groups: Sequence[Sequence[_Delivery]]) -> Iterator[Commit]:
        for group in groups:
            topic, queue_id = group[0].destination
            first = self._store.queues.get_or_create(topic, queue_id).next_offset
            for offset, (wanted, _) in enumerate(group, first):
                half, offsets = wanted.half, wanted.state.offsets(wanted.name)
                also_done = tuple(each for each in offsets if each != half.offset)
                yield Commit(half.offset, half.position, topic, queue_id, offset, also_done)

    def _note(
        self, group: Sequence[_Delivery], appended: Appended, *, is_aside: bool
    ) -> Iterator[WantedEnd]:
        now_ms = self._clock.now_ms()
        for wanted, _ in group:
            self.committed[wanted.name.topic] += 1
            self.latency_s.observe(max(0, now_ms - wanted.half.born_ms) / 1_000)
            self.ending[wanted.name] = Ending(Outcome.COMMITTED, appended.end, is_aside)
            yield wanted

    def _owe(self, stored: Sequence[WantedEnd], *, is_aside: bool) -> None:
        if stored:
            self.ops.owe(_op_of(stored, Outcome.COMMITTED, is_aside=is_aside))


def not_master() -> NotMaster:
    """The term has ended since it was asked for."""
    return NotMaster("this replica's term as master has just ended; ask the master")


def _first_part(wanted: list[WantedEnd]) -> tuple[list[WantedEnd], list[WantedEnd]]:
    """The first ones, at a bounded price, and the rest."""
    size = 0
    for count, each in enumerate(wanted[:TOGETHER_MAX], 1):
        size += len(each.data)
        if size > TOGETHER_BYTES:
            return wanted[:count], wanted[count:]
    return wanted[:TOGETHER_MAX], wanted[TOGETHER_MAX:]


def _op_of(wanted: Sequence[WantedEnd], outcome: Outcome, *, is_aside: bool) -> OpMessage:
    offsets = [offset for each in wanted for offset in each.state.offsets(each.name)]
    return OpMessage(outcome, offsets, [each.name for each in wanted], is_aside)


def _refuse(wanted: Sequence[WantedEnd], error: AerobeeError) -> None:
    for each in wanted:
        each.answer(error)
