"""Bodies of messages as text: JSON, text, or bytes in hexadecimal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from aerobee.client_core.message import ReceivedMessage
from aerobee.runtime.errors import CorruptBody
from aerobee.runtime.printable import printable

SHOWN_BYTES_MAX: Final = 64 * 1_024
PREVIEW_CHARACTERS: Final = 60
_LINE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Body:
    """A body, or why there is none to show."""

    kind: str
    """`JSON`, `text`, `bytes`; empty: it is not shown."""
    text: str
    size_bytes: int | None = None
    is_cut: bool = False


def body_of(message: ReceivedMessage, *, as_bytes: bool = False) -> Body:
    try:
        body = message.body
    except CorruptBody as error:
        return Body("", str(error))
    shown = body[:SHOWN_BYTES_MAX]
    is_cut = len(shown) < len(body)
    if not as_bytes:
        if not is_cut and (document := _json(body)) is not None:
            return Body("JSON", document, len(body))
        try:
            # A character that the cut has split is left out.
            text = shown.decode("utf-8", "ignore" if is_cut else "strict")
        except UnicodeDecodeError:
            pass
        else:
            return Body("text", printable(text, keep="\n\t"), len(body), is_cut)
    return Body("bytes", _hexadecimal(shown), len(body), is_cut)


def preview_of(message: ReceivedMessage) -> str:
    """The beginning, on one line."""
    try:
        body = message.body
    except CorruptBody as error:
        return f"({error})"
    try:
        text = body[: 4 * PREVIEW_CHARACTERS].decode(
            "utf-8", "strict" if len(body) < 240 else "ignore"
        )
    except UnicodeDecodeError:
        return f"({len(body):,} bytes)"
    text = printable(text)
    return text if len(text) <= PREVIEW_CHARACTERS else f"{text[: PREVIEW_CHARACTERS - 1]}…"


def _json(body: bytes) -> str | None:
    """Indented; None if it is not an object or a list."""
    if body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        document = json.loads(body)
        return printable(json.dumps(document, indent=2, ensure_ascii=False), keep="\n")
    except (ValueError, RecursionError):
        return None


def _hexadecimal(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), _LINE_BYTES):
        some = data[at : at + _LINE_BYTES]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"{at:08x}  {some.hex(' '):<{_LINE_BYTES * 3 - 1}}  {text}")
    return "\n".join(lines)
