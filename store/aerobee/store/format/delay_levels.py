"""Delay levels: the fixed delays of messages in the schedule topic.

Apache's broker reads them from its option `messageDelayLevel`: numbers with a unit (s, m, h or d),
separated by spaces. Level 1 is the first. A message waits in the queue of its level, counted from
0, so each queue of the schedule topic is ordered by time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Apache's default."""

DELAY_MAX_MS: Final = 10 * 366 * 86_400_000
"""The maximum of any delay: ten years. Apache's broker accepts three days at most
(`timerMaxDelaySec`)."""

LEVELS_MAX: Final = 1_000
"""Each level is a queue with files of its own."""

_WITHOUT_LEVEL_MS: Final = 1_000
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DelayLevelsIllegal(ValueError):
    """A text that is not a list of delay levels."""


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays in ms of levels 1, 2, ..."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str = DELAY_LEVELS) -> Self:
        """Reads `messageDelayLevel`. Raises DelayLevelsIllegal."""
        words = text.split()
        if not words:
            raise DelayLevelsIllegal(
                "no delay level is named; write at least one, such as 1s, or leave the option out "
                f"to have Apache's: {DELAY_LEVELS}"
            )
        if len(words) > LEVELS_MAX:
            raise DelayLevelsIllegal(
                f"{len(words)} delay levels are named, at most {LEVELS_MAX} can be: leave some out"
            )
        return cls(tuple(_delay_ms(level, word) for level, word in enumerate(words, 1)))

    def __len__(self) -> int:
        """The highest level."""
        return len(self.delays_ms)

    def capped(self, level: int) -> int:
        """`level`, or the highest level if it is greater. `level` is at least 1."""
        return min(level, len(self.delays_ms))

    def delay_ms(self, level: int) -> int:
        """How long a message of `level` waits; levels above the highest wait as long as the
        highest."""
        assert level >= 1, level
        return self.delays_ms[self.capped(level) - 1] if self.delays_ms else _WITHOUT_LEVEL_MS

    def level_of(self, delay_ms: int) -> int | None:
        """The lowest level that waits at least this long; None: there is none."""
        long_enough = [
            (delay, level) for level, delay in enumerate(self.delays_ms, 1) if delay >= delay_ms
        ]
        return min(long_enough)[1] if long_enough else None


def _delay_ms(level: int, word: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", word)
    if match is None:
        raise DelayLevelsIllegal(
            f"delay level {level} is {word[:40]!r}; write a number and one of the units s, m, h or "
            "d, such as 30s, and a space before the next level"
        )
    return int(match[1]) * _UNIT_MS[match[2]]
