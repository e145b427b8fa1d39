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

    # ------------------------------------------------------------------ order, windows

    def desc(self) -> Column:
        return Column(f"{self.sql} desc nulls last")

    def desc_nulls_last(self) -> Column:
        return self.desc()

    def over(self, window: Window) -> Column:
        return Column(f"{self.sql} over ({window.sql})")

    def _with(self, sign: str, other: object) -> Column:
        return Column(f"({self.sql} {sign} {_value(other).sql})")


class Window:
    """Which rows a window function sees: those equal in some columns, perhaps in an order."""

    unboundedPreceding: Final = -(1 << 63)
    unboundedFollowing: Final = (1 << 63) - 1
    currentRow: Final = 0

    def __init__(self, by: str, order: str = "", rows: str = "") -> None:
        self._by, self._order, self._rows = by, order, rows

    @property
    def sql(self) -> str:
        parts = (f"partition by {self._by}", self._order and f"order by {self._order}", self._rows)
        return " ".join(part for part in parts if part)

    @staticmethod
    def partitionBy(*columns: Column | str) -> Window:
        return Window(_list(columns))

    def orderBy(self, *columns: Column | str) -> Window:
        return Window(self._by, _list(columns))

    def rowsBetween(self, first: int, last: int) -> Window:
        return Window(self._by, self._order, f"rows between {_bound(first)} and {_bound(last)}")

    def rangeBetween(self, first: int, last: int) -> Window:
        return Window(self._by, self._order, f"range between {_bound(first)} and {_bound(last)}")


def _bound(number: int) -> str:
    if number == Window.unboundedPreceding:
        return "unbounded preceding"
    if number == Window.unboundedFollowing:
        return "unbounded following"
    if number == 0:
        return "current row"
    return f"{-number} preceding" if number < 0 else f"{number} following"


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
greatest: Final = _function("greatest")
least: Final = _function("least")
concat: Final = _function("concat")
array: Final = _function("array")
explode: Final = _function("explode")
ceil: Final = _function("ceil")
floor: Final = _function("floor")
size: Final = _function("size")
lower: Final = _function("lower")
hex: Final = _function("hex")
sequence: Final = _function("sequence")
array_except: Final = _function("array_except")
array_max: Final = _function("array_max")
array_compact: Final = _function("array_compact")
sort_array: Final = _function("sort_array")
timestamp_millis: Final = _function("timestamp_millis")
try_add: Final = _function("try_add")
try_subtract: Final = _function("try_subtract")
try_multiply: Final = _function("try_multiply")
get: Final = _function("get")
# Aggregates.
max: Final = _function("max")
min: Final = _function("min")
sum: Final = _function("sum")
try_sum: Final = _function("try_sum")
bool_and: Final = _function("bool_and")
bool_or: Final = _function("bool_or")
count_if: Final = _function("count_if")
max_by: Final = _function("max_by")
min_by: Final = _function("min_by")
collect_set: Final = _function("collect_set")
collect_list: Final = _function("collect_list")
# Functions of windows.
lag: Final = _function("lag")
lead: Final = _function("lead")


def abs(column: Column | str) -> Column:
    return call("abs", column)


def row_number() -> Column:
    return Column("row_number()")


def count(column: Column | str) -> Column:
    return (
        Column("count(1)") if isinstance(column, str) and column == "*" else call("count", column)
    )


def count_distinct(*columns: Column | str) -> Column:
    return Column(f"count(distinct {_list(columns)})")


def first(column: Column | str, ignorenulls: bool = False) -> Column:
    return Column(f"first({_named(column).sql}, {'true' if ignorenulls else 'false'})")


def last(column: Column | str, ignorenulls: bool = False) -> Column:
    return Column(f"last({_named(column).sql}, {'true' if ignorenulls else 'false'})")


def desc(column: Column | str) -> Column:
    return _named(column).desc()


def desc_nulls_last(column: Column | str) -> Column:
    return _named(column).desc()


def struct(*columns: Column | str) -> Column:
    """Its members have the names of the columns."""
    parts = []
    for place, one in enumerate(map(_named, columns), 1):
        parts.append(f"{sql_text(one.called or f'col{place}')}, {one.sql}")
    return Column(f"named_struct({', '.join(parts)})")


def transform(array: Column | str, function: Callable[[Column], Column]) -> Column:
    return Column(f"transform({_named(array).sql}, one -> {function(Column('one')).sql})")


def filter(array: Column | str, function: Callable[[Column], Column]) -> Column:
    return Column(f"filter({_named(array).sql}, one -> {function(Column('one')).sql})")


def array_join(array: Column | str, gap: str) -> Column:
    return Column(f"array_join({_named(array).sql}, {sql_text(gap)})")


def array_contains(array: Column | str, value: object) -> Column:
    return Column(f"array_contains({_named(array).sql}, {_value(value).sql})")


def array_position(array: Column | str, value: object) -> Column:
    return Column(f"array_position({_named(array).sql}, {_value(value).sql})")


def slice(array: Column | str, first: int, count: int) -> Column:
    return Column(f"slice({_named(array).sql}, {first}, {count})")


def lpad(column: Column | str, size: int, filler: str) -> Column:
    return Column(f"lpad({_named(column).sql}, {size}, {sql_text(filler)})")


def substring(column: Column | str, first: int, size: int) -> Column:
    return Column(f"substring({_named(column).sql}, {first}, {size})")


def format_string(form: str, *columns: Column | str) -> Column:
    return Column(f"format_string({sql_text(form)}, {_list(columns)})")


def date_format(column: Column | str, form: str) -> Column:
    return Column(f"date_format({_named(column).sql}, {sql_text(form)})")


def chosen(column: Column, texts: dict[str, Any]) -> Column:
    """The value of a small table by key; null for any other key."""
    cases = " ".join(
        f"when {_value(key).sql} then {_value(text).sql}" for key, text in texts.items()
    )
    return Column(f"(case {column.sql} {cases} end)")
