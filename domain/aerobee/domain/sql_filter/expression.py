"""The front door: an SQL92 filter, parsed and compiled once, that evaluates messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from sys import maxsize
from typing import Final

from aerobee.domain.sql_filter.errors import SqlIllegal
from aerobee.domain.sql_filter.judging import Judge, NoVerdict, Row, judge_of
from aerobee.domain.sql_filter.numbers import NoNumber
from aerobee.domain.sql_filter.parser import parse
from aerobee.domain.sql_filter.tree import names_of, readings_of, size_of

COMPILED_MAX: Final = 256
SHORT_MAX: Final = 512
"""Texts up to this length are compiled in less than a millisecond."""
CHARACTERS_MAX: Final = 1 << 18
CHARACTERS_PER_STEP: Final = 64
"""Comparing this many characters costs as much as evaluating one value or operator: 0.3 us."""

Turn = Callable[[str], Awaitable[None]]


class SqlExpression:
    """A valid expression. Equal ones have the same text."""

    __slots__ = ("_judge", "_prices", "names", "size", "text")

    def __init__(self, text: str) -> None:
        """Takes some tens of microseconds, and 10 ms for the longest. Raises SqlIllegal."""
        tree = parse(text)
        self.text = text
        self.names: tuple[str, ...] = tuple(dict.fromkeys(names_of(tree)))
        """The properties that it uses, in the order of the rows that it evaluates."""
        self.size = size_of(tree)
        """Number of values and operators: each is evaluated at most once per message."""
        places = {name: place for place, name in enumerate(self.names)}
        prices = [1] * len(self.names)  # taking it out of the message
        for name, price in readings_of(tree):
            prices[places[name]] += price
        self._prices = tuple(prices)
        self._judge: Judge = judge_of(tree, places)

    def __repr__(self) -> str:
        return f"SqlExpression({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlExpression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def steps(self, row: Row) -> int:
        """The most that evaluating these values may cost: values and operators, and the characters
        that they compare, search or convert."""
        characters = 0
        for price, value in zip(self._prices, row, strict=True):
            if value is not None:
                characters += price * len(value)
        return self.size + characters // CHARACTERS_PER_STEP

    def judges(self, row: Row) -> bool:
        """Whether a message matches if its properties `names` have these values; None: it lacks the
        property."""
        try:
            return self._judge(row) is True
        except (NoVerdict, NoNumber):
            return False

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties matches."""
        return self.judges([properties.get(name) for name in self.names])


class CompiledExpressions:
    """Keeps the most recently used expressions: polls bring the same text again and again.

    Their texts have at most CHARACTERS_MAX characters in total; compiled, they take up to 50 times
    as many bytes.
    """

    def __init__(self, kept_max: int = COMPILED_MAX, *, turn: Turn | None = None) -> None:
        """`turn` waits until the asker may compile a long text; None: at once."""
        self._kept_max = kept_max
        self._turn = turn
        self._kept: OrderedDict[str, SqlExpression] = OrderedDict()
        self._characters = 0

    async def prepared(self, texts: Iterable[str], asker: str) -> CompiledExpressions:
        """Has these compiled, up to the first that is illegal: each long one in a turn of its own.
        For texts whose number the caller has limited."""
        prepared = CompiledExpressions(maxsize)
        for text in texts:
            try:
                if len(text) > SHORT_MAX and text not in self._kept and self._turn is not None:
                    await self._turn(asker)
                prepared._kept[text] = self.of(text)
            except SqlIllegal:
                break
        return prepared

    def of(self, text: str) -> SqlExpression:
        """Raises SqlIllegal."""
        kept = self._kept
        found = kept.get(text)
        if found is None:
            found = kept[text] = SqlExpression(text)
            self._characters += len(text)
            while len(kept) > self._kept_max or self._characters > CHARACTERS_MAX:
                self._characters -= len(kept.popitem(last=False)[0])
        else:
            kept.move_to_end(text)
        return found
