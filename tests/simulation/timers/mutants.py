"""The core of timers with known errors, which the judge must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.timers.acts import Act
from aerobee.broker.timers.entries import Intent, TimerEntry
from tests.simulation.timers.scene import TimerScene, Waiting


class LosesRolls(TimerScene):
    """A rolled message is done at its old place, and has no new one."""

    def rolled(self, message: Waiting) -> Waiting | None:
        return None if self.chance.random() < 0.3 else message


class RepeatsMoves(TimerScene):
    """A new master repeats the last intent's acts without checking which of them happened."""

    def standing_acts(self, acts: Sequence[Act], given_up: Iterable[int]) -> list[Act]:
        return list(acts)


class LosesEntries(TimerScene):
    """Sometimes an entry is left out of its record."""

    def journalled(self, entries: list[TimerEntry | ImageEnd]) -> list[TimerEntry | ImageEnd]:
        return [each for each in entries if not self._is_lost(each)]

    def _is_lost(self, entry: TimerEntry | ImageEnd) -> bool:
        return isinstance(entry, Intent) and self.chance.random() < 0.2


MUTANTS: Mapping[str, Callable[[], type[TimerScene]]] = MappingProxyType(
    {
        "lost-roll": lambda: LosesRolls,
        "repeated-move": lambda: RepeatsMoves,
        "lost-entry": lambda: LosesEntries,
    }
)
