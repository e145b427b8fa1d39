"""Evaluates SQL without Spark: an expression becomes a function of a row.

Supports only what rules use, with Spark's meaning: null means "not known" and propagates through
everything except tests for it, `and` and `or` have three values, a division is never integral.
Anything unsupported is refused when it is parsed, so a rule that only Spark understands cannot slip
through.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aerobee.offset_audit.frames.aggregates import AGGREGATES, COUNT_DISTINCT, Aggregate
from aerobee.offset_audit.frames.scalars import FUNCTIONS, WITH_FUNCTIONS, divided, known
from aerobee.offset_audit.frames.values import Row, Struct, Value, cast, identity

GROUP: Final = ""
"""The name under which a row of a group has the group's rows."""

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\]|\\.)*')|(?P<number>\d+)L?
    |`(?P<quoted>[^`]*)`|(?P<name>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<sign><=>|->|<>|!=|<=|>=|[=<>+\-*/(),.\[\]]))""",
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
_AFTER_A_SUM: Final = frozenset({*_COMPARED, "<=>", "is", "between", "rlike", "not", "in"})
_COUNTED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right if right else None,
    "div": divided,
}
_SUMMED: Final = frozenset({"+", "-"})
_MULTIPLIED: Final = frozenset({"*", "/", "div"})
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_POSITIONAL: Final = ("row_number", "lag", "lead")


@dataclass(frozen=True, slots=True)
class Over:
    """A window function: its values are computed for a whole frame before its rows are."""

    place: str
    """The column under which the expression looks for them."""
    function: str | Aggregate
    arguments: Sequence[Value]
    by: Sequence[Value]
    order: Sequence[tuple[Value, bool]]
    """With whether it is descending."""
    rows: tuple[int | None, int | None] | None
    """First and last, relative to the row; None is unbounded. Without it: with an order up to the
    row and its equals, else all."""


@dataclass(frozen=True, slots=True)
class Parsed:
    value: Value
    name: str | None
    """As given, or of the column that it is."""
    windows: Sequence[Over]
    is_generator: bool = False
    """Whether each element of the value is a row of its own."""


def read(text: str) -> Value:
    """The function of an expression over a row.

    >>> read("if(lag > 5, 'far', concat('near: ', lag))")({"lag": 3})
    'near: 3'

    Raises:
        ValueError: it is not in the supported part of SQL.
    """
    reader = _Reader(text, "")
    value = reader.either()
    reader.end()
    return value


def parse(text: str, prefix: str = "") -> Parsed:
    """The same with its name, which may follow it, and the window functions in it.

    Args:
        prefix: makes the places of window functions of several expressions differ.

    Raises:
        ValueError: it is not in the supported part of SQL.
    """
    reader = _Reader(text, prefix)
    is_generator = reader.took("explode", "(")
    value = reader.either()
    if is_generator:
        reader.need(")")
    name = reader.name_after() or (None if is_generator else reader.only_name)
    reader.end()
    return Parsed(value, name, reader.windows, is_generator)


class _Reader:
    """Recursive descent, from `or`, which binds least, to names and numbers."""

    def __init__(self, text: str, prefix: str) -> None:
        self._text = text
        self._prefix = prefix
        self.windows: list[Over] = []
        self._tokens: list[tuple[str, str]] = []
        self._words: list[str] = []
        """Of each token what `took` looks for, "" for none; at least one more follows."""
        at = 0
        rest = len(text.rstrip())
        while at < rest:
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"cannot read {text[at : at + 20]!r} of {text!r}")
            kind = str(found.lastgroup)
            self._tokens.append((kind, token := found[kind]))
            self._words.append(token.lower() if kind in ("name", "sign") else "")
            at = found.end()
        self._words.append("")
        self._next = 0

    # ------------------------------------------------------------------ tokens

    @property
    def only_name(self) -> str | None:
        """The last part of a path of names, if it is nothing else."""
        kinds = {kind for kind, token in self._tokens if token != "."}
        is_path = kinds <= {"name", "quoted"} and len(self._tokens) % 2 == 1
        return self._tokens[-1][1] if is_path else None

    def name_after(self) -> str | None:
        self.took("as")
        if self._next != len(self._tokens) - 1 or self._next == 0:
            return None
        kind, token = self._tokens[self._next]
        if kind not in ("name", "quoted"):
            return None
        self._next += 1
        return token

    def end(self) -> None:
        if self._next < len(self._tokens):
            raise ValueError(f"{self._tokens[self._next][1]!r} is too much in {self._text!r}")

    def _is(self, word: str) -> bool:
        return self._words[self._next] == word

    def took(self, *words: str) -> bool:
        """Whether these tokens came next, in order; if so they are consumed."""
        at = self._next
        for word in words:  # none after the last token is any word
            if self._words[at] != word:
                return False
            at += 1
        self._next = at
        return True

    def need(self, word: str) -> None:
        if not self.took(word):
            raise ValueError(f"{word!r} is missing in {self._text!r}")

    def _word(self) -> tuple[str, str]:
        if self._next >= len(self._tokens):
            raise ValueError(f"{self._text!r} ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    # ------------------------------------------------------------------ logic

    def either(self) -> Value:
        found = self._both()
        while self.took("or"):
            found = _joined(found, self._both(), decides=True)
        return found

    def _both(self) -> Value:
        found = self._denied()
        while self.took("and"):
            found = _joined(found, self._denied(), decides=False)
        return found

    def _denied(self) -> Value:
        if self.took("not"):
            return known(operator.not_, self._denied())
        return self._compared()

    def _compared(self) -> Value:
        left = self._sum()
        word = self._words[self._next]
        if word not in _AFTER_A_SUM:
            return left
        if self.took("<=>"):
            right = self._sum()
            return lambda row: identity(left(row)) == identity(right(row))
        if word in _COMPARED:
            self._next += 1
            return known(_COMPARED[word], left, self._sum())
        if self.took("is", "not", "null"):
            return lambda row: left(row) is not None
        if self.took("is", "null"):
            return lambda row: left(row) is None
        if self.took("between"):
            low = self._sum()
            self.need("and")
            return known(lambda value, a, b: a <= value <= b, left, low, self._sum())
        if self.took("rlike"):
            return known(lambda value, wanted: bool(re.search(wanted, value)), left, self._sum())
        if self.took("not", "in"):
            return known(operator.not_, _in(left, self._listed()))
        if self.took("in"):
            return _in(left, self._listed())
        return left

    def _sum(self) -> Value:
        found = self._product()
        while self._words[self._next] in _SUMMED:
            found = known(_COUNTED[self._word()[1]], found, self._product())
        return found

    def _product(self) -> Value:
        found = self._single()
        while self._words[self._next] in _MULTIPLIED:
            found = known(_COUNTED[self._word()[1].lower()], found, self._single())
        return found

    # ------------------------------------------------------------------ values

    def _single(self) -> Value:
        found = self._begun()
        while True:
            if self._is("."):
                self._next += 1
                found = _member(found, self._word()[1])
            elif self._is("["):
                self._next += 1
                place = self.either()
                self.need("]")
                found = FUNCTIONS["get"]([found, place])
            else:
                return found

    def _begun(self) -> Value:
        if self.took("("):
            found = self.either()
            self.need(")")
            return found
        if self.took("-"):
            return known(operator.neg, self._single())
        kind, token = self._word()
        if kind == "number":
            number = int(token)
            return lambda _: number
        if kind == "text":
            text = re.sub(r"\\(.)", r"\1", token[1:-1])
            return lambda _: text
        if kind == "quoted":
            return operator.itemgetter(token)
        if kind == "name":
            return self._named(token)
        raise ValueError(f"{token!r} has no place in {self._text!r}")

    def _named(self, name: str) -> Value:
        word = name.lower()
        if self._is("("):
            return self._cast() if word == "cast" else self._called(word)
        if word in _CONSTANTS:
            constant = _CONSTANTS[word]
            return lambda _: constant
        if word == "case":
            return self._case()
        return operator.itemgetter(name)

    def _called(self, word: str) -> Value:
        if word in WITH_FUNCTIONS:
            return self._with_functions(word)
        if word in AGGREGATES or word in _POSITIONAL:
            return self._over_rows(word)
        if word in ("struct", "named_struct"):
            return self._struct(word)
        if word not in FUNCTIONS:
            raise ValueError(f"no function {word!r} is known here, in {self._text!r}")
        return FUNCTIONS[word](self._listed())

    def _listed(self) -> list[Value]:
        self.need("(")
        found: list[Value] = []
        while not self.took(")"):
            if found:
                self.need(",")
            found.append(self.either())
        return found

    def _cast(self) -> Value:
        self.need("(")
        value = self.either()
        self.need("as")
        kind, depth = self._word()[1], 0
        while depth or not self._is(")"):
            token = self._word()[1]
            depth += (token == "(") - (token == ")")
            kind += token
        self.need(")")
        return lambda row: cast(value(row), kind)

    def _case(self) -> Value:
        subject = None if self._is("when") else self.either()
        choices: list[tuple[Value, Value]] = []
        while self.took("when"):
            held = self.either()
            self.need("then")
            if subject is not None:
                held = known(operator.eq, subject, held)
            choices.append((held, self.either()))
        otherwise = self.either() if self.took("else") else _nothing
        self.need("end")

        def chosen(row: Row) -> Any:
            for held, value in choices:
                if held(row):
                    return value(row)
            return otherwise(row)

        return chosen

    def _struct(self, word: str) -> Value:
        """Members are named by `named_struct`, by a name after them, or by the column they are."""
        self.need("(")
        members: dict[str, Value] = {}
        while not self.took(")"):
            if members:
                self.need(",")
            if word == "named_struct":
                name = self._word()[1][1:-1]
                self.need(",")
                members[name] = self.either()
                continue
            begun = self._next
            value = self.either()
            if not (self._is(",") or self._is(")")):
                self.took("as")
                name = self._word()[1]
            elif self._tokens[self._next - 1][0] in ("name", "quoted"):
                name = self._tokens[self._next - 1][1]
            else:
                name = f"col{len(members) + 1}"
            assert self._next > begun
            members[name] = value
        return lambda row: Struct({name: value(row) for name, value in members.items()})

    def _with_functions(self, word: str) -> Value:
        """Of arrays: some arguments are functions, `one -> ...` or `(seen, one) -> ...`."""
        self.need("(")
        given: list[Any] = [self.either()]
        while self.took(","):
            names = self._parameters()
            value = self.either()
            given.append(value if names is None else (names, value))
        self.need(")")
        try:
            return WITH_FUNCTIONS[word](given)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{word!r} takes other arguments in {self._text!r}") from error

    def _parameters(self) -> tuple[str, ...] | None:
        words = self._words[self._next : self._next + 6]
        if words[1:2] == ["->"]:
            name = self._word()[1]
            self.need("->")
            return (name,)
        if words[::2] == ["(", ",", ")"] and words[5:] == ["->"]:
            names = self._tokens[self._next + 1][1], self._tokens[self._next + 3][1]
            self._next += 6
            return names
        return None

    # ------------------------------------------------------------------ groups and windows

    def _over_rows(self, word: str) -> Value:
        function: str | Aggregate = word if word in _POSITIONAL else AGGREGATES[word]
        begun = self._next
        self.need("(")
        is_distinct = self.took("distinct")
        if not is_distinct:
            self._next = begun
        arguments = self._rest() if is_distinct else self._listed()
        if is_distinct:
            assert word == "count", f"distinct is only counted: {self._text!r}"
            function = COUNT_DISTINCT
        if self.took("over"):
            return self._window(function, arguments)
        if isinstance(function, str):
            raise ValueError(f"{word!r} needs a window in {self._text!r}")

        def over_group(row: Row) -> Any:
            return function.of([[one(each) for one in arguments] for each in row[GROUP]])

        return over_group

    def _rest(self) -> list[Value]:
        found = [self.either()]
        while self.took(","):
            found.append(self.either())
        self.need(")")
        return found

    def _window(self, function: str | Aggregate, arguments: list[Value]) -> Value:
        self.need("(")
        self.need("partition")
        self.need("by")
        by = [self.either()]
        while self.took(","):
            by.append(self.either())
        order: list[tuple[Value, bool]] = []
        if self.took("order", "by"):
            order.append(self._ordered())
            while self.took(","):
                order.append(self._ordered())
        rows = None
        if self.took("rows", "between"):
            first = self._bound()
            self.need("and")
            rows = first, self._bound()
        elif self.took("range", "between"):
            # The default with an order, written out.
            for word in ("unbounded", "preceding", "and", "current", "row"):
                self.need(word)
        self.need(")")
        place = f"{GROUP}{self._prefix}.{len(self.windows)}"
        self.windows.append(Over(place, function, arguments, by, order, rows))
        return operator.itemgetter(place)

    def _ordered(self) -> tuple[Value, bool]:
        value = self.either()
        is_descending = self.took("desc")
        self.took("nulls", "last")
        return value, is_descending

    def _bound(self) -> int | None:
        if self.took("unbounded"):
            self._word()
            return None
        if self.took("current", "row"):
            return 0
        number = int(self._word()[1])
        return -number if self._word()[1].lower() == "preceding" else number


def _nothing(_: Row) -> None:
    return None


def _member(value: Value, name: str) -> Value:
    """Of a struct; of an array of structs, the array of their members."""

    def found(row: Row) -> Any:
        whole = value(row)
        if whole is None:
            return None
        if isinstance(whole, list):
            return [None if one is None else one[name] for one in whole]
        return whole[name]

    return found


def _joined(left: Value, right: Value, *, decides: bool) -> Value:
    """OR if a true one decides alone, AND if a false one does; unknown if nothing decides and one
    is unknown."""

    def found(row: Row) -> Any:
        first = left(row)
        if first is decides:
            return decides
        second = right(row)
        if second is decides:
            return decides
        return None if first is None or second is None else not decides

    return found


def _in(left: Value, listed: list[Value]) -> Value:
    def found(row: Row) -> bool | None:
        value = left(row)
        given = [each(row) for each in listed]
        if value is None or (value not in given and None in given):
            return None
        return value in given

    return found
