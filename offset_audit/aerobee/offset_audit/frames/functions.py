"""Expressions over the columns of a frame, as SQL text: Spark parses it, and so does `expressions`.

The names are those of Spark's functions. Each column is put into brackets by whatever uses it, so
that no precedence needs to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, Self, TypeVar


class _HasSmall(Protocol):
    def small(self) -> Self: ...


Small = TypeVar("Small", bound=_HasSmall)


class Column:
    """An expression, perhaps with a name. `column.field` is a member of a struct."""

    __slots__ = ("called", "pair", "sql")

    def __init__(
        self, sql: str, called: str | None = None, pair: tuple[Column, Column, bool] | None = None
    ) -> None:
        self.sql = sql
        self.called = called
        self.pair = pair
        """The two sides, if it says that they are equal, and whether two nulls are."""

    def __hash__(self) -> int:
        return hash(self.sql)

    def __bool__(self) -> bool:
        raise TypeError("a column has no value yet: use & | ~ and when()")

    def __getattr__(self, field: str) -> Column:
        if field.startswith("_"):
            raise AttributeError(field)
        return Column(f"{self.sql}.`{field}`", field)

    def __getitem__(self, place: int) -> Column:
        return Column(f"{self.sql}[{place}]")

    def alias(self, name: str) -> Column:
        return Column(self.sql, name, self.pair)

    # ------------------------------------------------------------------ comparing

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        right = _value(other)
        return Column(f"({self.sql} = {right.sql})", pair=(self, right, False))

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return self._with("<>", other)

    def __lt__(self, other: object) -> Column:
        return self._with("<", other)

    def __le__(self, other: object) -> Column:
        return self._with("<=", other)

    def __gt__(self, other: object) -> Column:
        return self._with(">", other)

    def __ge__(self, other: object) -> Column:
        return self._with(">=", other)

    def eqNullSafe(self, other: object) -> Column:
        right = _value(other)
        return Column(f"({self.sql} <=> {right.sql})", pair=(self, right, True))

    def between(self, low: object, high: object) -> Column:
        return Column(f"({self.sql} between {_value(low).sql} and {_value(high).sql})")

    def isin(self, *values: object) -> Column:
        given = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        assert isinstance(given, list | tuple)
        if not given:
            return lit(False)
        return Column(f"({self.sql} in ({', '.join(_value(one).sql for one in given)}))")

    def isNull(self) -> Column:
        return Column(f"({self.sql} is null)")

    def isNotNull(self) -> Column:
        return Column(f"({self.sql} is not null)")

    def startswith(self, prefix: str) -> Column:
        return Column(f"startswith({self.sql}, {sql_text(prefix)})")

    def contains(self, part: str) -> Column:
        return Column(f"contains({self.sql}, {sql_text(part)})")

    # ------------------------------------------------------------------ counting, deciding

    def __and__(self, other: object) -> Column:
        return self._with("and", other)

    def __or__(self, other: object) -> Column:
        return self._with("or", other)

    def __invert__(self) -> Column:
        return Column(f"(not {self.sql})")

    def __neg__(self) -> Column:
        return Column(f"(- {self.sql})")

    def __add__(self, other: object) -> Column:
        return self._with("+", other)

    def __radd__(self, other: object) -> Column:
        return _value(other)._with("+", self)

    def __sub__(self, other: object) -> Column:
        return self._with("-", other)

    def __truediv__(self, other: object) -> Column:
        return self._with("/", other)

    def cast(self, kind: str) -> Column:
        return Column(f"cast({self.sql} as {kind})", self.called)

    def when(self, condition: Column, value: object) -> Column:
        """One more case of `when()`, before its `otherwise`."""
        begun = self.sql.removesuffix(" end)")
        return Column(f"{begun} when {condition.sql} then {_value(value).sql} end)")

    def otherwise(self, value: object) -> Column:
        return Column(f"{self.sql.removesuffix(' end)')} else {_value(value).sql} end)")

    # ------------------------------------------------------------------ order

    def desc(self) -> Column:
        return Column(f"{self.sql} desc nulls last")

    def desc_nulls_last(self) -> Column:
        return self.desc()

    def _with(self, sign: str, other: object) -> Column:
        return Column(f"({self.sql} {sign} {_value(other).sql})")


# ---------------------------------------------------------------------- values


def col(name: str) -> Column:
    """A column; `a.b` is a member of a struct."""
    parts = name.split(".")
    return Column(".".join(f"`{part}`" for part in parts), parts[-1])


def expr(text: str) -> Column:
    """SQL, bracketed."""
    return Column(f"({text})")


def named(text: str) -> Column:
    """SQL with a name after it, for `select` and `groupBy`."""
    return Column(text)


def sql_of(column: Column | str) -> str:
    """Of a column, or a text that is SQL already."""
    return column if isinstance(column, str) else column.sql


def broadcast(frame: Small) -> Small:
    """A frame of few rows, which a join with many should have at hand."""
    return frame.small()


def lit(value: object) -> Column:
    if isinstance(value, Column):
        return value
    if value is None:
        return Column("null")
    if isinstance(value, bool):
        return Column("true" if value else "false")
    if isinstance(value, str):
        return Column(sql_text(value))
    assert isinstance(value, int), f"no literal: {value!r}"
    return Column(f"({value})" if value < 0 else str(value))


def sql_text(text: str) -> str:
    """A literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def when(condition: Column, value: object) -> Column:
    return Column(f"(case when {condition.sql} then {_value(value).sql} end)")


def _value(value: object) -> Column:
    return lit(value)


def _named(column: Column | str) -> Column:
    return col(column) if isinstance(column, str) else column


def _list(columns: Sequence[Column | str]) -> str:
    return ", ".join(_named(one).sql for one in columns)


def call(name: str, *columns: Column | str) -> Column:
    """A function of SQL; texts are names of columns."""
    return Column(f"{name}({_list(columns)})")


def _function(name: str) -> Callable[..., Column]:
    def made(*columns: Column | str) -> Column:
        return call(name, *columns)

    made.__name__ = name
    return made


coalesce: Final = _function("coalesce")
concat: Final = _function("concat")
array: Final = _function("array")
get: Final = _function("get")
max: Final = _function("max")


def count(column: Column | str) -> Column:
    return (
        Column("count(1)") if isinstance(column, str) and column == "*" else call("count", column)
    )


def desc(column: Column | str) -> Column:
    return _named(column).desc()


def desc_nulls_last(column: Column | str) -> Column:
    return _named(column).desc()


def array_position(array: Column | str, value: object) -> Column:
    return Column(f"array_position({_named(array).sql}, {_value(value).sql})")


def chosen(column: Column, texts: dict[str, Any]) -> Column:
    """The value of a small table by key; null for any other key."""
    cases = " ".join(
        f"when {_value(key).sql} then {_value(text).sql}" for key, text in texts.items()
    )
    return Column(f"(case {column.sql} {cases} end)")
