"""Deliberately broken terms and queues of POP; named in `mutants`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aerobee.broker.pop.entries import Finished, Invisible, PopEntry
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.term import PopTerm
from tests.simulation.cluster.variant import Variant
from tests.simulation.pop_terms import LenientQueue, TermOf


class _TellsAtOnce(PopTerm):
    """Nothing waits for the confirmation of these entries."""

    told: type[PopEntry]

    def write(self, entries: Sequence[PopEntry]) -> Any:
        done = super().write(entries)
        return None if all(isinstance(each, self.told) for each in entries) else done


class _AcknowledgesAtOnce(_TellsAtOnce):
    told = Finished

    @property
    def newest(self) -> Any:
        """For a client that repeats an acknowledgement."""
        return None


class _HandsOutAtOnce(_TellsAtOnce):
    told = Invisible


class _Overtaken(QueueState):
    """A redelivered message lets the next of its message group pass."""

    def _comes_again(self, offset: int) -> None:
        self._ready.add(offset)
        following = self._lanes.finish(offset)
        if following is not None and following not in self._ready:
            self._turn_comes(following)


class _Overtaking(TermOf):
    kind = _Overtaken


class _TakingStale(TermOf):
    kind = LenientQueue


class AnswersUnwritten(Variant):
    """POP acknowledges before its journal is confirmed."""

    def pop_term(self, *arguments: Any, **named: Any) -> PopTerm:
        return _AcknowledgesAtOnce(*arguments, **named)


class HandsOutUnwritten(Variant):
    """POP hands out messages before their attempt is confirmed in its journal."""

    def pop_term(self, *arguments: Any, **named: Any) -> PopTerm:
        return _HandsOutAtOnce(*arguments, **named)


class OvertakesRetries(Variant):
    """A redelivered message does not hold back its message group."""

    def pop_term(self, *arguments: Any, **named: Any) -> PopTerm:
        return _Overtaking(*arguments, **named)


class TakesStaleHandles(Variant):
    """A handle of any delivery of a message finishes it."""

    def pop_term(self, *arguments: Any, **named: Any) -> PopTerm:
        return _TakingStale(*arguments, **named)
