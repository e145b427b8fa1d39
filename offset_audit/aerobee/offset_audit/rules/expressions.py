"""Evaluates the SQL of rules without Spark: an expression becomes a function of a row.

Supports only what rules use, with Spark's meaning: null means "not known" and propagates through
everything except tests for it, `and` and `or` have three values, a division is never integral.
Anything unsupported is refused when it is parsed, so a rule that only Spark understands cannot slip
through.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

Row = Mapping[str, Any]
Value = Callable[[Row], Any]

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\]|\\.)*')|(?P<number>\d+)L?
    |(?P<name>[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*)
    |(?P<sign><>|<=|>=|[=<>+\-*/(),]))""",
    re.VERBOSE,
)
_COMPARED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COUNTED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right if right else None,
}


def read(text: str) -> Value:
    """The function of an expression over a row.

    >>> read("if(lag > 5, 'far', concat('near: ', lag))")({"lag": 3})
    'near: 3'

    Raises:
        ValueError: it is not in the supported part of SQL.
    """
    reader = _Reader(text)
    value = reader.either()
    reader.end()
    return value


def text_of(value: Any) -> Any:
    """As Spark casts a value to a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def long_or_none(number: int) -> int | None:
    """Null if it does not fit 64 bits, as from Spark's `try_` functions."""
    return number if _LONG_MIN <= number <= _LONG_MAX else None


