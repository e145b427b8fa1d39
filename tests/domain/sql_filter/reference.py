"""Judges a tree slowly and plainly, rule by rule of docs/filters.md: what the compiled form is
compared with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from aerobee.domain.sql_filter.tree import (
    All,
    Any,
    Constant,
    Equal,
    Has,
    In,
    IsNull,
    IsSet,
    Negated,
    Not,
    Ordered,
    Part,
    Property,
    Value,
)

Found = str | int | float | bool | None


class Undecided(Exception):
    """An error of evaluation."""


def is_match(node: Value, properties: Mapping[str, str]) -> bool:
    try:
        return value_of(node, properties) is True
    except Undecided:
        return False


def value_of(node: Value, properties: Mapping[str, str]) -> Found:
    if isinstance(node, Property):
        return properties.get(node.name)
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, IsSet):
        return False if node.name in properties else None
    if isinstance(node, Negated):
        found = value_of(node.operand, properties)
        return None if found is None or isinstance(found, bool | str) else -found
    if isinstance(node, Not):
        found = value_of(node.operand, properties)
        return None if found is None else not found
    if isinstance(node, All | Any):
        return _joined(node, properties)
    if isinstance(node, IsNull):
        return value_of(node.operand, properties) is None
    if isinstance(node, In):
        text = properties.get(node.name)
        return None if text is None else (text in node.texts) != node.is_negated
    if isinstance(node, Has):
        return _has(node, properties)
    left, right = value_of(node.left, properties), value_of(node.right, properties)
    return _ordered(node, left, right) if isinstance(node, Ordered) else _equal(node, left, right)


def _joined(node: All | Any, properties: Mapping[str, str]) -> bool | None:
    decisive = isinstance(node, Any)
    verdicts = []
    for operand in node.operands:
        verdicts.append(value_of(operand, properties))
        if verdicts[-1] is decisive:
            return decisive
    return None if None in verdicts else not decisive


def _has(node: Has, properties: Mapping[str, str]) -> bool:
    text = value_of(node.operand, properties)
    if not node.text or not isinstance(text, str):
        return False
    size = len(node.text)
    places = {
        Part.INSIDE: range(len(text)),
        Part.FRONT: (0,),
        Part.BACK: (max(0, len(text) - size),),
    }
    found = any(text[at : at + size] == node.text for at in places[node.part])
    return found != node.is_negated


def _ordered(node: Ordered, left: Found, right: Found) -> bool | None:
    if left is None or right is None:
        return None
    both_texts = isinstance(left, str) and isinstance(right, str)
    one = _number(left, 0.0 if both_texts else right)
    other = _number(right, 0.0 if both_texts else left)
    below, equal = _below(one, other), not _below(one, other) and not _below(other, one)
    return {"<": below, "<=": below or equal, ">": not (below or equal), ">=": not below}[
        node.order
    ]


def _equal(node: Equal, left: Found, right: Found) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, bool) and isinstance(right, str):
        raise Undecided
    if isinstance(left, str) and isinstance(right, bool):
        left = left.lower() == "true"
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    one, other = _number(left, right), _number(right, left)
    return not _below(one, other) and not _below(other, one)


def _number(found: Found, beside: Found) -> int | float:
    """As the number beside it is, if it is a text."""
    assert found is not None
    assert not isinstance(found, bool)
    if not isinstance(found, str):
        return float(found) if isinstance(beside, float) else found
    if not isinstance(beside, float):
        if not re.fullmatch(r"[+-]?\d+", found) or abs(Decimal(found)) > 1 << 63:
            raise Undecided
        if int(found) not in range(-(1 << 63), 1 << 63):
            raise Undecided
        return int(found)
    text = found.strip("".join(map(chr, range(33))))
    if re.fullmatch(r"[+-]?(NaN|Infinity)", text):
        return float(text)
    hexadecimal = r"[+-]?0x([0-9a-f]+\.?|[0-9a-f]*\.[0-9a-f]+)p[+-]?[0-9]+[fd]?"
    if re.fullmatch(hexadecimal, text, re.IGNORECASE | re.ASCII):
        return float.fromhex(text.rstrip("fFdD") if "p" in text else text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?[fd]?", text, re.IGNORECASE | re.ASCII):
        return float(text.rstrip("fFdD"))
    raise Undecided


def _below(one: int | float, other: int | float) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one < other
    one, other = float(one), float(other)
    if one != one or other != other:  # NaN is above all others
        return one == one
    if one == other == 0:
        return str(one) < str(other)
    return one < other
