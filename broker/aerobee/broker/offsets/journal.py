"""The offset journal: what every replica knows of the groups' offsets, and what a master may add.

A run of queue leases begins and ends with each of its terms. Owns: which lease record a run begins
with. The run's own record is in the journal, confirmed and on disk, before the first member joins;
a planned end records in it who was a member and held what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.run_record import (
    RunRecord,
    is_log_whole,
    newest_record,
    next_run,
)
from aerobee.broker.journal.journal import Journal, JournalledLog
from aerobee.broker.journal.writer import JournalWriter
from aerobee.broker.offsets.entries import Entry
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.offsets.writer import OffsetWriter
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, StoreFailed
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

CLEAN_END_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The identity of a run, and what its folder knows if the journal has no lease record.

    `run_number_min`: this run's number is not below it.
    """

    boot_id: str
    broker_id: int
    previous: RunRecord
    run_number_min: int


class _Runs:
    """A run of queue leases for each term: a `JournalClient`."""

    def __init__(
        self,
        state: OffsetJournalState,
        current_run: CurrentRun,
        clock: Clock,
        *,
        run: RunIdentity,
        on_reset: Callable[[GroupQueue], None],
        on_term: Callable[[float], None],
    ) -> None:
        self._state = state
        self._current_run = current_run
        self._clock = clock
        self._run = run
        self._on_reset = on_reset
        self._on_term = on_term
        self._run_number_begun = -1

    def begin(self, writer: JournalWriter[Entry], epoch: int, *, is_unclean: bool) -> OffsetWriter:
        """See `JournalClient`. If `is_unclean`, members may hold messages that are gone."""
        run = self._run
        previous = newest_record(self._state.lease, run.previous)
        this_run = next_run(
            previous,
            run.boot_id,
            epoch=epoch,
            broker_id=run.broker_id,
            # A run that ended before its record was written has left no trace but here.
            run_number_min=max(run.run_number_min, self._run_number_begun + 1),
        )
        self._run_number_begun = this_run.run_number
        term = OffsetWriter(self._state, writer, self._clock, on_reset=self._on_reset)
        self._current_run.begin(
            previous,
            this_run,
            self._clock.monotonic_s(),
            term.record_leases,
            believes_members=not is_unclean and is_log_whole(previous, this_run),
        )
        self._on_term(self._current_run.views_held_back_s)
        return term

    def end(self) -> None:
        """Nothing is granted from here on."""
        self._current_run.end()


class OffsetJournal(Journal[Entry, OffsetWriter]):
    """On the loop."""

    def __init__(
        self,
        state: OffsetJournalState,
        journal_log: JournalledLog,
        current_run: CurrentRun,
        clock: Clock,
        *,
        run: RunIdentity,
        image_interval_bytes: int,
        on_reset: Callable[[GroupQueue], None],
        on_term: Callable[[float], None],
    ) -> None:
        """`on_reset` gets each reset that took effect on this master; `on_term` is called once
        leases may be granted, with the seconds for which members are not told of each other."""
        super().__init__(
            state,
            journal_log,
            _Runs(state, current_run, clock, run=run, on_reset=on_reset, on_term=on_term),
            clock,
            name="offset journal",
            subject="the groups' offsets",
            image_interval_bytes=image_interval_bytes,
        )
        self._current_run = current_run
        self._clock = clock
        self._offsets = state

    def on_table_saved(self) -> None:
        """The offsets' file holds the latest snapshot."""
        mark = self._offsets.rendered_mark
        if mark is not None:
            self.saved(mark.next_offset)

    async def leave(self) -> None:
        """Record who is a member and holds what, for the next master. Call it while this one may
        still act, after all members' streams have ended."""
        term = self.term
        try:
            if term is not None:
                await self._leave_leases()
        finally:
            # Cancelling starts another run: the clean record may take effect, and what this run
            # granted after it would be unknown.
            if self.term is term:
                await super().leave()

    async def _leave_leases(self) -> None:
        try:
            async with asyncio.timeout(CLEAN_END_TIMEOUT_S):
                await self._current_run.record_end(self._clock.monotonic_s())
        except TimeoutError:
            log_event(
                log,
                "the record of leases was not confirmed in time: unless it still is, the next "
                "run waits for one session before it grants queues",
                level=logging.WARNING,
            )
        except StoreFailed:
            raise
        except AerobeeError as error:
            # The next run then waits one session before it grants queues, as after a crash.
            log_event(log, "leases not saved", level=logging.WARNING, reason=error)

    def check_granting(self) -> None:
        """Check that members may join and get queues. Raises as `writer`, and NotMaster while a
        clean end is being recorded."""
        self.writer()
        self._current_run.check_granting()