class _Reader:
    """Recursive descent, from `or`, which binds least, to names and numbers."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        rest = len(text.rstrip())
        while at < rest:
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"cannot read {text[at : at + 20]!r} of {text!r}")
            kind = str(found.lastgroup)
            self._tokens.append((kind, found[kind]))
            at = found.end()
        self._next = 0

    # ------------------------------------------------------------------ tokens

    def end(self) -> None:
        if self._next < len(self._tokens):
            raise ValueError(f"{self._tokens[self._next][1]!r} is too much in {self._text!r}")

    def _is(self, word: str) -> bool:
        if self._next >= len(self._tokens):
            return False
        kind, token = self._tokens[self._next]
        return kind in ("name", "sign") and token.lower() == word

    def _took(self, *words: str) -> bool:
        """Whether these tokens came next, in order; if so they are consumed."""
        begun = self._next
        for word in words:
            if not self._is(word):
                self._next = begun
                return False
            self._next += 1
        return True

    def _need(self, word: str) -> None:
        if not self._took(word):
            raise ValueError(f"{word!r} is missing in {self._text!r}")

    # ------------------------------------------------------------------ logic

    def either(self) -> Value:
        found = self._both()
        while self._took("or"):
            found = _or(found, self._both())
        return found

    def _both(self) -> Value:
        found = self._denied()
        while self._took("and"):
            found = _and(found, self._denied())
        return found

    def _denied(self) -> Value:
        if self._took("not"):
            return _known(operator.not_, self._denied())
        return self._compared()

    def _compared(self) -> Value:
        left = self._sum()
        for sign, compare in _COMPARED.items():
            if self._took(sign):
                return _known(compare, left, self._sum())
        if self._took("is", "not", "null"):
            return lambda row: left(row) is not None
        if self._took("is", "null"):
            return lambda row: left(row) is None
        if self._took("between"):
            low = self._sum()
            self._need("and")
            return _known(lambda value, a, b: a <= value <= b, left, low, self._sum())
        if self._took("rlike"):
            return _known(lambda value, wanted: bool(re.search(wanted, value)), left, self._sum())
        if self._took("not", "in"):
            return _known(operator.not_, _in(left, self._listed()))
        if self._took("in"):
            return _in(left, self._listed())
        return left

    def _sum(self) -> Value:
        found = self._product()
        while self._is("+") or self._is("-"):
            found = _known(_COUNTED[self._sign()], found, self._product())
        return found

    def _product(self) -> Value:
        found = self._single()
        while self._is("*") or self._is("/"):
            found = _known(_COUNTED[self._sign()], found, self._single())
        return found

    def _sign(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1][1]

    # ------------------------------------------------------------------ values

    def _single(self) -> Value:
        if self._took("("):
            found = self.either()
            self._need(")")
            return found
        if self._took("-"):
            return _known(operator.neg, self._single())
        if self._next >= len(self._tokens):
            raise ValueError(f"{self._text!r} ends too early")
        kind, token = self._tokens[self._next]
        self._next += 1
        if kind == "number":
            number = int(token)
            return lambda _: number
        if kind == "text":
            text = re.sub(r"\\(.)", r"\1", token[1:-1])
            return lambda _: text
        if kind == "name":
            return self._named(token)
        raise ValueError(f"{token!r} has no place in {self._text!r}")

    def _named(self, name: str) -> Value:
        word = name.lower()
        if word in ("true", "false", "null"):
            constant = {"true": True, "false": False, "null": None}[word]
            return lambda _: constant
        if word == "case":
            return self._case()
        if word == "cast":
            return self._cast()
        if self._is("("):
            if word not in _FUNCTIONS:
                raise ValueError(f"no function {name!r} is known here, in {self._text!r}")
            return _FUNCTIONS[word](self._listed())
        first, *inner = name.split(".")

        def column(row: Row) -> Any:
            value = row[first]
            for each in inner:
                value = None if value is None else value[each]
            return value

        return column

    def _listed(self) -> list[Value]:
        self._need("(")
        found = [self.either()]
        while self._took(","):
            found.append(self.either())
        self._need(")")
        return found

    def _cast(self) -> Value:
        self._need("(")
        value = self.either()
        for word in ("as", "string", ")"):
            self._need(word)
        return lambda row: text_of(value(row))

    def _case(self) -> Value:
        subject = None if self._is("when") else self.either()
        choices: list[tuple[Value, Value]] = []
        while self._took("when"):
            held = self.either()
            self._need("then")
            if subject is not None:
                held = _known(operator.eq, subject, held)
            choices.append((held, self.either()))
        otherwise = self.either() if self._took("else") else _nothing
        self._need("end")

        def chosen(row: Row) -> Any:
            for held, value in choices:
                if held(row):
                    return value(row)
            return otherwise(row)

        return chosen


def _nothing(_: Row) -> None:
    return None


def _known(function: Callable[..., Any], *values: Value) -> Value:
    """Null as soon as one value is."""

    def found(row: Row) -> Any:
        given = [value(row) for value in values]
        return None if None in given else function(*given)

    return found


def _and(left: Value, right: Value) -> Value:
    def found(row: Row) -> bool | None:
        first = left(row)
        if first is False:
            return False
        second = right(row)
        if second is False:
            return False
        return None if first is None or second is None else True

    return found


def _or(left: Value, right: Value) -> Value:
    def found(row: Row) -> bool | None:
        first = left(row)
        if first is True:
            return True
        second = right(row)
        if second is True:
            return True
        return None if first is None or second is None else False

    return found


def _in(left: Value, listed: list[Value]) -> Value:
    def found(row: Row) -> bool | None:
        value = left(row)
        given = [each(row) for each in listed]
        if value is None or (value not in given and None in given):
            return None
        return value in given

    return found


def _if(values: list[Value]) -> Value:
    held, yes, no = values
    return lambda row: yes(row) if held(row) else no(row)


def _coalesce(values: list[Value]) -> Value:
    return lambda row: next((found for each in values if (found := each(row)) is not None), None)


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[[list[Value]], Value]:
    """Of the known values."""

    def made(values: list[Value]) -> Value:
        def found(row: Row) -> Any:
            given = [value for each in values if (value := each(row)) is not None]
            return choose(given) if given else None

        return found

    return made


def _joined(values: list[Value]) -> Value:
    """concat_ws: nulls are left out."""
    gap, *parts = values

    def found(row: Row) -> str:
        given = [value for each in parts if (value := each(row)) is not None]
        return str(gap(row)).join(map(text_of, given))

    return found


def _plain(function: Callable[..., Any]) -> Callable[[list[Value]], Value]:
    return lambda values: _known(function, *values)


def _number_text(number: float, digits: int) -> str:
    # An integer is not converted to float first: that would round it.
    return f"{number:,}" if digits == 0 and isinstance(number, int) else f"{number:,.{digits}f}"


def _date_text(moment: datetime, form: str) -> str:
    if form == "yyyy-MM-dd HH:mm:ss":
        return f"{moment:%Y-%m-%d %H:%M:%S}"
    if form == "yyyy-MM-dd'T'HH:mm:ss.SSS":
        return moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    raise ValueError(f"no date is written as {form!r} here")


_FUNCTIONS: Final[Mapping[str, Callable[[list[Value]], Value]]] = {
    "if": _if,
    "coalesce": _coalesce,
    "least": _extreme(min),
    "greatest": _extreme(max),
    "concat": _plain(lambda *parts: "".join(map(text_of, parts))),
    "concat_ws": _joined,
    "startswith": _plain(str.startswith),
    "replace": _plain(str.replace),
    "floor": _plain(math.floor),
    "format_number": _plain(_number_text),
    "try_subtract": _plain(lambda left, right: long_or_none(left - right)),
    "try_add": _plain(lambda left, right: long_or_none(left + right)),
    "timestamp_millis": _plain(lambda ms: datetime.fromtimestamp(ms / 1_000, UTC)),
    "date_format": _plain(_date_text),
}
