"""Queues that POP consumes in a real journal: written by masters, and taken over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.journal import Journal
from aerobee.broker.pop.entries import PopEntry
from aerobee.broker.pop.journal_state import PopJournalState
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.requests import Delivery, Handled, Poll, Read
from aerobee.broker.pop.term import EntryWriter, PopTerm, PopTerms
from aerobee.broker.popping.confirmed import until_confirmed
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import NotWritable, ReplicaBehind
from aerobee.store.engine.tables.finished_ranges import Range
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import Led
from tests.support.waiting import until

KEY = GroupQueue("billing", "orders", 3)
POLL = Poll("ada", 4, invisible_ms=30_000)
HELD = Poll("ada", 4)
HOUR_MS = 3_600_000


class Replica:
    def __init__(self, log: MemoryLog) -> None:
        self.state = PopJournalState()
        self.clock = ManualClock(now_ms=5_000)
        self.elsewhere: list[Range] | ReplicaBehind = []
        self.ordered: set[str] = set()
        self.ends = 0
        terms = PopTerms(self._term, on_begin=lambda term: None, on_end=self._on_end)
        self.journal: Journal[PopEntry, PopTerm] = Journal(
            self.state,
            log,
            terms,
            self.clock,
            name="journal of POP",
            subject="messages in flight",
            image_interval_bytes=1 << 40,
            linger_s=0.0,
        )

    def _term(self, writer: EntryWriter) -> PopTerm:
        return PopTerm(
            self.state,
            writer,
            self.clock,
            is_ordered=lambda group: group in self.ordered,
            held_until_ms=lambda client_id, taken_ms: taken_ms + HOUR_MS,
            finished_elsewhere=self._finished_elsewhere,
        )

    def _finished_elsewhere(self, key: GroupQueue) -> list[Range]:
        if isinstance(self.elsewhere, ReplicaBehind):
            raise self.elsewhere
        return self.elsewhere

    def _on_end(self) -> None:
        self.ends += 1

    @property
    def term(self) -> PopTerm:
        return self.journal.writer()

    def queue(self) -> QueueState:
        queue = self.term.queue(KEY)
        assert queue is not None
        return queue

    async def receive(self, poll: Poll = POLL) -> list[Delivery]:
        """The next messages, once they may be told."""
        now_ms = self.clock.now_ms()
        wanted = self.queue().wants(poll, now_ms)
        fresh = range(wanted.begin, wanted.begin + wanted.room)
        messages = dict.fromkeys([*wanted.again, *fresh], 0)
        read = Read(messages, wanted.again, wanted.begin, fresh.stop)
        taken = self.queue().take(poll, read, now_ms)
        await until_confirmed(self.term.write(taken.entries))
        return taken.deliveries


@contextlib.asynccontextmanager
async def leading(log: MemoryLog, epoch: int = 1) -> AsyncIterator[Replica]:
    replica = Replica(log)
    task = asyncio.create_task(replica.journal.run())
    try:
        replica.journal.begin(Led(epoch))
        await until(lambda: replica.journal.is_ready)
        yield replica
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def successor_of(log: MemoryLog) -> MemoryLog:
    """What another replica has."""
    copy = log.copy()
    copy.confirm()
    copy.flush()
    return copy


async def test_a_new_master_knows_what_is_in_flight_and_what_is_finished() -> None:
    log = MemoryLog()
    async with leading(log) as master:
        await until_confirmed(master.term.begin(KEY, 0))
        first, second, *_ = await master.receive()
        acknowledged = master.queue().acknowledge([first[:2]], 5_000)
        await until_confirmed(master.term.write(acknowledged.entries))
        standing = master.queue().standing.copy()
    async with leading(successor_of(log), 2) as successor:
        queue = successor.queue()
        assert (queue.committed, queue.standing.flights) == (1, standing.flights)
        assert queue.acknowledge([first[:2], second[:2]], 5_000).handled == [
            Handled.FINISHED,
            Handled.DONE,
        ]
        assert [each.offset for each in await successor.receive()] == [4, 5, 6, 7]


async def test_what_a_master_handed_out_at_its_end_is_not_held_for_hours() -> None:
    """Its answer may not have left."""
    log = MemoryLog()
    async with leading(log) as master:
        await until_confirmed(master.term.begin(KEY, 0))
        await master.receive(HELD)
        master.clock.advance_ms(20_000)
        (late, *_) = await master.receive(HELD)
    async with leading(successor_of(log), 2) as successor:
        successor.clock.advance_ms(30_000)
        assert [each.offset for each in await successor.receive(HELD)] == [8, 9, 10, 11]
        successor.clock.advance_ms(30_000)
        again = await successor.receive(HELD)
        assert [(each.offset, each.attempt) for each in again] == [(4, 2), (5, 2), (6, 2), (7, 2)]
        acknowledged = successor.queue().acknowledge([late[:2]], successor.clock.now_ms())
        assert acknowledged.handled == [Handled.STALE]
        successor.clock.advance_ms(600_000)
        assert [each.offset for each in await successor.receive(HELD)] == [12, 13, 14, 15]


async def test_what_is_decided_in_one_turn_is_one_record_at_its_end() -> None:
    log = MemoryLog()
    async with leading(log) as master:
        await until_confirmed(master.term.begin(KEY, 0))
        received = await master.receive()
        for first in (0, 2):
            end = log.records_end
            for delivery in received[first : first + 2]:
                acknowledged = master.queue().acknowledge([delivery[:2]], 5_000)
                master.term.write(acknowledged.entries)
            await asyncio.sleep(0)
            assert log.records_end == end + 1


async def test_what_could_not_be_written_has_never_been_decided() -> None:
    log = MemoryLog()
    async with leading(log) as master:
        await until_confirmed(master.term.begin(KEY, 0))
        (first, *_) = await master.receive()
        log.refusal = NotWritable("the disk is full")
        acknowledged = master.queue().acknowledge([first[:2]], 5_000)
        with pytest.raises(NotWritable):
            await until_confirmed(master.term.write(acknowledged.entries))
        log.refusal = None
        assert master.queue().committed == 0
        assert master.queue().acknowledge([first[:2]], 5_000).handled == [Handled.DONE]


async def test_what_a_copy_took_the_place_of_does_not_come_again() -> None:
    log = MemoryLog()
    async with leading(log) as master:
        await until_confirmed(master.term.begin(KEY, 0))
        await master.receive()
    async with leading(successor_of(log), 2) as successor:
        successor.elsewhere = ReplicaBehind("the offset journal is still being read")
        with pytest.raises(ReplicaBehind):
            successor.queue()
        successor.elsewhere = [Range(0, 2)]
        successor.clock.advance_ms(30_000)
        assert [each.offset for each in await successor.receive()] == [2, 3, 4, 5]


async def test_a_queue_that_pop_consumes_no_more_is_forgotten_everywhere() -> None:
    log = MemoryLog()
    async with leading(log) as master:
        await until_confirmed(master.term.begin(KEY, 0))
        (first, *_) = await master.receive()
        await until_confirmed(master.term.end(KEY))
        assert master.term.queue(KEY) is None
        assert master.state.standing(KEY) is None
        master.clock.advance_ms(1)
        await until_confirmed(master.term.begin(KEY, 0))
        assert master.queue().acknowledge([first[:2]], 5_001).handled == [Handled.STALE]


async def test_a_group_may_begin_to_count_order() -> None:
    async with leading(MemoryLog()) as master:
        await until_confirmed(master.term.begin(KEY, 0))
        master.ordered.add(KEY.group)
        assert master.queue().is_ordered
        assert [each.offset for each in await master.receive()] == [0]
