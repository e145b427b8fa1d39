"""Text from others, made safe for a terminal or a log line.

What may reach a terminal unchanged: visible characters and spaces. Everything else (control
characters of ASCII and Latin 1, including escape sequences, line ends, marks that change the
direction of writing, lone surrogates) is shown as an escape such as `\\x1b` or `\\u202e`.
"""

from __future__ import annotations

import re
import unicodedata

# Fast and slightly too broad: each match is checked again.
_SUSPECT = re.compile(r"[^\x20-\x7e]")


def printable(text: str, *, keep: str = "") -> str:
    """`text` with everything invisible as escapes; characters in `keep` stay."""
    if text.isprintable():
        return text
    return _SUSPECT.sub(lambda found: _shown(found[0], keep), text)


def printable_json(text: str) -> str:
    """The same for JSON, with JSON's escapes, so that its meaning is unchanged; line ends stay."""
    if text.isprintable():
        return text
    return _SUSPECT.sub(lambda found: _in_json(found[0]), text)


def _shown(character: str, keep: str) -> str:
    if _is_seen(character) or character in keep:
        return character
    return character.encode("unicode_escape").decode("ascii")


def _in_json(character: str) -> str:
    if _is_seen(character) or character == "\n":
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _is_seen(character: str) -> bool:
    # Spaces of other widths are not "printable" in Python, but harmless and in use.
    return character.isprintable() or unicodedata.category(character) == "Zs"
