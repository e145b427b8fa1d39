"""The offset journal: what every replica knows of the groups' offsets, and what a master may add.

    slave    follows the journal's queue as far as it is confirmed, from the snapshot's place on
    master   has applied all of it, then writes; offsets change as its records are confirmed

Owns: the turn from one to the other. `begin_term` waits until everything in the log is confirmed
and applied; only then are offsets told and members taken. So a new master goes on exactly where the
last one was, and whatever that one did not get confirmed has never been. The record of this run's
queue leases is in the journal, confirmed and on the disk, before the first member has joined.

From time to time the master writes an image: all that stands, once more. The log may then lose its
oldest segments, and a replica that begins after them still knows everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from aerobee.broker.groups.group_state import GroupState
from aerobee.broker.groups.lease_journal import (
    LeaseRecord,
    is_log_whole,
    newest_record,
    next_run,
)
from aerobee.broker.groups.queue_leases import QueueKey
from aerobee.broker.offsets.journal_follower import OffsetJournalFollower, ReadableLog
from aerobee.broker.offsets.journal_image import JournalImages
from aerobee.broker.offsets.journal_records import lease_entries
from aerobee.broker.offsets.journal_state import OffsetJournalState
from aerobee.broker.offsets.journal_writer import OffsetJournalWriter
from aerobee.broker.store.tables.consumer_offset_table import JournalMark
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    Busy,
    MqError,
    NotMaster,
    NotWritable,
    ReplicaBehind,
    StoreFailed,
)
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

FOLLOW_INTERVAL_S = 0.05
"""How often a slave looks for confirmed records."""
PROMOTION_INTERVAL_S = 0.005
ROLE_INTERVAL_S = 0.02
RETRY_S = 0.25
RETRY_MAX_S = 10.0
CLEAN_END_TIMEOUT_S = 3.0
IMAGE_TIMEOUT_S = 3.0
"""So long a removal waits for an image; without one the log stays as it is."""
_LATER = (NotWritable, Busy, NotMaster, ReplicaBehind)
"""What keeps entries from being written for a while."""


class MasterRole(Protocol):
    """What the journal asks of this replica's role."""

    @property
    def master_epoch(self) -> int | None:
        """Under which epoch it is master; None: it is not."""
        ...

    def is_unclean(self, epoch: int) -> bool:
        """Whether the epoch began without an in-sync replica."""
        ...


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Who runs, and what its folder knows if the journal has no record of leases.

    `run_number_min`: this run's number is not below it.
    """

    boot_id: str
    broker_id: int
    previous: LeaseRecord
    run_number_min: int


class OffsetJournal:
    """See the module; on the loop, while `run` runs."""

    def __init__(
        self,
        state: OffsetJournalState,
        journal_log: ReadableLog,
        group_state: GroupState,
        clock: Clock,
        *,
        roles: MasterRole,
        run: RunIdentity,
        image_interval_bytes: int,
        on_reset: Callable[[QueueKey], None],
        on_term: Callable[[], None],
    ) -> None:
        """`on_reset` is told of each reset that has come true on this master; `on_term` when leases
        may be granted."""
        self._state = state
        self._log = journal_log
        self._group_state = group_state
        self._clock = clock
        self._roles = roles
        self._run = run
        self._images = JournalImages(state, journal_log, clock, interval_bytes=image_interval_bytes)
        self._on_reset = on_reset
        self._on_term = on_term
        self._writer: OffsetJournalWriter | None = None
        self._epoch: int | None = None
        self._ended_epoch = -1
        self._run_number_begun = -1
        self._saved_offset = state.next_offset
        self._is_ready = False
        self._follower = OffsetJournalFollower(state, journal_log)
        self._hurry = asyncio.Event()
        self._beginning = asyncio.Lock()

    def __repr__(self) -> str:
        return f"OffsetJournal(epoch={self._epoch}, ready={self._is_ready})"

    # ------------------------------------------------------------------------------ asking

    @property
    def is_ready(self) -> bool:
        """Whether this master knows everything that stands, and may add to it."""
        return self._is_ready

    @property
    def waiting_bytes(self) -> int:
        """Of entries that are not confirmed yet."""
        return 0 if self._writer is None else self._writer.waiting_bytes

    def writer(self) -> OffsetJournalWriter:
        """Where a master adds entries.

        Raises:
            NotMaster: this replica is a slave.
            ReplicaBehind: it became master just now and does not know everything yet.
        """
        if self._is_ready and self._writer is not None:
            return self._writer
        if self._epoch is not None:
            raise ReplicaBehind(
                "this replica has become master just now and is still reading the groups' offsets; "
                "ask again in a moment"
            )
        raise NotMaster(
            "this replica is a slave, groups and their offsets are the master's; ask the route "
            "again for it"
        )

    def check_granting(self) -> None:
        """May members join and get queues? Raises as `writer`, and NotMaster while a clean end is
        written down."""
        self.writer()
        self._group_state.check_granting()

    def check_known(self) -> None:
        """May offsets be told? A slave tells what it knows to be confirmed. Raises ReplicaBehind,
        and as `writer` on a master."""
        if self._epoch is not None:
            self.writer()
        elif not self._state.is_whole:
            raise ReplicaBehind(
                "this replica has not copied all of the groups' offsets yet; ask the master"
            )

    async def begun(self, timeout_s: float) -> None:
        """Until a master may be asked; on a slave at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_ready:
                    if self._roles.master_epoch is None:
                        return
                    await asyncio.sleep(PROMOTION_INTERVAL_S)

    # ------------------------------------------------------------------------------ following

    async def run(self) -> None:
        """Follow the journal on a slave; begin and end terms with the role; until cancelled.

        Raises:
            StoreFailed: the disk failed.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="follow-offsets")
            tasks.create_task(self._take_roles(), name="offset-terms")

    async def _take_roles(self) -> None:
        while True:
            epoch = self._roles.master_epoch
            if epoch is None:
                if self._epoch is not None:
                    await self.end_term()
            elif epoch != self._epoch and epoch > self._ended_epoch:
                try:
                    await self.begin_term(epoch, is_unclean=self._roles.is_unclean(epoch))
                except NotMaster as error:
                    log_event(log, "offset journal", level=logging.WARNING, trouble=error)
            await asyncio.sleep(ROLE_INTERVAL_S)

    async def _follow(self) -> None:
        trouble, retry_s = "", RETRY_S
        while True:
            pause_s = FOLLOW_INTERVAL_S
            try:
                if self._writer is not None:
                    await self._images.write_if_due(self._writer)
                elif await self._follower.step():
                    pause_s = 0.0
                elif self._epoch is not None:
                    pause_s = PROMOTION_INTERVAL_S
                trouble, retry_s = "", RETRY_S
            except StoreFailed:
                raise
            except MqError as error:
                # An image that fails each time must not fill the log with its beginning.
                pause_s = retry_s
                if self._writer is not None:
                    retry_s = min(2 * retry_s, RETRY_MAX_S)
                if str(error) != trouble:
                    trouble = str(error)
                    log_event(log, "offset journal", level=logging.WARNING, trouble=trouble)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()
                    self._hurry.clear()

    # ------------------------------------------------------------------------------ terms

    async def begin_term(self, epoch: int, *, is_unclean: bool = False) -> None:
        """This replica is master from now on: returns once members may join and offsets are told.

        In a term that has begun already nothing changes but the epoch. `is_unclean`: the epoch
        began without an in-sync replica, so that what members hold may be of messages that are
        gone.

        Raises:
            NotMaster: the term has ended meanwhile.
        """
        self._epoch = epoch
        self._hurry.set()
        async with self._beginning:
            if self._is_ready:
                return
            await self._apply_everything(epoch)
            self._check_epoch(epoch)
            self._writer = OffsetJournalWriter(
                self._state, self._log, self._clock, on_reset=self._on_reset
            )
            self._begin_run(epoch, is_unclean=is_unclean)
        log_event(log, "offset journal goes on", epoch=epoch, record=self._state.next_offset)

    async def end_term(self, *, is_clean: bool = False) -> None:
        """This replica is master no more: nobody is told anything that is not confirmed by now.

        `is_clean`: the next master takes over who is a member and holds what. Call it so while this
        one may still act, with all members' streams ended. Under the same epoch the term goes on
        only by another `begin_term`.
        """
        if self._epoch is not None:
            self._ended_epoch = self._epoch
        writer = self._writer
        try:
            if is_clean and self._is_ready:
                await self._leave_leases()
        finally:
            # Whoever calls it off goes on with another run: the clean record may come to count,
            # and nobody would know of what this run granted after it.
            if self._writer is writer:
                self._epoch = None
                self._stop_writing()
                self._group_state.end()

    async def _leave_leases(self) -> None:
        try:
            async with asyncio.timeout(CLEAN_END_TIMEOUT_S):
                await self._group_state.record_clean_end()
        except TimeoutError:
            log_event(
                log,
                "the record of leases is not confirmed in time: it may count yet, or the next run "
                "waits one session before it grants queues",
                level=logging.WARNING,
            )
        except StoreFailed:
            raise
        except MqError as error:
            # The next run then waits one session before it grants queues, as after a crash.
            log_event(log, "leases not saved", level=logging.WARNING, reason=error)

    def go_on(self) -> None:
        """The term that was to end goes on after all: a run that ended is followed by another one
        under the same epoch, which has a record of its own before it grants anything."""
        self._ended_epoch = -1

    def _stop_writing(self) -> None:
        self._is_ready = False
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.end()

    async def _apply_everything(self, epoch: int) -> None:
        """Until all that the log has now is confirmed and applied."""
        end = self._log.end
        while self._log.confirmed_end < end or self._state.next_offset < self._log.records_end:
            self._check_epoch(epoch)
            await self._follower.wait_step(PROMOTION_INTERVAL_S)
        # Nothing is applied from the log any more that the writer applies itself.
        self._follower.stop()

    def _begin_run(self, epoch: int, *, is_unclean: bool) -> None:
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
        self._group_state.begin(
            previous,
            this_run,
            self._clock.monotonic_s(),
            believes_members=not is_unclean and is_log_whole(previous, this_run),
        )
        self._is_ready = True
        self._on_term()

    def _check_epoch(self, epoch: int) -> None:
        if self._epoch is None or self._epoch < epoch:
            raise NotMaster(f"the term of epoch {epoch} has ended before it could begin")

    async def write_lease(self, record: LeaseRecord) -> None:
        """Returns once the record is confirmed and on the disk.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy, StoreFailed.
        """
        writer = self.writer()
        for done in [writer.add(entry) for entry in lease_entries(record, self._clock.now_ms())]:
            await asyncio.shield(done)

    # ------------------------------------------------------------------------------ images

    def saved(self, mark: JournalMark | None) -> None:
        """The snapshot on the disk has this mark."""
        if mark is not None:
            self._saved_offset = mark.next_offset

    async def prepare_removal(self, end: int, save: Callable[[], Awaitable[None]]) -> str:
        """The log is about to lose everything below `end`: say all that stands once more after it.

        `save` writes the snapshot, if there is room. Returns why the log must keep it for now;
        empty if it need not.
        """
        await save()
        if self._state.image_position >= end:
            return ""
        if not self._is_ready:
            return "the groups' offsets stand there; their master will write them again"
        try:
            async with asyncio.timeout(IMAGE_TIMEOUT_S):
                while self._state.image_position < end:
                    attempt = self._images.ask(end)
                    self._hurry.set()
                    await asyncio.shield(attempt)
        except TimeoutError:
            # It goes on, and the next removal finds it.
            return "the groups' offsets stand there, and are not confirmed in another place yet"
        except _LATER as error:
            position = self._log.position_of(self._saved_offset)
            if position is not None and position < end:
                return f"the groups' offsets stand there and cannot be written again: {error}"
            # On a disk without any room removal is what helps. The snapshot knows what goes, and
            # the image follows.
        return ""
