"""Objects with places that a value decides, as trees: what `generate.py` makes of renderings.

`merged` lays an object of one rendering over that of another: what differs is what the component
that was added does, and gets that component's condition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


class Unclear(Exception):
    """A difference that no condition can say; names the place."""


@dataclass(frozen=True, slots=True)
class If:
    """An item of a list, or a value of a key, that is there if the condition holds."""

    condition: str
    node: Any


@dataclass(frozen=True, slots=True)
class Choice:
    """One scalar if the condition holds, else another one."""

    condition: str
    yes: Any
    no: Any


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar as it is written in the template."""

    text: str


@dataclass(frozen=True, slots=True)
class Nested:
    """What an expression makes, below its key."""

    expression: str


@dataclass(frozen=True, slots=True)
class Optional:
    """The key and its value, if the value is not empty."""

    expression: str


@dataclass(frozen=True, slots=True)
class Block:
    """A text of several lines that an expression makes."""

    expression: str


@dataclass(frozen=True, slots=True)
class Raw:
    """Lines of a template in place of an item of a list, or of a key and its value."""

    text: str


@dataclass(slots=True)
class Entry:
    """One object, what has to hold for it, and the file that it is written to."""

    tree: Object
    file: str
    conditions: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        return str(self.tree["kind"]), str(self.tree["metadata"]["name"])


def merge(
    entries: list[Entry], objects: list[Object], file: str, condition: str, active: set[str]
) -> None:
    """Add to `entries` what `objects` have more, where `active` are the conditions that the other
    rendering had."""
    known = {one.key: one for one in entries if active.issuperset(one.conditions)}
    for one in objects:
        key = str(one["kind"]), str(one["metadata"]["name"])
        if key in known:
            known[key].tree = merged(known[key].tree, one, condition, active, "/".join(key))
        else:
            entries.append(Entry(one, file, [condition]))


def merged(old: Any, new: Any, condition: str, active: set[str], place: str = "") -> Any:
    """`old`, with what is otherwise in `new` under a condition.

    Raises:
        Unclear: something of `old` is missing, or of another type.
    """
    if isinstance(old, If):
        return If(old.condition, merged(old.node, new, condition, active, place))
    if isinstance(old, dict) and isinstance(new, dict):
        return _merged_keys(old, new, condition, active, place)
    if isinstance(old, list) and isinstance(new, list):
        return _merged_items(old, new, condition, active, place)
    if isinstance(old, dict | list) or isinstance(new, dict | list):
        raise Unclear(place)
    return old if _now(old, active) == new else Choice(condition, new, old)


def _now(node: Any, active: set[str]) -> Any:
    """The scalar that a rendering with these conditions has."""
    while isinstance(node, Choice):
        node = node.yes if node.condition in active else node.no
    return node


def _is_there(node: Any, active: set[str]) -> bool:
    return not isinstance(node, If) or node.condition in active


def _merged_keys(old: Object, new: Object, condition: str, active: set[str], place: str) -> Object:
    found: Object = {}
    for key, value in old.items():
        if not _is_there(value, active):
            found[key] = value
        elif key not in new:
            raise Unclear(f"{place}/{key} is gone")
        else:
            found[key] = merged(value, new[key], condition, active, f"{place}/{key}")
    for key in new:
        if key not in found:
            found[key] = If(condition, new[key])
    return found


def _merged_items(
    old: list[Any], new: list[Any], condition: str, active: set[str], place: str
) -> list[Any]:
    """In the order of `old`; what is new stands before the item that it stands before in `new`."""
    names = [name_of(one) if _is_there(one, active) else None for one in old]
    found: list[Any] = []
    at = 0
    for item in new:
        name = name_of(item)
        if name not in names[at:]:
            if name in names[:at]:
                raise Unclear(f"{place}/{name} has moved")
            found.append(If(condition, item))
            continue
        while names[at] != name:
            if names[at] is not None:
                raise Unclear(f"{place}/{names[at]} is gone")
            found.append(old[at])
            at += 1
        found.append(merged(old[at], item, condition, active, f"{place}/{name}"))
        at += 1
    if any(name is not None for name in names[at:]):
        raise Unclear(f"{place}: the end is gone")
    # What other features put at the end stays before what this one does.
    mine = [one for one in found if isinstance(one, If) and one.condition == condition]
    if old[at:] and mine:
        end = len(found)
        while end and found[end - 1] in mine:
            end -= 1
        return [*found[:end], *old[at:], *found[end:]]
    return [*found, *old[at:]]


def name_of(item: Any) -> str:
    """By what an item of a list is known to be the same one."""
    if isinstance(item, If):
        return name_of(item.node)
    if isinstance(item, Choice):
        return name_of(item.no)
    if isinstance(item, dict):
        for key in ("name", "topologyKey"):
            if key in item:
                return str(item[key])
    if isinstance(item, str):
        return item.split("=")[0]
    return json.dumps(item, sort_keys=True, default=repr)


def put(tree: Any, path: tuple[Any, ...], node: Any) -> None:
    """Write `node` at a path of keys, and names of items of lists.

    Raises:
        Unclear: there is nothing at that path; a new last key is added.
    """
    for depth, step in enumerate(path[:-1]):
        tree = child(tree, step, path[: depth + 1])
    if isinstance(tree, list):
        tree[_index(tree, path[-1], path)] = node
    else:
        tree[path[-1]] = node


def child(tree: Any, step: Any, path: tuple[Any, ...]) -> Any:
    """What is at one step of a path.

    Raises:
        Unclear: nothing is.
    """
    if isinstance(tree, list):
        found = tree[_index(tree, step, path)]
    elif step in tree:
        found = tree[step]
    else:
        raise Unclear(f"nothing at {path}")
    return found.node if isinstance(found, If) else found


def _index(items: list[Any], name: Any, path: tuple[Any, ...]) -> int:
    if isinstance(name, int):
        return name
    for at, item in enumerate(items):
        if name_of(item) == name:
            return at
    raise Unclear(f"nothing at {path}")


def substitute(node: Any, text: str, template: str) -> Any:
    """`node` with `template` for `text` in every string."""
    if isinstance(node, dict):
        return {key: substitute(value, text, template) for key, value in node.items()}
    if isinstance(node, list):
        return [substitute(item, text, template) for item in node]
    if isinstance(node, If):
        return If(node.condition, substitute(node.node, text, template))
    if isinstance(node, Choice):
        yes, no = (substitute(one, text, template) for one in (node.yes, node.no))
        return Choice(node.condition, yes, no)
    if isinstance(node, Text):
        return Text(node.text.replace(text, template))
    if isinstance(node, str) and text in node:
        return Text(node.replace(text, template))
    return node
