"""From tree to functions: each node becomes one, which gets the values of the properties.

A condition is true, false or None, which is SQL's NULL. Comparing a number with a text that is not
one ends the evaluation: NoVerdict, and the message does not match, whatever else the expression
says. No source code is generated, so an expression cannot become anything but these functions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aerobee.domain.sql_filter.numbers import compare_numbers, to_double, to_integer
from aerobee.domain.sql_filter.tree import (
    All,
    Any,
    Condition,
    Constant,
    Equal,
    Has,
    In,
    IsNull,
    IsSet,
    Negated,
    Not,
    Order,
    Ordered,
    Part,
    Property,
    Value,
)

Row = Sequence[str | None]
"""The values of the named properties, in order."""
Found = str | int | float | bool | None
Evaluate = Callable[[Row], Found]
Judge = Callable[[Row], bool | None]


class NoVerdict(ValueError):
    """The message cannot be evaluated, so it does not match."""


_TRUE_LENGTH: Final = len("true")
_OPERATORS: Final[Mapping[Order, Callable[[int, int], bool]]] = {
    Order.ABOVE: operator.gt,
    Order.FROM: operator.ge,
    Order.BELOW: operator.lt,
    Order.UP_TO: operator.le,
}
_MIRRORED: Final = {
    Order.ABOVE: Order.BELOW,
    Order.FROM: Order.UP_TO,
    Order.BELOW: Order.ABOVE,
    Order.UP_TO: Order.FROM,
}
_LOOKS: Final[Mapping[Part, Callable[[str, str], bool]]] = {
    Part.INSIDE: operator.contains,
    Part.FRONT: str.startswith,
    Part.BACK: str.endswith,
}


def judge_of(node: Condition, places: Mapping[str, int]) -> Judge:
    """`places`: the index of each named property in a row. Judges raise NoVerdict and NoNumber."""
    if isinstance(node, Ordered):
        return _ordered(node, places)
    if isinstance(node, Equal):
        return _equal(node, places)
    if isinstance(node, In):
        return _in(places[node.name], frozenset(node.texts), is_negated=node.is_negated)
    if isinstance(node, All | Any):
        operands = tuple(judge_of(operand, places) for operand in node.operands)
        return _joined(operands, decisive=isinstance(node, Any))
    if isinstance(node, Not):
        return _not(judge_of(node.operand, places))
    if isinstance(node, IsNull):
        operand = _evaluation(node.operand, places)
        return lambda row: operand(row) is None
    if isinstance(node, Has):
        return _has(node, places)
    if isinstance(node, IsSet):
        place = places[node.name]
        return lambda row: None if row[place] is None else False
    value = node.value
    assert value is None or isinstance(value, bool)
    return lambda row: value


def _joined(operands: tuple[Judge, ...], *, decisive: bool) -> Judge:
    """AND is decided by false, OR by true; what follows is not evaluated."""
    if len(operands) == 2:
        first, second = operands

        def both(row: Row) -> bool | None:
            found = first(row)
            if found is decisive:
                return decisive
            other = second(row)
            return other if other is decisive or found is not None else None

        return both

    def joined(row: Row) -> bool | None:
        verdict: bool | None = not decisive
        for judge in operands:
            found = judge(row)
            if found is decisive:
                return decisive
            if found is None:
                verdict = None
        return verdict

    return joined


def _not(judge: Judge) -> Judge:
    def negated(row: Row) -> bool | None:
        found = judge(row)
        return None if found is None else not found

    return negated


def _in(place: int, texts: frozenset[str], *, is_negated: bool) -> Judge:
    def contained(row: Row) -> bool | None:
        text = row[place]
        return None if text is None else (text in texts) is not is_negated

    return contained


def _has(node: Has, places: Mapping[str, int]) -> Judge:
    looks, wanted, is_negated = _LOOKS[node.part], node.text, node.is_negated
    if not wanted:
        return lambda row: False
    operand = _evaluation(node.operand, places)

    def has(row: Row) -> bool:
        text = operand(row)
        return isinstance(text, str) and looks(text, wanted) is not is_negated

    return has


def _ordered(node: Ordered, places: Mapping[str, int]) -> Judge:
    compare = _OPERATORS[node.order]
    left, right = node.left, node.right
    if isinstance(left, Property) and isinstance(right, Constant):
        return _above_or_below(places[left.name], compare, right.value)
    if isinstance(left, Constant) and isinstance(right, Property):
        return _above_or_below(places[right.name], _OPERATORS[_MIRRORED[node.order]], left.value)
    first, second = _evaluation(left, places), _evaluation(right, places)

    def ordered(row: Row) -> bool | None:
        one = first(row)
        if one is None or (other := second(row)) is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return compare(compare_numbers(to_double(one), to_double(other)), 0)
        return compare(_comparison(one, other), 0)

    return ordered


def _above_or_below(place: int, compare: Callable[[int, int], bool], value: Found) -> Judge:
    """Compares a property with a number."""
    if isinstance(value, int):
        limit = value

        def integer_ordered(row: Row) -> bool | None:
            text = row[place]
            return None if text is None else compare(to_integer(text), limit)

        return integer_ordered
    assert isinstance(value, float)
    bound = value

    def double_ordered(row: Row) -> bool | None:
        text = row[place]
        return None if text is None else compare(compare_numbers(to_double(text), bound), 0)

    return double_ordered


def _equal(node: Equal, places: Mapping[str, int]) -> Judge:
    left, right = node.left, node.right
    if isinstance(left, Property) and isinstance(right, Constant):
        wanted = right.value
        place = places[left.name]
        if isinstance(wanted, str):

            def text_equal(row: Row) -> bool | None:
                text = row[place]
                return None if text is None else text == wanted

            return text_equal
        if isinstance(wanted, int) and not isinstance(wanted, bool):

            def integer_equal(row: Row) -> bool | None:
                text = row[place]
                return None if text is None else to_integer(text) == wanted

            return integer_equal
    first, second = _evaluation(left, places), _evaluation(right, places)

    def equal(row: Row) -> bool | None:
        one, other = first(row), second(row)
        if one is None:
            return True if other is None else None
        return False if other is None else _comparison(one, other) == 0

    return equal


def _comparison(left: str | int | float | bool, right: str | int | float | bool) -> int:
    """0 for equal values. A text compared with a number or a boolean is parsed as one. Raises
    NoVerdict if a boolean is on the left of a text."""
    if isinstance(left, str):
        if isinstance(right, str):
            return 0 if left == right else -1
        if isinstance(right, bool):
            # Only a text of this length can become it, so a long one costs nothing.
            is_true = len(left) == _TRUE_LENGTH and left.lower() == "true"
            return 0 if is_true is right else -1
        return compare_numbers(_as_number(left, right), right)
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(right, str):
            raise NoVerdict
        return 0 if left is right else -1
    return compare_numbers(left, _as_number(right, left) if isinstance(right, str) else right)


def _as_number(text: str, like: int | float) -> int | float:
    return to_integer(text) if isinstance(like, int) else to_double(text)


def _evaluation(node: Value, places: Mapping[str, int]) -> Evaluate:
    if isinstance(node, Property):
        return operator.itemgetter(places[node.name])
    if isinstance(node, Constant):
        value = node.value
        return lambda row: value
    if isinstance(node, Negated):
        number = _negated(node)
        if number is not None:
            return lambda row: number
        operand = _evaluation(node.operand, places)

        def nothing(row: Row) -> None:
            operand(row)  # it may raise NoVerdict

        return nothing
    return judge_of(node, places)


def _negated(node: Negated) -> int | float | None:
    """Only a literal is a number, perhaps with several signs."""
    operand = node.operand
    if isinstance(operand, Negated):
        number = _negated(operand)
    elif isinstance(operand, Constant) and not isinstance(operand.value, bool | str | None):
        number = operand.value
    else:
        number = None
    return None if number is None else -number
