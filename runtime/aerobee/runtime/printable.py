"""Text that others wrote, made fit for a terminal or a line of a log.

What may reach a terminal as it is: characters that are seen, and spaces. Everything else (control
characters of ASCII and Latin 1, so also escape sequences, ends of lines, marks that turn the
direction of writing, half surrogates) is shown as an escape such as `\\x1b` or `\\u202e`.
"""

from __future__ import annotations

import re
import unicodedata

# Fast and slightly too wide: each match is looked at again.
_SUSPECT = re.compile(r"[^\x20-\x7e]")


def printable(text: str, *, keep: str = "") -> str:
    """`text` with everything that is not to be seen as escapes; characters of `keep` stay."""
    if text.isprintable():
        return text
    return _SUSPECT.sub(lambda found: _shown(found[0], keep), text)


def printable_json(text: str) -> str:
    """The same for JSON: its escapes, so that it still says the same; ends of lines stay."""
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
    # Spaces of other widths are not "printable" for Python, and yet harmless and in use.
    return character.isprintable() or unicodedata.category(character) == "Zs"
