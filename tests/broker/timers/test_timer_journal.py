"""The progress of timers in a real journal: written by masters, followed by slaves, taken over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from aerobee.broker.journal.journal import Journal
from aerobee.broker.timers.entries import TIMER_QUEUE, IntentKind, Source, TimerEntry
from aerobee.broker.timers.frontier import Region
from aerobee.broker.timers.pending import FIRST, Key
from aerobee.broker.timers.state import TimerJournalState
from aerobee.broker.timers.term import TimerTerm, TimerTerms
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Busy, NotMaster, NotWritable
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import Led
from tests.support.waiting import until


class Replica:
    def __init__(self, log: MemoryLog) -> None:
        self.state = TimerJournalState()
        self.terms: list[TimerTerm] = []
        self.ends = 0
        clock = ManualClock()
        terms = TimerTerms(self.state, clock, on_begin=self.terms.append, on_end=self._on_end)
        self.journal: Journal[TimerEntry, TimerTerm] = Journal(
            self.state,
            log,
            terms,
            clock,
            name="timer journal",
            subject="timers",
            image_interval_bytes=1 << 40,
        )

    def _on_end(self) -> None:
        self.ends += 1


@contextlib.asynccontextmanager
async def running(replica: Replica, epoch: int | None) -> AsyncIterator[Replica]:
    task = asyncio.create_task(replica.journal.run())
    try:
        if epoch is not None:
            replica.journal.begin(Led(epoch))
            await until(lambda: replica.journal.is_ready)
        yield replica
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def source(offset: int) -> Source:
    return Source(TIMER_QUEUE, offset, 1_000 + offset)


async def test_what_is_decided_stands_at_once_and_counts_when_it_is_confirmed() -> None:
    log = MemoryLog(is_sync=False)
    async with running(Replica(log), 1) as master:
        term = master.journal.writer()
        recalled = term.remove([source(1)], "recalled")
        assert term.progress.is_done(source(1))
        assert not master.state.progress.is_done(source(1))
        term.intend(IntentKind.MOVE, [source(1), source(2)], basis=term.progress)
        assert term.progress.open is not None
        assert term.progress.open.sources == (source(2),), "the other one was recalled"
        await asyncio.sleep(0)
        assert not recalled.done()
        log.confirm()
        log.flush()
        await recalled
        assert master.state.progress.is_done(source(2))


async def test_a_new_master_knows_which_intent_may_be_open() -> None:
    log = MemoryLog()
    async with running(Replica(log), 1) as master:
        term = master.journal.writer()
        region = Region(FIRST, Key(2_000, 0), 5)
        intent = term.intend(IntentKind.MOVE, [source(1), source(2)], [region], basis=term.progress)
        log.is_sync = False
        term.note_acted()
        follower_log = log.copy()
    follower_log.confirm()
    async with running(Replica(follower_log), 2) as master:
        assert master.journal.writer().progress.open == intent
        assert master.journal.writer().progress.is_done(source(4)), "the mark says so"
        follower_log.is_sync = True
        master.journal.writer().note_acted()
        await until(lambda: master.state.progress.open is None)
        second = master.journal.writer().intend(
            IntentKind.ROLL, [source(7)], basis=master.journal.writer().progress
        )
        assert second.first_number == 2


async def test_what_could_not_be_written_has_never_been() -> None:
    log = MemoryLog()
    async with running(Replica(log), 1) as master:
        term = master.journal.writer()
        log.refusal = NotWritable("the disk is full")
        with pytest.raises(NotWritable):
            term.intend(IntentKind.MOVE, [source(1)], basis=term.progress)
        assert not term.progress.is_done(source(1))
        assert (term.progress.open, term.progress.next_number) == (None, 0)


async def test_a_plan_does_not_outlive_a_removal_that_it_counted_on() -> None:
    """Its marks would cover a message that is neither removed nor moved."""
    log = MemoryLog()
    async with running(Replica(log), 1) as master:
        term = master.journal.writer()
        removal = term.remove([source(1)], "recalled")
        basis, region = term.progress, Region(FIRST, Key(2_000, 0), 3)
        log.refusal = NotWritable("the disk is full")
        await asyncio.wait([removal])
        log.refusal = None
        with pytest.raises(Busy):
            term.intend(IntentKind.MOVE, [source(2)], [region], basis=basis)
        assert not term.progress.is_done(source(1))


async def test_a_slave_that_begins_after_retention_knows_everything_by_an_image() -> None:
    log = MemoryLog()
    async with running(Replica(log), 1) as master:
        term = master.journal.writer()
        await term.remove([source(1)], "recalled")
        intent = term.intend(IntentKind.MOVE, [source(2)], basis=term.progress)
        records = log.records_end
        kept = await master.journal.prepare_removal(log.end, _saved)
        assert kept == ""
        log.remove_below(records)
    async with running(Replica(log), None) as slave:
        await until(lambda: slave.state.next_offset == log.records_end)
        assert slave.state.is_whole
        progress = slave.state.progress
        assert [progress.is_done(source(at)) for at in (1, 2, 3)] == [True, True, False]
        assert progress.open == intent


async def test_recalls_are_refused_before_the_state_grows_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aerobee.broker.timers.term.LOOSE_MAX", 50)
    async with running(Replica(MemoryLog()), 1) as master:
        term = master.journal.writer()
        await term.remove([source(at) for at in range(50)], "recalled")
        with pytest.raises(Busy):
            term.remove([source(50)], "recalled")


async def test_a_term_that_is_over_adds_nothing() -> None:
    async with running(Replica(MemoryLog()), 1) as master:
        term = master.journal.writer()
        master.journal.end()
        assert master.ends == 1
        with pytest.raises(NotMaster):
            term.remove([source(1)], "recalled")


async def _saved() -> None:
    """The snapshot is not needed here."""
