"""Frames of plain rows in this process: no JVM, no planning, each step at once.

For a few hundred thousand rows at most. The cost is proportional to the rows, but for a join by
conditions without an equality among them, which is of all rows with all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.expressions import GROUP, Parsed, parse
from aerobee.offset_audit.frames.frame import Frame, Named
from aerobee.offset_audit.frames.functions import Column, sql_of
from aerobee.offset_audit.frames.over_windows import values_over
from aerobee.offset_audit.frames.values import Row, identity, order_key

_KEEPS_LEFT: Final = ("left", "full")
_KEEPS_RIGHT: Final = ("right", "full")


class LocalEngine:
    """Makes frames of this process."""

    def frame(self, columns: str, rows: Sequence[Sequence[object]]) -> LocalFrame:
        names = names_of(columns)
        return LocalFrame(names, [dict(zip(names, row, strict=True)) for row in rows])

    def collect(
        self, parts: Mapping[str, Frame], *, keeps_nulls: bool
    ) -> dict[str, list[dict[str, Any]]]:
        return {
            name: [
                row
                if keeps_nulls
                else {key: value for key, value in row.items() if value is not None}
                for row in frame.collect()
            ]
            for name, frame in parts.items()
        }


class LocalFrame:
    """Rows as dicts, which frames share and none changes."""

    def __init__(self, columns: Sequence[str], rows: list[Mapping[str, Any]] | list[Any]) -> None:
        self._columns = list(columns)
        self.rows: list[Mapping[str, Any]] = rows

    @property
    def engine(self) -> LocalEngine:
        return LocalEngine()

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    # ------------------------------------------------------------------ rows

    def where(self, condition: Named) -> LocalFrame:
        if not self.rows:
            return self
        parsed, rows = self._ready([sql_of(condition)])
        held = parsed[0].value
        found = [own for own, row in zip(self.rows, rows, strict=True) if held(row) is True]
        return LocalFrame(self._columns, found)

    def distinct(self) -> LocalFrame:
        return self.dropDuplicates(self._columns)

    def dropDuplicates(self, names: Sequence[str]) -> LocalFrame:
        found = {tuple([identity(row[name]) for name in names]): row for row in reversed(self.rows)}
        return LocalFrame(self._columns, list(reversed(found.values())))

    def orderBy(self, *columns: Named) -> LocalFrame:
        rows = self.rows
        for column in reversed(columns):
            text = _named(column).sql
            is_descending = text.endswith(" desc nulls last")
            value = parse(text.removesuffix(" desc nulls last")).value
            rows = sorted(rows, key=lambda row: order_key(value(row)), reverse=is_descending)
        return LocalFrame(self._columns, rows)

    def limit(self, rows: int) -> LocalFrame:
        return LocalFrame(self._columns, self.rows[:rows])

    def unionByName(self, other: Frame, allowMissingColumns: bool = False) -> LocalFrame:
        theirs = _local(other)
        names = list(self._columns)
        if allowMissingColumns:
            names += [name for name in theirs.columns if name not in names]
        elif set(names) != set(theirs.columns):
            raise ValueError(f"other columns: {sorted(set(names) ^ set(theirs.columns))}")
        both = ((self.rows, self._columns), (theirs.rows, theirs.columns))
        found: list[Mapping[str, Any]] = []
        for rows, own in both:
            if len(own) == len(names):
                found += rows
            else:
                found += [{name: row.get(name) for name in names} for row in rows]
        return LocalFrame(names, found)

    def count(self) -> int:
        return len(self.rows)

    def collect(self) -> list[dict[str, Any]]:
        return [{name: row[name] for name in self._columns} for row in self.rows]

    def in_one_part(self) -> LocalFrame:
        return self

    def small(self) -> LocalFrame:
        return self

    # ------------------------------------------------------------------ columns

    def select(self, *columns: Named) -> LocalFrame:
        chosen: list[tuple[str | None, str]] = []
        for column in columns:
            if not isinstance(column, str):
                chosen.append((column.called, column.sql))
            elif column.endswith("*"):
                chosen += self._star(column)
            else:
                one = _named(column)
                chosen.append((one.called, one.sql))
        return self._selected(chosen)

    def selectExpr(self, *texts: str) -> LocalFrame:
        chosen: list[tuple[str | None, str]] = []
        for text in texts:
            chosen += self._star(text) if text == "*" else [(None, text)]
        return self._selected(chosen)

    def _star(self, text: str) -> list[tuple[str, str]]:
        if text == "*":
            return [(name, f"`{name}`") for name in self._columns]
        whole = text.removesuffix(".*")
        members: Mapping[str, Any] = next(
            (row[whole] for row in self.rows if row[whole] is not None), {}
        )
        return [(name, f"`{whole}`.`{name}`") for name in members]

    def _selected(self, chosen: Sequence[tuple[str | None, str]]) -> LocalFrame:
        parsed, rows = self._ready([text for _, text in chosen])
        names = [name or one.name or text for (name, text), one in zip(chosen, parsed, strict=True)]
        values = [one.value for one in parsed]
        pairs = list(zip(names, values, strict=True))
        found: list[Mapping[str, Any]] = [
            {name: value(row) for name, value in pairs} for row in rows
        ]
        generated = [name for name, one in zip(names, parsed, strict=True) if one.is_generator]
        for name in generated:
            found = _exploded(found, name)
        return LocalFrame(names, found)

    def withColumn(self, name: str, column: Named) -> LocalFrame:
        return self.withColumns({name: column})

    def withColumns(self, columns: Mapping[str, Named]) -> LocalFrame:
        names = [*self._columns, *(name for name in columns if name not in self._columns)]
        if not self.rows:
            return LocalFrame(names, [])
        parsed, rows = self._ready([sql_of(one) for one in columns.values()])
        pairs = list(zip(columns, (one.value for one in parsed), strict=True))
        found: list[Mapping[str, Any]] = []
        for own, row in zip(self.rows, rows, strict=True):
            found.append({**own, **{name: value(row) for name, value in pairs}})
        for name, one in zip(columns, parsed, strict=True):
            if one.is_generator:
                found = _exploded(found, name)
        return LocalFrame(names, found)

    def withColumnRenamed(self, before: str, after: str) -> LocalFrame:
        names = [after if name == before else name for name in self._columns]
        pairs = list(zip(self._columns, names, strict=True))
        return LocalFrame(names, [{new: row[old] for old, new in pairs} for row in self.rows])

    def with_json(self, name: str, declared: str) -> LocalFrame:
        members = names_of(declared)
        found: list[Mapping[str, Any]] = []
        for row in self.rows:
            told = json.loads(row[name]) if row[name] is not None else {}
            found.append({**row, name: {one: told.get(one) for one in members}})
        return LocalFrame(self._columns, found)

    def drop(self, *names: str) -> LocalFrame:
        # A row may have more than its frame's columns.
        return LocalFrame([name for name in self._columns if name not in names], self.rows)

    def _ready(self, texts: Sequence[str]) -> tuple[list[Parsed], Sequence[Row]]:
        """The expressions, and the rows with the values of the window functions in them."""
        parsed = [parse(text, f"{number}") for number, text in enumerate(texts)]
        windows = [window for one in parsed for window in one.windows]
        if not windows or not self.rows:
            return parsed, self.rows
        rows = [dict(row) for row in self.rows]
        for window in windows:
            for row, value in zip(rows, values_over(window, self.rows), strict=True):
                row[window.place] = value
        return parsed, rows

    # ------------------------------------------------------------------ groups

    def groupBy(self, *columns: Named) -> LocalGrouped:
        return LocalGrouped(self, [_named(one) for one in columns])

    def agg(self, *columns: Named) -> LocalFrame:
        return LocalGrouped(self, []).agg(*columns)

    # ------------------------------------------------------------------ joins

    def join(self, other: Frame, on: str | Sequence[str], how: str = "inner") -> LocalFrame:
        names = [on] if isinstance(on, str) else list(on)
        how = how.replace("leftsemi", "left_semi").replace("leftanti", "left_anti")
        theirs = _local(other)
        matches: dict[Any, list[Row]] = {}
        for row in theirs.rows:
            key = _key(row, names)
            if None not in key:
                matches.setdefault(key, []).append(row)
        if how in ("left_semi", "left_anti"):
            wanted = how == "left_semi"
            return LocalFrame(
                self._columns,
                [row for row in self.rows if (_key(row, names) in matches) is wanted],
            )
        own = [name for name in self._columns if name not in names]
        new = [name for name in theirs.columns if name not in names]
        if set(own) & set(new):
            raise ValueError(f"on both sides: {sorted(set(own) & set(new))}")
        found: list[Mapping[str, Any]] = []
        nothing = dict.fromkeys(new)
        used: set[Any] = set()
        for row in self.rows:
            key = _key(row, names)
            partners = matches.get(key)
            if partners is not None:
                used.add(key)
                found += [{**row, **{name: one[name] for name in new}} for one in partners]
            elif how in _KEEPS_LEFT:
                found.append({**row, **nothing})
        if how in _KEEPS_RIGHT:
            lacking = dict.fromkeys(own)
            found += [
                {**lacking, **{name: row[name] for name in (*names, *new)}}
                for row in theirs.rows
                if _key(row, names) not in used
            ]
        return LocalFrame([*names, *own, *new], found)

    def join_where(
        self, other: Frame, conditions: Sequence[Column], how: str = "inner"
    ) -> LocalFrame:
        theirs = _local(other)
        if set(self._columns) & set(theirs.columns):
            raise ValueError(f"on both sides: {sorted(set(self._columns) & set(theirs.columns))}")
        matches = _Matches(self, theirs, conditions)
        new = [] if how in ("left_semi", "left_anti") else theirs.columns
        nothing = dict.fromkeys(new)
        found: list[Mapping[str, Any]] = []
        for row in self.rows:
            partners = matches.of(row)
            if how in ("left_semi", "left_anti"):
                if bool(partners) is (how == "left_semi"):
                    found.append(row)
            elif partners:
                found += partners
            elif how == "left":
                found.append({**row, **nothing})
        return LocalFrame([*self._columns, *new], found)

    def crossJoin(self, other: Frame) -> LocalFrame:
        return self.join_where(other, [])


class LocalGrouped:
    """The rows of a frame by key."""

    def __init__(self, frame: LocalFrame, by: Sequence[Column]) -> None:
        self._frame = frame
        self._by = by

    def agg(self, *columns: Named) -> LocalFrame:
        keys = [parse(one.sql) for one in self._by]
        names = [
            str(one.called or key.name or one.sql) for one, key in zip(self._by, keys, strict=True)
        ]
        groups: dict[Any, list[Row]] = {} if names else {(): list(self._frame.rows)}
        if names:
            values = [key.value for key in keys]
            for row in self._frame.rows:
                key = tuple(identity(value(row)) for value in values)
                groups.setdefault(key, []).append(row)
        parsed = [(one, parse(sql_of(one))) for one in columns]
        results = [
            ((None if isinstance(given, str) else given.called) or one.name or "", one.value)
            for given, one in parsed
        ]
        found: list[Mapping[str, Any]] = []
        for rows in groups.values():
            first: dict[str, Any] = {**rows[0]} if rows else {}
            key_values = {name: key.value(first) for name, key in zip(names, keys, strict=True)}
            scope = {**first, **key_values, GROUP: rows}
            found.append({**key_values, **{name: value(scope) for name, value in results}})
        return LocalFrame([*names, *(name for name, _ in results)], found)


class _Matches:
    """The rows of one frame that fit a row of another one."""

    def __init__(self, left: LocalFrame, right: LocalFrame, conditions: Sequence[Column]) -> None:
        self._right = right
        self._pairs: list[tuple[Callable[[Row], Any], bool]] = []
        keys: list[Callable[[Row], Any]] = []
        rest: list[str] = []
        for one in conditions:
            sides = None if one.pair is None else _sides(left, right, one.pair)
            if sides is None or one.pair is None:
                rest.append(one.sql)
            else:
                self._pairs.append((parse(sides[0]).value, one.pair[2]))
                keys.append(parse(sides[1]).value)
        self._held = parse(" and ".join(rest)).value if rest else None
        self._by_key: dict[Any, list[Row]] = {}
        for row in right.rows:
            key = tuple(identity(value(row)) for value in keys)
            self._by_key.setdefault(key, []).append(row)

    def of(self, row: Row) -> list[Mapping[str, Any]]:
        """Each with the columns of both."""
        key = []
        for value, is_null_safe in self._pairs:
            one = identity(value(row))
            if one is None and not is_null_safe:
                return []
            key.append(one)
        names = self._right.columns
        both = (
            {**row, **{name: other[name] for name in names}}
            for other in self._by_key.get(tuple(key), ())
        )
        return [one for one in both if self._held is None or self._held(one) is True]


def _sides(
    left: LocalFrame, right: LocalFrame, pair: tuple[Column, Column, bool]
) -> tuple[str, str] | None:
    """The columns of an equality, the left frame's first; None if it is not of two columns."""
    one, other = pair[0].called, pair[1].called
    if one in left.columns and other in right.columns:
        return pair[0].sql, pair[1].sql
    if other in left.columns and one in right.columns:
        return pair[1].sql, pair[0].sql
    return None


def _exploded(rows: Iterable[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [{**row, name: one} for row in rows for one in row[name] or ()]


def _key(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple([row[name] for name in names])


def _named(column: Named) -> Column:
    if not isinstance(column, str):
        return column
    parts = column.split(".")
    return Column(".".join(f"`{part}`" for part in parts), parts[-1])


def _local(frame: Frame) -> LocalFrame:
    assert isinstance(frame, LocalFrame), "a frame of another engine"
    return frame
