"""The words of an expression: names, keywords, literals, operators, each with its position."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from aerobee.domain.sql_filter.errors import SqlIllegal

INTEGER_MAX: Final = (1 << 63) - 1
KEYWORDS: Final = frozenset(
    [
        "AND",
        "BETWEEN",
        "CONTAINS",
        "ENDSWITH",
        "FALSE",
        "IN",
        "IS",
        "NOT",
        "NULL",
        "OR",
        "STARTSWITH",
        "TRUE",
    ]
)


class Kind(Enum):
    """What a token is."""

    KEYWORD = auto()
    NAME = auto()
    INTEGER = auto()
    FLOAT = auto()
    STRING = auto()
    OPERATOR = auto()
    END = auto()


class Token(NamedTuple):
    """`text` is a keyword in capitals, a string without its quotes, else as written."""

    kind: Kind
    text: str
    position: int


# Possessive repetition: with backtracking, a text could take time quadratic in its length.
_WORDS: Final = re.compile(
    r"""
      (?P<skipped> [ \t\n\r\f]++ | --[^\n\r]*+ | /\*(?s:.*?)\*/ )
    | (?P<word> [A-Za-z_$][A-Za-z0-9_$]*+ )
    | (?P<float> (?: [0-9]++\.[0-9]*+ | \.[0-9]++ ) (?: [eE][+-]?[0-9]++ )?
               | [0-9]++[eE][+-]?[0-9]++ )
    | (?P<integer> (?: 0 | [1-9][0-9]*+ ) [lL]? )
    | '(?P<string> (?: [^'] | '' )*+ )'
    | (?P<operator> <> | <= | >= | [=<>(),+-] )
    """,
    re.VERBOSE,
)


def tokens(text: str) -> Iterator[Token]:
    """The last one is END. Raises SqlIllegal."""
    position = 0
    end = len(text)
    while position < end:
        found = _WORDS.match(text, position)
        if found is None:
            raise SqlIllegal(text, position, _why_no_token(text, position))
        kind = found.lastgroup
        if kind == "word":
            word = found[0]
            capitals = word.upper()
            if capitals in KEYWORDS:
                yield Token(Kind.KEYWORD, capitals, position)
            else:
                yield Token(Kind.NAME, word, position)
        elif kind == "string":
            yield Token(Kind.STRING, found["string"].replace("''", "'"), position)
        elif kind == "integer":
            yield Token(Kind.INTEGER, found[0].rstrip("lL"), position)
        elif kind == "float":
            yield Token(Kind.FLOAT, found[0], position)
        elif kind == "operator":
            yield Token(Kind.OPERATOR, found[0], position)
        position = found.end()
    yield Token(Kind.END, "", end)


def _why_no_token(text: str, position: int) -> str:
    if text[position] == "'":
        return "the string has no closing quote; a quote inside of it is written twice"
    if text.startswith("/*", position):
        return "the comment has no end; write */"
    if text.startswith("!=", position):
        return "write <> for unequal"
    return "no word, number, string or operator begins so; strings have single quotes"
