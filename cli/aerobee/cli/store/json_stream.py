"""JSON documents that are larger than memory should hold: parts are made while they are written.

A document is made of ordinary values, of `Members` where an object's members come one after the
other, and of iterators where an array's items do. Both can be gone through once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aerobee.runtime.printable import printable_json

Write = Callable[[str], object]


class Members:
    """An object whose members come as (name, value) pairs."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        self._pairs = pairs

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._pairs)


def collected(value: Any) -> Any:
    """The value as dicts and lists, all of it in memory."""
    if isinstance(value, Members):
        return {name: collected(member) for name, member in value}
    if isinstance(value, Iterator):
        return [collected(item) for item in value]
    return value


def write_json(value: Any, write: Write, *, depth: int = 0) -> None:
    """One member or item a line; what is in memory anyway stands on one line from depth 2 on."""
    if isinstance(value, Members):
        _write_all("{}", ((_text(name) + ": ", member) for name, member in value), write, depth)
    elif isinstance(value, Iterator):
        _write_all("[]", (("", item) for item in value), write, depth)
    elif isinstance(value, dict) and depth < 2:
        write_json(Members(value.items()), write, depth=depth)
    elif isinstance(value, list) and depth < 3:
        write_json(iter(value), write, depth=depth)
    else:
        write(_text(value))


def _write_all(brackets: str, parts: Iterator[tuple[str, Any]], write: Write, depth: int) -> None:
    indent = "\n" + " " * (depth + 1)
    separator = indent
    write(brackets[0])
    for prefix, value in parts:
        write(separator + prefix)
        write_json(value, write, depth=depth + 1)
        separator = "," + indent
    if separator != indent:
        write(indent[:-1])
    write(brackets[1])


def _text(value: Any) -> str:
    return printable_json(json.dumps(value, ensure_ascii=False))
