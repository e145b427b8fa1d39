"""A journal: the state that it gives every replica, and when a master may add to it.

    slave    follows the journal's queue as far as it is confirmed, from its state's place on
    master   has applied all of it, then writes; the state changes as its records are confirmed

Owns: the transition between the two. A term begins once everything in the log is confirmed and
applied; only then are questions answered and entries written. So a new master continues exactly
where the last one was, and what that one did not get confirmed has never existed.

From time to time the master writes an image: the whole state again. The log may then lose its
oldest segments, and a replica that begins after them still knows everything.

Nothing here polls: the journal continues when more of the log is confirmed, when the role changes,
when an image is requested, and after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from aerobee.broker.journal.follower import FollowedLog, JournalFollower
from aerobee.broker.journal.image import JournalImages
from aerobee.broker.journal.state import JournalClient, JournalState, JournalTerm
from aerobee.broker.journal.writer import LINGER_S, JournalWriter, WrittenLog
from aerobee.broker.replication.term_keeper import Stretch, TermKeeper
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    Busy,
    NotMaster,
    NotWritable,
    ReplicaBehind,
)
from aerobee.runtime.log import log_event
from aerobee.runtime.waiting import Turns, Waiters
from aerobee.runtime.worker import Worker, warns

log = logging.getLogger(__name__)

Entry = TypeVar("Entry")
Term = TypeVar("Term", bound=JournalTerm[Any])

RETRY_S = 0.25
"""Pause after a failure."""
RETRY_MAX_S = 10.0
"""Longest pause after repeated failures of an image: its beginnings must not fill the log."""
IMAGE_TIMEOUT_S = 3.0
"""How long a removal waits for an image; without one nothing is removed."""
_LATER = (NotWritable, Busy, NotMaster, ReplicaBehind)
"""Errors that keep entries from being written for a while."""


class LedTerm(Protocol):
    """What a journal needs of a term as master."""

    @property
    def epoch(self) -> int: ...

    @property
    def is_unclean(self) -> bool:
        """Whether it began without an in-sync replica."""
        ...


class JournalledLog(WrittenLog, FollowedLog, Protocol):
    """The log that contains a journal; implemented in `aerobee.broker.journal.log`."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def confirmed_end(self) -> int: ...

    def position_of(self, queue_offset: int) -> int | None:
        """Where a record is in the log; None if there is none with this number."""
        ...

    def listen(self, advanced: Callable[[], None]) -> None:
        """Call this whenever more of the log is confirmed."""
        ...


