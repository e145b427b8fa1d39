"""A planned change of master: nothing is lost, and the pause in writes is as short as possible.

    no more messages are taken -> the successor has everything -> resign the epoch, durably for all:
    this instance never acts under it again -> the registry elects the successor -> step down

Owns: one hand-over at a time. Until the epoch is resigned it can be cancelled, and the master
continues under its epoch; after that only an election decides who leads, possibly this replica
again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from aerobee.broker.replication.duties import Duty
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.roles import ReplicatedLog, Roles
from aerobee.broker.replication.stream_tasks import Wake
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, DeadlineExceeded, InvalidArgument, NotMaster
from aerobee.runtime.log import log_event
from aerobee.store.flush.disk_watch import DiskWatch

log = logging.getLogger(__name__)

TIMEOUT_DEFAULT_S = 5.0
LATE_OTHERS_S = 0.1
"""How much longer than the successor the rest of the in-sync set may take."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    master_id: int
    epoch: int
    paused_s: float
    """From the first refused message until another replica was known to be master."""


class Handover:
    def __init__(
        self, roles: Roles, store: ReplicatedLog, clock: Clock, duties: Duty, watch: DiskWatch
    ) -> None:
        """`duties` are left to the successor, and resumed when the hand-over is cancelled. Call
        `wake` when a replica has joined or acknowledged, when more is confirmed, and when a record
        of the replica set has arrived."""
        self._watch = watch
        self._roles = roles
        self._store = store
        self._clock = clock
        self._duties = duties
        self._news = Wake()
        self._wished: tuple[int, int] | None = None
        """The epoch resigned last, and for whom."""

    def wake(self) -> None:
        """The event that a hand-over waits for may have happened."""
        self._news.set()

    @property
    def successor_id(self) -> int | None:
        """The replica that the registry should elect; None once a newer epoch has begun."""
        replica_set = self._roles.mastership.replica_set
        if self._wished is None or (
            replica_set is not None and replica_set.epoch > self._wished[0]
        ):
            return None
        return self._wished[1]

    async def hand_over(self, successor_id: int | None, timeout_s: float) -> HandedOver:
        """Returns once another replica is master.

        Raises:
            NotMaster: this replica is not master.
            InvalidArgument: no such replica is in sync.
            Busy: another hand-over is under way.
            DeadlineExceeded: not in time; the message says whether this replica remains master.
        """
        roles = self._roles
        roles.check_may_act()
        term = roles.term
        assert term is not None, "who acts has a term"
        if roles.is_pausing and not self._watch.is_hung:  # otherwise that one waits for the disk
            raise Busy("a hand-over is already under way", retry_after_ms=500)
        deadline_s = self._clock.monotonic_s() + (timeout_s or TIMEOUT_DEFAULT_S)
        successor = await self._connected(term, successor_id, deadline_s)
        began_s = self._clock.monotonic_s()
        roles.is_pausing = True
        try:
            await self._resign(term, successor, deadline_s)
            await self._until_elected(term, deadline_s)
        finally:
            roles.is_pausing = False
        replica_set = roles.mastership.replica_set
        assert replica_set is not None, "a newer epoch was heard"
        return HandedOver(
            replica_set.master_id, replica_set.epoch, self._clock.monotonic_s() - began_s
        )

    async def _connected(
        self, term: MasterTerm, successor_id: int | None, deadline_s: float
    ) -> ReplicaName:
        """The successor, once it copies our log; nothing is paused meanwhile."""
        while True:
            self._check_term(term)
            successor = _choose(term, successor_id)
            if successor is not None:
                return successor
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise DeadlineExceeded(
                    "the replica that should take over did not connect in time; this one stays "
                    "master"
                )
            await self._news.wait(left_s)

    async def _resign(self, term: MasterTerm, successor: ReplicaName, deadline_s: float) -> None:
        roles = self._roles
        try:
            try:
                async with asyncio.timeout(deadline_s - self._clock.monotonic_s()):
                    if not self._watch.is_hung:
                        await self._duties.leave()
                    # Otherwise the successor finds what it would after a crash: nothing can be
                    # recorded on a hung disk.
                    await self._until_caught_up(term, successor)
            except TimeoutError:
                self._check_term(term)
                raise DeadlineExceeded(
                    f"replica {successor.broker_id} did not copy everything in time; this one "
                    "stays master: check the replica's lag and try again"
                ) from None
        except BaseException:
            self._duties.resume()
            raise
        # Nothing is awaited between the last check and the resignation: the lease is valid.
        self._wished = term.epoch, successor.broker_id
        roles.mastership.resign()
        log_event(log, "resigned", epoch=term.epoch, successor=successor.broker_id)
        roles.ask()

    async def _until_caught_up(self, term: MasterTerm, successor: ReplicaName) -> None:
        others_s = self._clock.monotonic_s() + LATE_OTHERS_S
        while True:
            self._check_term(term)
            left_s = others_s - self._clock.monotonic_s()
            end = self._store.appended_end
            has_all = any(
                progress.name == successor and progress.acknowledged_end >= end
                for progress in term.progress()
            )
            if has_all and (term.confirmed_end >= end or left_s <= 0):
                return
            await self._news.wait(left_s if left_s > 0 else None)

    def _check_term(self, term: MasterTerm) -> None:
        """Raises NotMaster unless this replica may still act, and under this term."""
        self._roles.check_may_act()
        if self._roles.term is not term:
            raise NotMaster(f"epoch {term.epoch} ended before it could be handed over")

    async def _until_elected(self, term: MasterTerm, deadline_s: float) -> None:
        while True:
            replica_set = self._roles.mastership.replica_set
            if replica_set is not None and replica_set.epoch > term.epoch:
                return
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise DeadlineExceeded(
                    f"epoch {term.epoch} is resigned, but no nameserver named a new master in "
                    "time; the replica that is elected next continues, which may be this one"
                )
            await self._news.wait(left_s)


def _choose(term: MasterTerm, successor_id: int | None) -> ReplicaName | None:
    """The connected replica that has the most; None: not connected yet. Raises InvalidArgument."""
    others = sorted(term.in_sync - {term.own})
    wished = [name for name in others if successor_id in (None, name.broker_id)]
    if not wished:
        ids = ", ".join(str(name.broker_id) for name in others) or "none"
        whom = "no replica can" if successor_id is None else f"replica {successor_id} cannot"
        raise InvalidArgument(
            f"{whom} take over: in sync besides the master: {ids}; wait until one has caught up"
        )
    ends = {one.name: one.acknowledged_end for one in term.progress()}
    return max((name for name in wished if name in ends), key=ends.__getitem__, default=None)
