"""Trees as the text of Helm's templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, TypeVar

import yaml
from template_tree import Block, Choice, Entry, If, Nested, Optional, Raw, Text

_PLAIN = re.compile(r"[A-Za-z/$][\w ./$()|@;=<>+-]*(:[\w./$()-]+)*")
_TEMPLATE = re.compile(r"\{\{.*?\}\}")
T = TypeVar("T")


def documents(entries: Iterable[Entry]) -> list[str]:
    """Lines of objects, `---` before each, below what has to hold for them."""
    found: list[str] = []
    for conditions, same in groupby(entries, lambda one: one.conditions):
        lines = [line for one in same for line in ("---", *_keys(one.tree, 0))]
        for condition in reversed(conditions):
            lines = _conditional(condition, lines, 0)
        found += lines
    return found


def _keys(tree: dict[str, Any], depth: int) -> list[str]:
    return _together(
        tree.items(),
        lambda pair: pair[1].condition if isinstance(pair[1], If) else "",
        lambda pair: _key(pair[0], pair[1].node if isinstance(pair[1], If) else pair[1], depth),
        depth,
    )


def _items(items: list[Any], depth: int) -> list[str]:
    return _together(
        items,
        lambda item: item.condition if isinstance(item, If) else "",
        lambda item: _item(item.node if isinstance(item, If) else item, depth),
        depth,
    )


def _together(
    parts: Iterable[T],
    condition_of: Callable[[T], str],
    lines_of: Callable[[T], list[str]],
    depth: int,
) -> list[str]:
    """Neighbours of one condition are written below it together."""
    found: list[str] = []
    for condition, same in groupby(parts, condition_of):
        lines = [line for part in same for line in lines_of(part)]
        found += _conditional(condition, lines, depth) if condition else lines
    return found


def _conditional(condition: str, lines: list[str], depth: int) -> list[str]:
    space = " " * depth
    return [f"{space}{{{{- if {condition} }}}}", *lines, f"{space}{{{{- end }}}}"]


def _key(key: str, value: Any, depth: int) -> list[str]:
    space, name = " " * depth, scalar(key)
    match value:
        case Raw(text):
            return [f"{space}{line}" for line in text.splitlines()]
        case Nested(expression):
            return [f"{space}{name}:", f"{space}  {{{{- {expression} | nindent {depth + 2} }}}}"]
        case Optional(expression):
            return [
                f"{space}{{{{- with {expression} }}}}",
                *_key(key, Nested("toYaml ."), depth),
                f"{space}{{{{- end }}}}",
            ]
        case Block(expression):
            return [f"{space}{name}: |", f"{space}  {{{{- {expression} | nindent {depth + 2} }}}}"]
        case dict() if value:
            return [f"{space}{name}:", *_keys(value, depth + 2)]
        case list() if value:
            return [f"{space}{name}:", *_items(value, depth + 2)]
        case _:
            return [f"{space}{name}: {scalar(value)}"]


def _item(item: Any, depth: int) -> list[str]:
    space = " " * depth
    match item:
        case Raw(text):
            return [f"{space}{line}" for line in text.splitlines()]
        case dict() if item:
            lines = _keys(item, depth + 2)
            if lines[0].lstrip().startswith("{{"):
                # A condition cannot be on the line of the dash.
                return [f"{space}-", *lines]
            return [f"{space}- {lines[0][depth + 2 :]}", *lines[1:]]
        case list():
            raise ValueError(f"a list in a list: {item}")
        case _:
            return [f"{space}- {scalar(item)}"]


def scalar(node: Any) -> str:
    """On one line.

    Raises:
        ValueError: a string that Helm would take for a template.
    """
    match node:
        case Text(text):
            return text if _is_plain(text) else "'" + text.replace("'", "''") + "'"
        case Choice(condition, yes, no):
            return f"{{{{ if {condition} }}}}{scalar(yes)}{{{{ else }}}}{scalar(no)}{{{{ end }}}}"
        case str() if "{{" in node:
            raise ValueError(f"a template in a manifest: {node}")
        case _:
            text = yaml.safe_dump(node, width=10**6, allow_unicode=True, default_flow_style=True)
            return text.removesuffix("\n").removesuffix("\n...")


def _is_plain(text: str) -> bool:
    """Whether it needs no quotes; of an expression that stands alone, its own `quote` decides."""
    return _PLAIN.fullmatch(_TEMPLATE.sub("x", text)) is not None
