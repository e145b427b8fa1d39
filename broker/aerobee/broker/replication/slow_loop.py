"""A replica that knows that it is slow: its event loop runs late, because its machine is overloaded
or because it has more work than one core can do.

    late for a third of ten seconds -> slow: heartbeats say so
                                    -> a master hands over to a replica in sync that is not slow
    hardly late any more            -> as before

Such hand-overs are rare: there is none before the master's term has lasted for the configured
interval. So groups whose replicas take turns at being slow do not change masters all the time.
"""

from __future__ import annotations

import asyncio
import logging

from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.stream_tasks import Wake
from aerobee.domain.broker_condition import BrokerCondition
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.log import log_event
from aerobee.runtime.loop_delay import LoopDelay

log = logging.getLogger(__name__)

LATE_S = 0.25
"""Lateness below this does not count."""
WINDOW_S = 10.0
SLOW_SHARE = 0.3
"""Share of the window: slow from here on upwards ..."""
WELL_SHARE = 0.1
"""... until it is below this."""
LOOK_S = 1.0
HAND_OVER_TIMEOUT_S = 5.0
REFUSED_PAUSE_S = 10.0


class SlowLoop:
    """`run` it as a task; it sleeps while nothing runs late."""

    def __init__(
        self,
        loop_delay: LoopDelay,
        roles: Roles,
        handover: Handover,
        clock: Clock,
        *,
        interval_s: float,
    ) -> None:
        """`interval_s`: how long a term lasts at least before such a hand-over; 0: none is made."""
        self._loop_delay = loop_delay
        self._roles = roles
        self._handover = handover
        self._clock = clock
        self._interval_s = interval_s
        self._late = Wake()
        self.is_slow = False
        loop_delay.on_late(LATE_S, self._late.set)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._late.wait()
            self._judge_lateness()
            while self.is_slow:
                await self._leave()
                await asyncio.sleep(LOOK_S)
                self._judge_lateness()

    def _judge_lateness(self) -> None:
        share = self._loop_delay.late_share(LATE_S, WINDOW_S)
        is_slow = share >= (WELL_SHARE if self.is_slow else SLOW_SHARE)
        if is_slow == self.is_slow:
            return
        self.is_slow = is_slow
        log_event(
            log,
            "the event loop runs late" if is_slow else "the event loop is on time again",
            level=logging.WARNING,
            late_percent=round(100 * share),
            of_seconds=WINDOW_S,
        )
        self._roles.ask()

    async def _leave(self) -> None:
        """Hand over if this replica leads, has led for long enough, and a better one exists."""
        term = self._roles.term
        if term is None or not self._roles.may_act() or self._roles.is_pausing:
            return
        age_s = self._clock.monotonic_s() - term.began_s
        if self._interval_s <= 0 or age_s < self._interval_s:
            return
        successor = self._better(term)
        if successor is None:
            return
        try:
            done = await self._handover.hand_over(successor.broker_id, HAND_OVER_TIMEOUT_S)
        except AerobeeError as error:
            log_event(
                log,
                "the event loop runs late, and the hand-over failed",
                level=logging.WARNING,
                reason=error,
            )
            await asyncio.sleep(REFUSED_PAUSE_S)
        else:
            log_event(
                log,
                "handed over because the event loop runs late",
                level=logging.WARNING,
                master=done.master_id,
                epoch=done.epoch,
            )

    def _better(self, term: MasterTerm) -> ReplicaName | None:
        """The replica that has most, among those in sync, connected and well."""
        endpoints = self._roles.endpoints
        able = [
            progress
            for progress in term.progress()
            if progress.name in term.in_sync
            and (place := endpoints.get(progress.name.broker_id)) is not None
            and place.condition is BrokerCondition.WELL
        ]
        return max(able, key=lambda one: one.acknowledged_end).name if able else None
