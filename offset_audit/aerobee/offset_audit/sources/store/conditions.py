"""What a reader may leave out: conditions that every wanted row meets.

They select stores, files, and rows; a row that meets them all is never left out, and one that does
not is never returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.folders import Origin
from aerobee.offset_audit.sources.store.plan import Reach
from aerobee.store.format.record_arrays import BoolArray, Int64Array

_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Numbers:
    """Of a number: at least `low`, at most `high`, and one of `among` if that is not None."""

    low: int = _LOWEST
    high: int = _HIGHEST
    among: frozenset[int] | None = None

    def __and__(self, other: Numbers) -> Numbers:
        among = self.among
        if other.among is not None:
            among = other.among if among is None else among & other.among
        return Numbers(max(self.low, other.low), min(self.high, other.high), among)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last number that may be accepted."""
        if self.among is None:
            return self.low, self.high
        return (
            max(self.low, min(self.among, default=_HIGHEST)),
            min(self.high, max(self.among, default=_LOWEST)),
        )

    def accepts(self, value: int) -> bool:
        return self.low <= value <= self.high and (self.among is None or value in self.among)

    def mask(self, values: Int64Array) -> BoolArray:
        chosen = (values >= self.low) & (values <= self.high)
        if self.among is not None:
            chosen &= np.isin(values, np.array(sorted(self.among), np.int64))
        return np.asarray(chosen, np.bool_)


@dataclass(frozen=True, slots=True)
class Conditions:
    """All that a row must meet: numbers by column, and texts by column."""

    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    texts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def with_numbers(self, column: str, numbers: Numbers) -> Conditions:
        known = self.numbers.get(column, Numbers())
        return Conditions({**self.numbers, column: known & numbers}, self.texts)

    def with_texts(self, column: str, texts: Iterable[str]) -> Conditions:
        wanted = frozenset(texts)
        known = self.texts.get(column, wanted)
        return Conditions(self.numbers, {**self.texts, column: known & wanted})

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.numbers) | frozenset(self.texts)

    def accepts_text(self, column: str, text: str) -> bool:
        return column not in self.texts or text in self.texts[column]

    def accepts_number(self, column: str, value: int) -> bool:
        return column not in self.numbers or self.numbers[column].accepts(value)

    def span(self, column: str) -> tuple[int, int]:
        """The first and the last number of a column that may be wanted."""
        return self.numbers.get(column, Numbers()).span

    def accepts_store(self, origin: Origin) -> bool:
        return (
            self.accepts_text("cluster", origin.cluster)
            and self.accepts_text("broker_name", origin.broker_name)
            and self.accepts_number("broker_id", origin.broker_id)
        )

    def accepts_queue(self, topic: str, queue_id: int) -> bool:
        return self.accepts_text("topic", topic) and self.accepts_number("queue_id", queue_id)

    @property
    def reach(self) -> Reach:
        """The part of a log that may contain wanted records."""
        first, last = self.span("physical_offset")
        return Reach(max(0, first), last + 1)

    def mask(
        self,
        count: int,
        topics: tuple[tuple[str, ...], Int64Array],
        column: Callable[[str], Int64Array],
    ) -> BoolArray | None:
        """Which of `count` rows meet the conditions, None for all of them.

        `topics` are a table and each row's index of it; `column` gives a column of numbers.
        """
        chosen: BoolArray | None = None
        table, codes = topics
        if "topic" in self.texts:
            fits = np.array([topic in self.texts["topic"] for topic in table], np.bool_)
            chosen = fits[codes] if len(table) else np.zeros(count, np.bool_)
        for name, numbers in self.numbers.items():
            if name != "broker_id":
                fitting = numbers.mask(column(name))
                chosen = fitting if chosen is None else chosen & fitting
        return None if chosen is None or chosen.all() else chosen
