"""POP at work: polls get messages or wait for some; clients' answers are recorded.

Owns: the steps of a call, and what waits between them. What a queue decides is added to the journal
in the same turn and reported only once confirmed; a client that has gone by then has received
nothing, and its messages are redelivered at once. After each await the queue is looked up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.requests import Delivery, Handled, Poll, ToRead
from aerobee.broker.pop.term import PopTerm, Written
from aerobee.broker.popping.bells import Bells, Waiter
from aerobee.broker.popping.confirmed import until_confirmed, until_known, when_known
from aerobee.broker.popping.moves import NO_REASON, Moves
from aerobee.broker.popping.reads import PopReads
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy
from aerobee.store.engine.queues.reading import Filter
from aerobee.store.format.record import Record

LOOK_MS_MAX: Final = 100
"""A poll that has something looks for more only this long: what it has is invisible meanwhile."""


class Popped(NamedTuple):
    """A message that was handed out."""

    key: GroupQueue
    delivery: Delivery
    record: Record


class Elsewhere(Protocol):
    """A poll that also waits for messages of other brokers."""

    is_rung: bool
    """There may be some."""
    wake: Callable[[], None] | None
    """To be called when it is rung."""


@contextmanager
def waking(waiter: Waiter, elsewhere: Elsewhere | None) -> Iterator[None]:
    """A ring from elsewhere ends the wait here."""
    if elsewhere is None:
        yield
        return
    elsewhere.wake = waiter.wake
    try:
        yield
    finally:
        elsewhere.wake = None


@dataclass(slots=True)
class _Part:
    """What a poll gets from one queue, once `done` is done."""

    key: GroupQueue
    deliveries: Sequence[Delivery]
    records: dict[int, Record]
    done: Written | None


@dataclass(slots=True)
class _Looked:
    """What one look at all queues found."""

    deadline_s: float
    """After it, a queue in which nothing has matched is left for the next poll."""
    taken_ms: int = 0
    """When the first part was taken: all parts of a poll have this time."""
    parts: list[_Part] = field(default_factory=list)
    refusal: AerobeeError | None = None


class Pops:
    """On the loop."""

    def __init__(
        self,
        writer: Callable[[], PopTerm],
        begin: Callable[[GroupQueue, Poll], Awaitable[None]],
        reads: PopReads,
        bells: Bells,
        clock: Clock,
        *,
        end_of: Callable[[str, int], int],
        make_moves: Callable[[Pops], Moves],
        on_finished: Callable[[GroupQueue], None],
    ) -> None:
        """`writer` raises AerobeeError while nothing can be handed out here. `begin` makes POP
        consume a queue. `end_of`: the offset of a queue's next message. `on_finished` is called for
        each queue that has newly finished messages."""
        self._writer = writer
        self._begin = begin
        self._reads = reads
        self._bells = bells
        self._clock = clock
        self._end_of = end_of
        self._moves = make_moves(self)
        self._on_finished = on_finished

    # ------------------------------------------------------------------------------ receiving

    async def receive(
        self,
        keys: Sequence[GroupQueue],
        poll: Poll,
        passing: Filter | None,
        wait_s: float,
        elsewhere: Elsewhere | None = None,
    ) -> list[Popped]:
        """Messages of these queues that pass an exact filter, searched in this order; empty: none
        came in time, or before there was something elsewhere. A caller that cannot deliver them
        must give them back.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy: nothing can be handed out now.
            LeaseHeld: members of the group consume the queues under leases.
            TopicNotFound, QueueNotFound, NotReadableTopic: as `Egress.read`.
        """
        deadline_s = self._clock.monotonic_s() + wait_s
        looked = await self._take_in_order(keys, poll, passing, deadline_s)
        if not looked.parts:
            with self._bells.waiting_at(keys, poll.topic) as waiter, waking(waiter, elsewhere):
                while not looked.parts:
                    waiter.looks()
                    looked = await self._take_in_order(keys, poll, passing, deadline_s)
                    if looked.parts or looked.refusal is not None:
                        break
                    left_s = deadline_s - self._clock.monotonic_s()
                    is_over = left_s <= 0 or (elsewhere is not None and elsewhere.is_rung)
                    if is_over or not await waiter.rung(left_s, self._bells.ends):
                        return []
        if not looked.parts:
            assert looked.refusal is not None
            raise looked.refusal
        return await self._confirmed(looked.parts)

    async def look(
        self, keys: Sequence[GroupQueue], poll: Poll, passing: Filter | None, deadline_s: float
    ) -> list[Popped]:
        """The same without waiting for messages: what is there now. `deadline_s`: until when
        messages that do not pass are skipped, in monotonic seconds."""
        looked = await self._take_in_order(keys, poll, passing, deadline_s)
        if looked.parts:
            return await self._confirmed(looked.parts)
        if looked.refusal is not None:
            raise looked.refusal
        return []

    async def _take_in_order(
        self, keys: Sequence[GroupQueue], poll: Poll, passing: Filter | None, deadline_s: float
    ) -> _Looked:
        looked = _Looked(deadline_s)
        left = poll.count
        try:
            for key in keys:
                part = await self._take_from(key, poll, left, passing, looked)
                if part is None:
                    continue
                looked.parts.append(part)
                left -= len(part.deliveries)
                self._bells.ring(key)  # there may be more
                if left <= 0 or self._clock.now_ms() - looked.taken_ms > LOOK_MS_MAX:
                    break
        except AerobeeError as error:
            looked.refusal = error
        except BaseException:
            self._return(looked.parts)
            raise
        return looked

    async def _take_from(
        self,
        key: GroupQueue,
        poll: Poll,
        count: int,
        passing: Filter | None,
        looked: _Looked,
    ) -> _Part | None:
        """Raises AerobeeError."""
        poll = poll if count == poll.count else poll.with_count(count)
        is_scan = False
        while True:
            queue = self._writer().queue(key)
            if queue is None:
                await self._begin(key, poll)
                queue = self._writer().queue(key)
                if queue is None:
                    raise Busy(f"{key} is changing owners; try again")
            now_ms = self._clock.now_ms()
            if repeated := queue.repeated(poll, now_ms):
                return await self._repeated(key, repeated)
            if queue.has_nothing(self._end_of(key.topic, key.queue_id), now_ms):
                return None
            wanted = queue.wants(poll, now_ms)
            for move in wanted.moves:
                self._moves.begin(key, move)
            if not wanted.again and wanted.room <= 0:
                looked.refusal = looked.refusal or wanted.refusal
                return None
            part, is_over = await self._taken(queue, poll, wanted, passing, looked, is_scan=is_scan)
            if part is not None or is_over:
                return part
            if self._clock.monotonic_s() >= looked.deadline_s:
                return None
            is_scan = True  # nothing matched
            await asyncio.sleep(0)

    async def _taken(
        self,
        queue: QueueState,
        poll: Poll,
        wanted: ToRead,
        passing: Filter | None,
        looked: _Looked,
        *,
        is_scan: bool,
    ) -> tuple[_Part | None, bool]:
        """And whether the queue has nothing more for this poll."""
        key = queue.key
        found = await self._reads.read(
            key,
            wanted,
            passing,
            is_ordered=queue.is_ordered,
            origin=poll.origin(key.topic),
            is_scan=is_scan,
        )
        term = self._writer()
        if term.queue(key) is not queue:
            return None, False
        now_ms = looked.taken_ms or self._clock.now_ms()
        if found.is_beyond:
            term.write(queue.begin_again(found.read.end, now_ms))
            return None, True
        taken = queue.take(poll, found.read, now_ms)
        done = term.write(taken.entries)
        if taken.entries:
            self._on_finished(key)
        if taken.deliveries:
            looked.taken_ms = now_ms
            return _Part(key, taken.deliveries, found.records, done), True
        return None, not found.read.again and found.read.end <= found.read.begin

    async def _repeated(self, key: GroupQueue, deliveries: Sequence[Delivery]) -> _Part | None:
        records = await self._reads.records(key, [each.offset for each in deliveries])
        kept = [each for each in deliveries if each.offset in records]
        return _Part(key, kept, records, self._writer().newest) if kept else None

    async def _confirmed(self, parts: list[_Part]) -> list[Popped]:
        """The messages that may be delivered now. Raises AerobeeError: none."""
        waits = {part.done for part in parts if part.done is not None}
        try:
            await until_known(waits)
        except asyncio.CancelledError:
            self._return(parts)
            raise
        popped: list[Popped] = []
        refusal: BaseException | None = None
        for part in parts:
            if part.done is not None and (error := part.done.exception()) is not None:
                refusal = error
            elif (queue := self._writer().queue(part.key)) is not None:
                # A repeated poll may have overtaken its first call, which gave everything back.
                popped += [
                    Popped(part.key, each, part.records[each.offset])
                    for each in part.deliveries
                    if queue.is_newest(each.offset, each.serial)
                ]
        if not popped and refusal is not None:
            raise refusal
        return popped

    def may_have(self, keys: Iterable[GroupQueue]) -> bool:
        """Whether a poll might get something from one of these queues now. Reads nothing."""
        with suppress(AerobeeError):
            term, now_ms = self._writer(), self._clock.now_ms()
            for key in keys:
                queue = term.queue(key)
                if queue is not None and queue.has_nothing(
                    self._end_of(key.topic, key.queue_id), now_ms
                ):
                    continue
                return True
            return False
        return True

    def has_messages(
        self, keys: Iterable[GroupQueue], begin_of: Callable[[GroupQueue], int]
    ) -> bool:
        """The same, but sure of queues that POP does not consume yet: it would begin at
        `begin_of`."""
        with suppress(AerobeeError):
            term, now_ms = self._writer(), self._clock.now_ms()
            for key in keys:
                queue, end = term.queue(key), self._end_of(key.topic, key.queue_id)
                if queue is None:
                    if begin_of(key) < end:
                        return True
                elif not queue.has_nothing(end, now_ms):
                    return True
        return False

    def unread(self, keys: Iterable[GroupQueue]) -> int:
        """How many messages of these queues polls can get now, as far as POP consumes them."""
        found = 0
        with suppress(AerobeeError):
            term, now_ms = self._writer(), self._clock.now_ms()
            for key in keys:
                queue = term.queue(key)
                if queue is not None:
                    found += queue.unread(self._end_of(key.topic, key.queue_id), now_ms)
        return found

    def serial_of(self, key: GroupQueue, offset: int, taken_ms: int, visible_ms: int) -> int:
        """The serial of a delivery by its times; 0: the message is not in flight by that one.
        Raises AerobeeError."""
        queue = self._writer().queue(key)
        flight = None if queue is None else queue.flight(offset)
        if flight is None or (flight.taken_ms, flight.visible_ms) != (taken_ms, visible_ms):
            return 0
        return flight.serial

    # ------------------------------------------------------------------------------ giving back

    def give_back(self, handles: Iterable[tuple[GroupQueue, int, int]]) -> None:
        """Give back deliveries (queue, offset, serial) whose receiver left before it got them."""
        parts: dict[GroupQueue, list[tuple[int, int]]] = {}
        for key, offset, serial in handles:
            parts.setdefault(key, []).append((offset, serial))
        for key, deliveries in parts.items():
            self._give_back(key, deliveries)

    def _return(self, parts: Iterable[_Part]) -> None:
        for part in parts:
            self._give_back(part.key, [each[:2] for each in part.deliveries])

    def _give_back(self, key: GroupQueue, handles: Iterable[tuple[int, int]]) -> None:
        with suppress(AerobeeError):  # they are redelivered when their time is up
            term = self._writer()
            queue = term.queue(key)
            if queue is not None:
                term.write(queue.give_back(handles, self._clock.now_ms()))
        self._bells.ring(key)

    # ------------------------------------------------------------------------------ handling

    async def acknowledge(
        self, key: GroupQueue, handles: Sequence[tuple[int, int]]
    ) -> list[Handled]:
        """Finish deliveries (offset, serial); one result for each. Raises AerobeeError: possibly
        none is finished."""
        term = self._writer()
        queue = term.queue(key)
        if queue is None:
            return [Handled.STALE] * len(handles)
        results = queue.acknowledge(handles, self._clock.now_ms())
        done = term.write(results.entries)
        if done is None and Handled.FINISHED in results.handled:
            done = term.newest
        if results.entries:
            self._finished(key, done)
        await until_confirmed(done)
        return results.handled

    async def change(
        self,
        key: GroupQueue,
        offset: int,
        serial: int,
        invisible_ms: int,
        *,
        is_counted: bool = True,
    ) -> tuple[Handled, Delivery | None]:
        """Redeliver the message after this time; returns the delivery that replaces the given one.
        Raises AerobeeError."""
        term = self._writer()
        queue = term.queue(key)
        if queue is None:
            return Handled.STALE, None
        changed = queue.change(
            offset, serial, invisible_ms, self._clock.now_ms(), is_counted=is_counted
        )
        done = term.write(changed.entries)
        if changed.handled is Handled.FINISHED:
            done = term.newest
        await until_confirmed(done)
        self._bells.times_changed(key)
        return changed.handled, changed.delivery

    async def forward(
        self,
        key: GroupQueue,
        offset: int,
        serial: int,
        client_id: str,
        reason: tuple[str, str] = NO_REASON,
    ) -> Handled:
        """The receiver gives up on the message: a dead letter replaces it. Raises AerobeeError."""
        term = self._writer()
        queue = term.queue(key)
        if queue is None:
            return Handled.STALE
        handled, move = queue.forward(offset, serial)
        if handled is Handled.FINISHED:
            await until_confirmed(term.newest)
        moving = self._moves.running(key, offset)
        if move is not None:
            moving = self._moves.begin(key, move, client_id, reason)
        if handled is Handled.DONE and moving is not None:
            await asyncio.shield(moving)
        return handled

    async def held(
        self, keys: Iterable[GroupQueue], client_id: str, is_wanted: Callable[[Record], bool]
    ) -> tuple[GroupQueue, Delivery] | None:
        """The delivery of a message that a client holds while it is alive; None: it has no such
        message in these queues.

        Costs reading everything that the client holds there. Raises AerobeeError.
        """
        for key in keys:
            queue = self._writer().queue(key)
            if queue is None or not (offsets := queue.held_by(client_id)):
                continue
            offset = await self._reads.find(key, offsets, is_wanted)
            queue = self._writer().queue(key)
            if offset is not None and queue is not None:
                flight = queue.flight(offset)
                if flight is not None and flight.holder == client_id:
                    serial, attempt, visible_ms = flight.serial, flight.attempt, flight.visible_ms
                    return key, Delivery(offset, serial, attempt, visible_ms)
        return None

    async def moved(self, key: GroupQueue, offset: int) -> None:
        """A copy has replaced the message. Raises AerobeeError: this was not written; the offset
        journal knows it."""
        term = self._writer()
        queue = term.queue(key)
        if queue is not None:
            done = term.write(queue.moved(offset, self._clock.now_ms()))
            self._finished(key, done)
            await until_confirmed(done)

    def kept(self, key: GroupQueue, offset: int) -> None:
        """No copy was made."""
        with suppress(AerobeeError):
            queue = self._writer().queue(key)
            if queue is not None:
                queue.kept(offset, self._clock.now_ms())
                self._bells.times_changed(key)

    def begin_again(self, key: GroupQueue, offset: int | None) -> None:
        """An operator has set the group's offset; None: it was removed."""
        with suppress(AerobeeError):
            term = self._writer()
            if not term.has(key):
                return
            queue = None if offset is None else term.queue(key)
            if queue is None or offset is None:
                term.end(key)
            else:
                term.write(queue.begin_again(offset, self._clock.now_ms()))
        self._bells.ring(key)

    def client_gone(self, client_id: str) -> None:
        """Its messages are redelivered earlier than known so far."""
        with suppress(AerobeeError):
            now_ms = self._clock.now_ms()
            for queue in self._writer().queues():
                queue.client_gone(client_id, now_ms)
                self._bells.times_changed(queue.key)

    def _finished(self, key: GroupQueue, written: Written | None) -> None:
        """Some messages are finished as soon as this is in effect, also if the caller that waits
        for it is cancelled: its client may be gone."""
        self._on_finished(key)
        when_known(written, partial(self._turn_of_next, key))

    def _turn_of_next(self, key: GroupQueue) -> None:
        with suppress(AerobeeError):
            queue = self._writer().queue(key)
            if queue is not None and queue.is_ordered and queue.has_ready(self._clock.now_ms()):
                self._bells.ring(key)
