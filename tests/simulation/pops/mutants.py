"""The core of POP with known errors, which the judge must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from aerobee.broker.pop.entries import Finished, Invisible
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.requests import Changed, Handled
from tests.simulation.pop_terms import LenientQueue, TermOf
from tests.simulation.pops.scene import PopScene


class LosesAcknowledgements(PopScene):
    """Sometimes an acknowledgement does not get into the journal."""

    def journalled(self, entries: list[Any]) -> list[Any]:
        return [
            each
            for each in entries
            if not (isinstance(each, Finished) and self.chance.random() < 0.2)
        ]


class LosesAttempts(PopScene):
    """The journal does not record how often a message was delivered."""

    def journalled(self, entries: list[Any]) -> list[Any]:
        return [
            each._replace(attempts=()) if isinstance(each, Invisible) else each for each in entries
        ]


class TellsAtOnce(PopScene):
    """Clients are told of messages before the journal has them."""

    def is_told_at_once(self) -> bool:
        return True


class PassingQueue(QueueState):
    """A message to be redelivered later does not hold up those after it."""

    def change(self, offset: int, *words: Any, **named: Any) -> Changed:
        changed = super().change(offset, *words, **named)
        if changed.handled is Handled.DONE and self.is_ordered:
            following = self._lanes.finish(offset)
            if following is not None:
                self._turn_comes(following)
        return changed

    def _comes_again(self, offset: int) -> None:
        self._ready.add(offset)


class PassingTerm(TermOf):
    kind = PassingQueue


class LetsOthersPass(PopScene):
    term_kind = PassingTerm


class LenientTerm(TermOf):
    kind = LenientQueue


class TakesStaleHandles(PopScene):
    term_kind = LenientTerm


MUTANTS: Mapping[str, Callable[[], type[PopScene]]] = MappingProxyType(
    {
        "lost-acknowledgement": lambda: LosesAcknowledgements,
        "lost-attempt": lambda: LosesAttempts,
        "told-at-once": lambda: TellsAtOnce,
        "others-pass": lambda: LetsOthersPass,
        "stale-handle": lambda: TakesStaleHandles,
    }
)
