"""Functions of SQL on single values: for each name, what makes the function of a row from those of
its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from aerobee.offset_audit.frames.values import (
    Row,
    Value,
    identity,
    long_or_none,
    order_key,
    text_of,
)

Made = Callable[[list[Value]], Value]
Lambda = tuple[tuple[str, ...], Value]


def known(function: Callable[..., Any], *values: Value) -> Value:
    """Null as soon as one value is."""
    if len(values) == 1:
        (only,) = values
        return lambda row: None if (one := only(row)) is None else function(one)
    if len(values) == 2:
        first, second = values

        def of_two(row: Row) -> Any:
            left = first(row)
            if left is None:
                return None
            right = second(row)
            return None if right is None else function(left, right)

        return of_two

    def found(row: Row) -> Any:
        given = [value(row) for value in values]
        return None if any(one is None for one in given) else function(*given)

    return found


def divided(left: int, right: int) -> int | None:
    """Towards zero."""
    if right == 0:
        return None
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


def _if(values: list[Value]) -> Value:
    held, yes, no = values
    return lambda row: yes(row) if held(row) else no(row)


def _coalesce(values: list[Value]) -> Value:
    def found(row: Row) -> Any:
        for each in values:
            if (one := each(row)) is not None:
                return one
        return None

    return found


def _extreme(choose: Callable[..., Any]) -> Made:
    """Of the known values."""

    def made(values: list[Value]) -> Value:
        def found(row: Row) -> Any:
            given = [value for each in values if (value := each(row)) is not None]
            return choose(given, key=order_key) if given else None

        return found

    return made


def _joined(values: list[Value]) -> Value:
    """concat_ws: nulls are left out."""
    gap, *parts = values

    def found(row: Row) -> str:
        given = [value for each in parts if (value := each(row)) is not None]
        return str(gap(row)).join(map(text_of, given))

    return found


def _plain(function: Callable[..., Any]) -> Made:
    return lambda values: known(function, *values)


def _array(values: list[Value]) -> Value:
    return lambda row: [value(row) for value in values]


def _concat(*parts: Any) -> Any:
    if isinstance(parts[0], list):
        return [one for part in parts for one in part]
    return "".join(map(text_of, parts))


def _formatted(values: list[Value]) -> Value:
    def found(row: Row) -> str:
        form, *given = (value(row) for value in values)
        texts = tuple("null" if one is None else text_of(one) for one in given)
        return str(form).replace("%d", "%s") % texts

    return found


def _number_text(number: float, digits: int) -> str:
    # An integer is not converted to float first: that would round it.
    return f"{number:,}" if digits == 0 and isinstance(number, int) else f"{number:,.{digits}f}"


def _date_text(moment: datetime, form: str) -> str:
    if form == "yyyy-MM-dd HH:mm:ss":
        return f"{moment:%Y-%m-%d %H:%M:%S}"
    if form in ("yyyy-MM-dd'T'HH:mm:ss.SSS", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"):
        text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z" if form.endswith("'Z'") else text
    raise ValueError(f"no date is written as {form!r} here")


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1_000, UTC).replace(microsecond=ms % 1_000 * 1_000)


def _hex(number: int) -> str:
    return f"{number & (1 << 64) - 1:X}"


def _at(array: Sequence[Any], place: int) -> Any:
    return array[place] if 0 <= place < len(array) else None


def _element(array: Sequence[Any], place: int) -> Any:
    """From 1, or from the end if negative."""
    return _at(array, place - 1 if place > 0 else len(array) + place)


def _without(array: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    gone = {identity(one) for one in other}
    return list({identity(one): one for one in array if identity(one) not in gone}.values())


def _last_nulls(array: Sequence[Any]) -> list[Any]:
    """array_sort, in which null is last; sort_array has it first."""
    return sorted(array, key=lambda one: (one is None, order_key(one)))


def _sequence(first: int, last: int) -> list[int]:
    return list(range(first, last + 1)) if first <= last else list(range(first, last - 1, -1))


FUNCTIONS: Final[Mapping[str, Made]] = {
    "if": _if,
    "coalesce": _coalesce,
    "least": _extreme(min),
    "greatest": _extreme(max),
    "abs": _plain(abs),
    "floor": _plain(math.floor),
    "ceil": _plain(math.ceil),
    "try_subtract": _plain(lambda left, right: long_or_none(left - right)),
    "try_add": _plain(lambda left, right: long_or_none(left + right)),
    "try_multiply": _plain(lambda left, right: long_or_none(left * right)),
    # Texts.
    "concat": _plain(_concat),
    "concat_ws": _joined,
    "startswith": _plain(str.startswith),
    "contains": _plain(lambda text, part: part in text),
    "replace": _plain(str.replace),
    "lower": _plain(str.lower),
    "lpad": _plain(lambda text, size, filler: text[:size].rjust(size, filler)),
    "substring": _plain(lambda text, first, size: text[first - 1 : first - 1 + size]),
    "hex": _plain(_hex),
    "format_string": _formatted,
    "format_number": _plain(_number_text),
    "timestamp_millis": _plain(_moment),
    "date_format": _plain(_date_text),
    # Arrays.
    "array": _array,
    "size": _plain(len),
    "get": _plain(_at),
    "try_element_at": _plain(_element),
    "reverse": _plain(lambda array: array[::-1]),
    "slice": _plain(lambda array, first, count: array[first - 1 : first - 1 + count]),
    "sequence": _plain(_sequence),
    "sort_array": _plain(lambda array: sorted(array, key=order_key)),
    "array_sort": _plain(_last_nulls),
    "array_append": lambda values: (
        lambda row: None if (array := values[0](row)) is None else [*array, values[1](row)]
    ),
    "array_compact": _plain(lambda array: [one for one in array if one is not None]),
    "array_contains": _plain(lambda array, one: one in array),
    "array_distinct": _plain(lambda array: _without(array, ())),
    "array_except": _plain(_without),
    "array_join": _plain(
        lambda array, gap: gap.join(text_of(one) for one in array if one is not None)
    ),
    "array_max": _plain(lambda array: max(array, key=order_key, default=None)),
    "array_position": _plain(lambda array, one: array.index(one) + 1 if one in array else 0),
}


def _transform(given: list[Any]) -> Value:
    array, ((name,), value) = given
    return lambda row: (
        None if (all_ := array(row)) is None else [value({**row, name: one}) for one in all_]
    )


def _filter(given: list[Any]) -> Value:
    array, ((name,), value) = given
    return lambda row: (
        None
        if (all_ := array(row)) is None
        else [one for one in all_ if value({**row, name: one}) is True]
    )


def _aggregate(given: list[Any]) -> Value:
    array, begin, ((folded, name), step), *rest = given

    def found(row: Row) -> Any:
        elements = array(row)
        if elements is None:
            return None
        scope = dict(row)
        scope[folded] = begin(row)
        for one in elements:
            scope[name] = one
            scope[folded] = step(scope)
        if not rest:
            return scope[folded]
        ((last,), result) = rest[0]
        scope[last] = scope[folded]
        return result(scope)

    return found


WITH_FUNCTIONS: Final[Mapping[str, Callable[[list[Any]], Value]]] = {
    "transform": _transform,
    "filter": _filter,
    "aggregate": _aggregate,
}
"""Those whose arguments are a value, then values or functions with their parameters."""
