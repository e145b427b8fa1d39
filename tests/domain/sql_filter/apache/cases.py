"""Expressions and messages for two judges: drawn from the raw grammar, so that some are illegal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

NAMES = ("a", "b", "c", "_d", "TAGS")
VALUES = (
    *("x", "y", "it's", "中", "5", "5.5", "-3", "+7", "0", "007", "true", "False", "NaN", "1e3"),
    *(" 1.5d ", "0x1p4", "-0.0", "0.0", "Infinity", "-Infinity", "5_0", " 5", "٥", "1e400", "5x"),
    *("2147483647", "-2147483648", "1.5f", ".5", "5.", "0x1.8p1", "xyx", "1E3", "--5", "+", "0L"),
)
TEXTS = ("'x'", "'y'", "'5'", "'it''s'", "'中'", "'true'", "''", "'5.0'")
NUMBERS = (
    *(
        "0",
        "5",
        "7L",
        "1000",
        "2147483648",
        "9223372036854775807",
        "16",
        "5.5",
        "5.",
        ".5",
        "1.5e3",
    ),
    *("5E0", "1e300", "0", "5", "6", "1", "1.0", "3"),
)
ODD_NUMBERS = ("9223372036854775808", "1e400", "5e-324")


@dataclass(frozen=True, slots=True)
class Case:
    expression: str
    properties: dict[str, str]


def cases(random: Random, count: int) -> Iterator[Case]:
    for _ in range(count):
        properties = {name: random.choice(VALUES) for name in NAMES if random.random() < 0.7}
        yield Case(_expression(random, 3), properties)


def _expression(random: Random, depth: int) -> str:
    joined = [_condition(random, depth) for _ in range(random.choice((1, 1, 1, 2, 2, 3)))]
    text = joined[0]
    for each in joined[1:]:
        text += random.choice((" AND ", " OR ", "\nand ", " Or/* or */")) + each
    return text


def _condition(random: Random, depth: int) -> str:
    """Mostly a legal one."""
    way = random.random()
    if way < 0.1:
        return _anything(random, depth)
    if way < 0.2:
        return f"NOT ({_expression(random, depth - 1)})" if depth else random.choice(NAMES)
    if way < 0.3:
        return f"({_expression(random, depth - 1)})" if depth else "TRUE"
    no = random.choice(("", "NOT "))
    left = random.choice(NAMES)
    if way < 0.4:
        return f"{left} IS {no}NULL"
    if way < 0.5:
        return f"{left} {no}BETWEEN {_number(random)} AND {_number(random)}"
    if way < 0.6:
        return f"{left} {no}IN ({', '.join(random.choices(TEXTS, k=random.randint(1, 6)))})"
    if way < 0.68:
        word = random.choice(("CONTAINS", "startswith", "EndsWith"))
        return f"{left} {no}{word} {random.choice(TEXTS)}"
    if way < 0.84:
        return f"{_number(random)} {random.choice(('<', '<=', '>', '>='))} {_number(random)}"
    other = random.choice((_number(random), random.choice(TEXTS), "TRUE", "false"))
    return f"{left} {random.choice(('=', '<>'))} {other}"


def _number(random: Random) -> str:
    """Or what may be one."""
    way = random.random()
    if way < 0.5:
        return random.choice(NAMES)
    sign = random.choice(("", "", "-", "+", "- -"))
    return sign + random.choice(NUMBERS)


def _anything(random: Random, depth: int) -> str:
    """What the grammar has, legal or not."""
    left = _unary(random, depth)
    no = random.choice(("", "NOT "))
    way = random.random()
    if way < 0.3:
        return f"{left} {random.choice(('=', '<>', '<', '<=', '>', '>='))} {_unary(random, depth)}"
    if way < 0.45:
        return f"{left} IS {no}NULL"
    if way < 0.6:
        return f"{left} {no}BETWEEN {_unary(random, 0)} AND {_unary(random, 0)}"
    if way < 0.7:
        return f"{left} {no}IN ({random.choice(TEXTS)})"
    if way < 0.8:
        return f"{left} {no}CONTAINS {random.choice(TEXTS)}"
    return left


def _unary(random: Random, depth: int) -> str:
    way = random.random()
    if way < 0.15:
        return f"{random.choice(('-', '+', 'NOT'))} {_unary(random, depth)}"
    if way < 0.4 and depth > 0:
        return f"({_expression(random, depth - 1)})"
    if way < 0.75:
        return random.choice(NAMES)
    return random.choice((*NUMBERS, *ODD_NUMBERS, *TEXTS, "TRUE", "false", "NULL"))