class Journal(Generic[Entry, Term]):
    """On the loop, while `run` runs."""

    def __init__(
        self,
        state: JournalState[Entry],
        journal_log: JournalledLog,
        client: JournalClient[Entry, Term],
        clock: Clock,
        *,
        name: str,
        subject: str,
        image_interval_bytes: int,
        linger_s: float = LINGER_S,
    ) -> None:
        """`name` and `subject` (a plural: what the journal is about) are for errors and logs; for
        `linger_s` see `JournalWriter`."""
        self._linger_s = linger_s
        self._state = state
        self._log = journal_log
        self._client = client
        self._name = name
        self._subject = subject
        self._follower = JournalFollower(name, state, journal_log)
        self._images = JournalImages(state, journal_log, clock, interval_bytes=image_interval_bytes)
        self._writer: JournalWriter[Entry] | None = None
        self._term: Term | None = None
        self._keeper: TermKeeper[LedTerm] = TermKeeper()
        self._is_unclean = False
        self._begun_end = 0
        """Where the log ended when the present stretch began."""
        self._saved_offset = state.next_offset
        self._following = Turns()
        self._worker = Worker(
            self._do_what_is_due,
            warns(log, "journal", journal=self._name),
            retry_s=self._next_retry_s,
            retries_when_woken=True,  # on a request or change of role
        )
        self._retry_s = RETRY_S
        self._settled = Waiters()
        """Calls that wait for a master to be ready to answer."""
        journal_log.listen(self._on_advanced)

    def __repr__(self) -> str:
        return f"Journal({self._name}, {self._keeper}, ready={self.is_ready})"

    # ------------------------------------------------------------------------------ asking

    @property
    def is_ready(self) -> bool:
        """Whether this master knows the whole state, and may add to it."""
        return self._term is not None

    @property
    def term(self) -> Term | None:
        """This master's term; None on a slave, and before a master knows everything."""
        return self._term

    @property
    def waiting_bytes(self) -> int:
        """The size of entries that are not confirmed yet."""
        return 0 if self._writer is None else self._writer.waiting_bytes

    def writer(self) -> Term:
        """Where a master adds entries.

        Raises:
            NotMaster: this replica is a slave.
            ReplicaBehind: it has just become master and does not know everything yet.
        """
        if self._term is not None:
            return self._term
        if self._keeper.stretch is not None:
            raise ReplicaBehind(
                f"this replica has just become master and is still reading {self._subject}; ask "
                "again in a moment"
            )
        raise NotMaster(
            f"this replica is a slave, and only the master answers for {self._subject}; ask "
            "the route again for the master"
        )

    def check_known(self) -> None:
        """Check that the state may be reported. A slave reports what it knows to be confirmed.
        Raises ReplicaBehind, and as `writer` on a master."""
        if self._keeper.stretch is not None:
            self.writer()
        elif not self._state.is_whole:
            raise ReplicaBehind(
                f"this replica has not copied all of {self._subject} yet; ask the master"
            )

    async def begun(self, timeout_s: float) -> None:
        """Until a master is ready to answer; on a slave at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_settled:
                    await self._settled.wait()

    async def followed(self) -> None:
        """Until all that is confirmed is applied. Raises AerobeeError: it cannot be read."""
        while await self._follow():
            pass

    async def _follow(self) -> bool:
        async with self._following:
            # What this master writes is applied by its writer, once: while a record was being read
            # here, it could be confirmed.
            return self._term is None and await self._follower.step()

    # ------------------------------------------------------------------------------ running

    async def run(self) -> None:
        """Follow the journal on a slave; begin terms and write images on a master; until cancelled.

        Raises:
            StoreFailed: the disk failed.
        """
        await self._worker.run()

    async def _do_what_is_due(self) -> None:
        """Raises AerobeeError: try again later."""
        while self._term is None and await self._follow():  # noqa: ASYNC110
            await asyncio.sleep(0)  # let others run
        stretch = self._keeper.stretch
        if self._term is None and stretch is not None and self._knows_everything():
            self._begin_term(stretch)
        if self._writer is not None and self._term is not None:
            await self._images.write_if_due(self._writer, self._term)
        self._retry_s = RETRY_S

    def _next_retry_s(self) -> float:
        retry_s = self._retry_s
        if self._writer is not None:
            self._retry_s = min(2 * retry_s, RETRY_MAX_S)
        return retry_s

    def _on_advanced(self) -> None:
        """More of the log is confirmed, many times a second: wakes the task only if work is due.
        Growth of the log is no reason to retry."""
        if self._worker.is_backing_off:
            return
        if self._writer is not None:
            is_due = self._images.is_due
        else:
            is_due = self._follower.has_more or self._keeper.stretch is not None
        if is_due:
            self._worker.wake()

    # ------------------------------------------------------------------------------ terms

    def begin(self, term: LedTerm) -> None:
        """This replica has become master: it writes once it knows everything. A term that continues
        under a new epoch is kept as it is."""
        if (stretch := self._keeper.begin(term)) is not None:
            self._begin_stretch(stretch)
        # A run decides only once whether to believe its members.
        self._is_unclean |= term.is_unclean
        self._worker.wake()

    async def leave(self) -> None:
        """Write nothing more under this term, unless it is resumed."""
        self._keeper.leave()
        self._stop_writing()

    def resume(self) -> None:
        """The term that was left continues after all."""
        if (stretch := self._keeper.resume()) is not None:
            self._begin_stretch(stretch)
            self._worker.wake()

    def end(self) -> None:
        """This replica is no longer master: what is not confirmed yet is never reported."""
        self._keeper.end()
        self._stop_writing()
        self._worker.wake()

    def _begin_stretch(self, stretch: Stretch[LedTerm]) -> None:
        self._begun_end = self._log.end
        self._is_unclean = stretch.term.is_unclean

    def _knows_everything(self) -> bool:
        """Whether all that the log had when this replica became master is confirmed and applied."""
        return self._log.confirmed_end >= self._begun_end and not self._follower.has_more

    def _begin_term(self, stretch: Stretch[LedTerm]) -> None:
        epoch = stretch.term.epoch
        writer = JournalWriter(
            self._name, self._subject, self._state, self._log, linger_s=self._linger_s
        )
        self._term = self._client.begin(writer, epoch, is_unclean=self._is_unclean)
        self._writer = writer
        writer.attach(self._term)
        self._wake_if_settled()
        log_event(
            log,
            "journal continues",
            journal=self._name,
            epoch=epoch,
            record=self._state.next_offset,
        )

    def _stop_writing(self) -> None:
        writer, self._writer, self._term = self._writer, None, None
        if writer is not None:
            writer.end()
        self._wake_if_settled()
        self._client.end()

    @property
    def _is_settled(self) -> bool:
        """This is a slave, or a master that is ready to answer."""
        return self._term is not None or not self._keeper.is_master

    def _wake_if_settled(self) -> None:
        if self._is_settled:
            self._settled.wake()

    # ------------------------------------------------------------------------------ images

    def saved(self, next_offset: int) -> None:
        """The snapshot on disk has all records below this one."""
        self._saved_offset = next_offset

    @property
    def image_position(self) -> int:
        """The log from this position on has the whole state; UNKNOWN_IMAGE: perhaps it does not."""
        return self._state.image_position

    async def prepare_removal(self, end: int, save: Callable[[], Awaitable[None]]) -> str:
        """The log is about to lose everything below `end`: write the whole state again after it.

        `save` writes the snapshot, if there is room. Returns why the log must keep that part for
        now; empty if it need not.
        """
        await save()
        if self._state.image_position >= end:
            return ""
        if not self.is_ready:
            return f"{self._subject} are there; their master will write them again"
        try:
            async with asyncio.timeout(IMAGE_TIMEOUT_S) as scope:
                while self._state.image_position < end:
                    attempt = self._images.ask(end)
                    self._worker.wake()
                    await asyncio.shield(attempt)
        except TimeoutError:
            if not scope.expired():
                raise
            # The image continues, and the next removal will find it.
            return f"{self._subject} are there and not confirmed in another place yet"
        except _LATER as error:
            position = self._log.position_of(self._saved_offset)
            if position is not None and position < end:
                return f"{self._subject} are there and cannot be written again: {error}"
            # On a full disk removal helps. The snapshot has what is removed, and the image follows.
        return ""
