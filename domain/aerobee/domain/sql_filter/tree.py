"""An expression as a tree: its meaning, without how it was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Order(StrEnum):
    """Operators for numbers."""

    ABOVE = ">"
    FROM = ">="
    BELOW = "<"
    UP_TO = "<="


class Part(StrEnum):
    """Where in a text another is searched for."""

    INSIDE = "CONTAINS"
    FRONT = "STARTSWITH"
    BACK = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Property:
    """A property's text; NULL without it."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. Integers have 64 bits."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Negated:
    """Minus: NULL for anything but a number."""

    operand: Value


@dataclass(frozen=True, slots=True)
class IsSet:
    """A property in place of a condition: NULL if it is missing, else false, because text is not a
    boolean."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    operand: Condition


@dataclass(frozen=True, slots=True)
class All:
    """AND."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """OR."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Value


@dataclass(frozen=True, slots=True)
class Ordered:
    order: Order
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class In:
    name: str
    texts: tuple[str, ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Has:
    """A text search in another text. Unlike all others it is false for NULL, and so is its
    negation."""

    part: Part
    operand: Value
    text: str
    is_negated: bool = False


Condition = Constant | IsSet | Not | All | Any | Equal | IsNull | Ordered | In | Has
Value = Property | Negated | Condition


def names_of(node: Value) -> Iterator[str]:
    """The properties that are used, in order, possibly with repetitions."""
    if isinstance(node, Property | IsSet | In):
        yield node.name
    elif isinstance(node, All | Any):
        for operand in node.operands:
            yield from names_of(operand)
    elif isinstance(node, Equal | Ordered):
        yield from names_of(node.left)
        yield from names_of(node.right)
    elif isinstance(node, Negated | Not | IsNull | Has):
        yield from names_of(node.operand)


COMPARED = 1
"""Relative price of comparing, hashing or searching a character of a property's text."""
CONVERTED = 4
"""Relative price of reading a character as part of a number or truth value."""


def readings_of(node: Value) -> Iterator[tuple[str, int]]:
    """Each time that a property's whole text may be looked at: its name, and the price of a
    character."""
    if isinstance(node, In):
        yield node.name, COMPARED
    elif isinstance(node, Has):
        yield from _readings(node.operand, COMPARED)
    elif isinstance(node, Equal):
        sides = (node.left, node.right)
        are_texts = all(
            isinstance(side, Property)
            or (isinstance(side, Constant) and isinstance(side.value, str))
            for side in sides
        )
        for side in sides:
            yield from _readings(side, COMPARED if are_texts else CONVERTED)
    elif isinstance(node, Ordered):
        for side in (node.left, node.right):
            yield from _readings(side, CONVERTED)
    elif isinstance(node, All | Any):
        for operand in node.operands:
            yield from readings_of(operand)
    elif isinstance(node, Negated | Not | IsNull):
        yield from readings_of(node.operand)


def _readings(operand: Value, price: int) -> Iterator[tuple[str, int]]:
    if isinstance(operand, Property):
        yield operand.name, price
    else:
        yield from readings_of(operand)


def size_of(node: Value) -> int:
    """Number of nodes in the tree."""
    if isinstance(node, All | Any):
        return 1 + sum(map(size_of, node.operands))
    if isinstance(node, Equal | Ordered):
        return 1 + size_of(node.left) + size_of(node.right)
    if isinstance(node, Negated | Not | IsNull | Has):
        return 1 + size_of(node.operand)
    return 1
