"""What a replica does while its disk hangs: it takes no messages and leaves its group to others.

    noticed -> refuse messages, say so in heartbeats
            -> a master hands over to a replica in sync, as soon as one is there;
               a slave follows no more, so it leaves the in-sync set
    -> what was asked answers at last, and so does one more write -> as before

Nothing acknowledged is lost: a hand-over waits until the successor has everything that this log
has, flushed or not. Without a replica in sync the master stays, and refuses messages.

Owns: one such episode at a time. What a hand-over normally records for the successor is omitted,
because it would wait for this disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.mastership import Lead
from aerobee.broker.replication.roles import Roles
from aerobee.runtime.errors import AerobeeError, NotWritable
from aerobee.runtime.log import log_event
from aerobee.store.flush.disk_watch import DiskWatch

log = logging.getLogger(__name__)

LOOK_S = 0.5
HAND_OVER_PAUSE_S = 1.0
HAND_OVER_TIMEOUT_S = 5.0


class Refusing(Protocol):
    """The store's side."""

    def disk_hung(self, reason: str) -> None:
        """Take nothing while there is a reason."""
        ...


class HungDisk:
    """`run` it as a task."""

    def __init__(
        self,
        watch: DiskWatch,
        roles: Roles,
        store: Refusing,
        handover: Handover,
        *,
        probe: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        """`probe` writes something to the disk and reports it to `watch`. `wake` is called when
        this replica may do less or more than before."""
        self._watch = watch
        self._roles = roles
        self._store = store
        self._handover = handover
        self._probe = probe
        self._wake = wake
        self._handing_over: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed: the disk returned an error."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._watch.until_hung()
                log_event(
                    log,
                    "the disk hangs: no messages are taken, and another replica should be master",
                    level=logging.ERROR,
                    reason=self._watch.why,
                )
                self._store.disk_hung(self._watch.why)
                self._tell()
                await self._until_it_answers(tasks)
                self._watch.answered()
                self._store.disk_hung("")
                log_event(log, "the disk answers again", level=logging.WARNING)
                self._tell()

    def _tell(self) -> None:
        self._wake()
        self._roles.ask()

    async def _until_it_answers(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            if self._watch.is_waiting:
                self._leave(tasks)
            elif self._probing is None:
                self._probing = tasks.create_task(self._answers(), name="disk-probe")
            if self._probing is not None and self._probing.done():
                probing, self._probing = self._probing, None
                if probing.result() and not self._watch.is_waiting:
                    return
            await asyncio.sleep(LOOK_S)

    async def _answers(self) -> bool:
        try:
            await self._probe()
        except NotWritable:
            return False
        return True

    # ------------------------------------------------------------------------------ leaving

    def _leave(self, tasks: asyncio.TaskGroup) -> None:
        """Let another replica lead, if this one leads and there is another."""
        mastership, term = self._roles.mastership, self._roles.term
        match mastership.decide():
            case Lead(epoch):  # elected before the hang was known, and unable to begin
                log_event(
                    log,
                    "elected while the disk hangs; the epoch is given back",
                    level=logging.ERROR,
                    epoch=epoch,
                )
                mastership.decline(epoch)
                self._tell()
                return
        if term is None or not term.in_sync - {term.own} or mastership.has_resigned(term.epoch):
            return
        if not self._roles.may_act():
            # Nothing is acknowledged from here on, so resigning loses nothing: replicas in sync
            # have everything. Otherwise this process, which renews its registration, would still
            # count as master.
            mastership.resign()
            self._tell()
        elif self._handing_over is None or self._handing_over.done():
            self._handing_over = tasks.create_task(self._hand_over(), name="leave-hung-disk")

    async def _hand_over(self) -> None:
        try:
            done = await self._handover.hand_over(None, HAND_OVER_TIMEOUT_S)
        except AerobeeError as error:
            log_event(
                log,
                "the disk hangs, and no other replica takes over",
                level=logging.ERROR,
                reason=error,
            )
            await asyncio.sleep(HAND_OVER_PAUSE_S)
        else:
            log_event(
                log,
                "handed over because the disk hangs",
                level=logging.WARNING,
                master=done.master_id,
                epoch=done.epoch,
            )
