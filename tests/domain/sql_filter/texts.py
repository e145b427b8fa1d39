"""Expressions to test with: any tree that is legal, how it is written, and values for it."""

from __future__ import annotations

from hypothesis import strategies as st

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

NAMES = ("a", "b", "_c", "$d1", "TAGS")
VALUES = (
    *("x", "y", "it's", "中", "5", "5.5", "-3", "+7", "0", "007", "true", "False", "NaN", "1e3"),
    *(" 1.5d ", "0x1p4", "-0.0", "0.0", "Infinity", "-Infinity", "5_0", " 5", "", "٥", "1e400"),
    *("2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "5x"),
)

_names = st.sampled_from(NAMES)
_texts = st.sampled_from([value for value in VALUES if value])
_integers = st.sampled_from([0, 1, 5, 7, 1_000, 2_147_483_648, (1 << 63) - 1])
_floats = st.sampled_from([0.5, 1.5, 5.0, 16.0, 1e3, 1e300, 5e-324])
_properties = st.builds(Property, _names)
_numbers = st.builds(Constant, _integers | _floats)
_booleans = st.builds(Constant, st.booleans())
_nulls = st.builds(Constant, st.none())


def _negations(operands: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.builds(Negated, operands)


_literals = _numbers | st.builds(Constant, _texts)
_ordered_values = _properties | _numbers | _negations(_properties | _literals | _booleans)


def _is_comparable(pair: tuple[Value, Value]) -> bool:
    left, right = pair
    return not (
        isinstance(left, Constant)
        and isinstance(left.value, bool)
        and isinstance(right, Constant)
        and not isinstance(right.value, bool)
    )


def _equal(conditions: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    compound = conditions.filter(lambda each: not isinstance(each, IsSet | Constant))
    operands = _properties | _literals | _booleans | _negations(_properties | _literals) | compound
    pairs = st.tuples(operands, operands).filter(_is_comparable)
    return pairs.map(lambda pair: Equal(*pair))


def _compound(conditions: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(conditions, min_size=2, max_size=4).map(tuple)
    operands: st.SearchStrategy[Value] = _properties | conditions.filter(
        lambda each: not isinstance(each, IsSet)
    )
    return st.one_of(
        st.builds(All, several),
        st.builds(Any, several),
        st.builds(Not, conditions),
        st.builds(IsNull, operands | _literals),
        _equal(conditions),
        st.builds(Has, st.sampled_from(Part), operands | _literals, _texts, st.booleans()),
    )


_simple: st.SearchStrategy[Condition] = st.one_of(
    st.builds(IsSet, _names),
    _booleans,
    _nulls,
    st.builds(In, _names, st.lists(_texts, min_size=1, max_size=6).map(tuple), st.booleans()),
    st.builds(Ordered, st.sampled_from(Order), _ordered_values, _ordered_values),
    _equal(st.nothing()),
)

CONDITIONS: st.SearchStrategy[Condition] = st.recursive(_simple, _compound, max_leaves=8)
PROPERTIES = st.dictionaries(_names, st.sampled_from(VALUES).filter(bool))


def written(node: Value) -> str:
    """The text that is parsed to this tree."""
    if isinstance(node, Property | IsSet):
        return node.name
    if isinstance(node, Constant):
        return _literal(node.value)
    if isinstance(node, Negated):
        return f"- {_inner(node.operand)}"
    if isinstance(node, Not):
        return f"NOT {_inner(node.operand)}"
    if isinstance(node, All | Any):
        return (" AND " if isinstance(node, All) else " or ").join(map(_inner, node.operands))
    if isinstance(node, Equal):
        return f"{_inner(node.left)} = {_inner(node.right)}"
    if isinstance(node, Ordered):
        return f"{_inner(node.left)} {node.order} {_inner(node.right)}"
    if isinstance(node, IsNull):
        return f"{_inner(node.operand)} IS NULL"
    no = "NOT " if node.is_negated else ""
    if isinstance(node, In):
        return f"{node.name} {no}IN ({', '.join(map(_literal, node.texts))})"
    return f"{_inner(node.operand)} {no}{node.part} {_literal(node.text)}"


def _inner(node: Value) -> str:
    text = written(node)
    return text if isinstance(node, Property | Constant) else f"({text})"


def _literal(value: str | int | float | bool | None) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    return repr(value)
