"""Terms of POP with another kind of queues, for variants that are broken on purpose."""

from __future__ import annotations

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.entries import Flight
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.standing import Standing
from aerobee.broker.pop.term import PopTerm
from aerobee.broker.pop.waits import Unsure


class TermOf(PopTerm):
    """Its queues are of `kind`."""

    kind: type[QueueState] = QueueState

    def _made(self, key: GroupQueue, standing: Standing) -> QueueState:
        return self.kind(
            key,
            standing,
            self._clock.now_ms(),
            is_ordered=self._is_ordered(key.group),
            held_until_ms=self._held_until_ms,
            unsure=self._unsure.get(key, Unsure()),
            limits=self._limits,
        )


class LenientQueue(QueueState):
    """Any delivery of a message may be acknowledged."""

    def _current(self, offset: int, serial: int) -> Flight | None:
        return self.standing.flights.get(offset)
