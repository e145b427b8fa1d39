"""The columns of a table from their declaration: names and types, as Spark's schemas write them."""

from __future__ import annotations


def columns_of(declared: str) -> list[tuple[str, str]]:
    """
    >>> columns_of("topic string, in_sync array<int>")
    [('topic', 'string'), ('in_sync', 'array<int>')]
    """
    return [(part.split(None, 1)[0], part.split(None, 1)[1]) for part in split(declared, " ")]


def names_of(declared: str) -> list[str]:
    return [name for name, _ in columns_of(declared)]


def split(text: str, mark: str) -> list[str]:
    """Split at the commas outside brackets; each part contains `mark`."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    assert all(mark in part for part in parts), text
    return parts
