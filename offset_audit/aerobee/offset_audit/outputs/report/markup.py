"""HTML from values, escaped unless it already is HTML.

Names of topics, groups and clients are arbitrary: none may become markup, break out of an
attribute, or change the direction of the text around it.
"""

from __future__ import annotations

import html
import re

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_VOID = frozenset({"meta", "link", "input", "br", "hr"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """As text between tags or inside a quoted attribute."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value))))


def joined(*parts: object) -> Markup:
    """Concatenated; None is nothing."""
    return Markup("".join(escaped(part) for part in parts if part is not None))


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """`tag("a", "text", href="#x", class_="link", aria_label="...")`: `_` becomes `-`, True gives
    an attribute without value, None and False leave it out."""
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        written.append(f" {name}" if value is True else f' {name}="{escaped(value)}"')
    head = f"<{element}{''.join(written)}>"
    if element in _VOID:
        return Markup(head)
    return Markup(f"{head}{joined(*children)}</{element}>")


def name(value: str) -> Markup:
    """A name chosen by a user: with its own direction of writing, breakable anywhere."""
    return tag("bdi", value, class_="name")
