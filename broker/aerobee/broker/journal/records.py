"""The content of a journal record: a JSON array of entries, in the order they take effect.

Each entry is an object with a `kind`. One kind is common to every journal, the end of an image; all
others belong to the client. Readers skip kinds that they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

Entry = TypeVar("Entry")

BODY_BYTES_MAX = 64 * 1024
"""A body that has reached this size takes no further entry; a single entry may be longer."""
UNKNOWN_IMAGE = -1
"""Not a position: perhaps there is no image."""

_IMAGE_END_KIND = "imageEnd"


@dataclass(frozen=True, slots=True)
class ImageEnd:
    """The whole state has been written again, in the records from `first_offset` on, at or after
    the log position `position`."""

    position: int
    first_offset: int
    timestamp_ms: int

    def text(self) -> str:
        """The entry as JSON."""
        document = {
            "kind": _IMAGE_END_KIND,
            "timestamp": self.timestamp_ms,
            "position": self.position,
            "firstOffset": self.first_offset,
        }
        return json.dumps(document, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class JournalRecords:
    """Confirmed records, each with its number; `next_offset` is where to continue: after them, or
    after a gap if there are none."""

    bodies: list[tuple[int, bytes]]
    next_offset: int


def body_of(texts: Iterable[str]) -> bytes:
    """The body that contains these entries."""
    return f"[{','.join(texts)}]".encode()


def read_body(
    body: bytes, decode: Callable[[dict[str, Any]], Entry | None]
) -> list[Entry | ImageEnd]:
    """The entries of a body, without those of unknown kinds.

    `decode` makes a client's entry; None: its kind is unknown. It raises KeyError, TypeError,
    AttributeError or ValueError if it is not such an entry.

    Raises:
        ValueError: it is not a body of the journal.
    """
    entries: list[Entry | ImageEnd] = []
    try:
        objects = json.loads(body)
        if not isinstance(objects, list):
            raise ValueError("it is not an array")
        for value in objects:
            entry = _image_end(value) if value["kind"] == _IMAGE_END_KIND else decode(value)
            if entry is not None:
                entries.append(entry)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a record of the journal: {error}") from error
    return entries


def text_of(value: object) -> str:
    """A member that must be a string. Raises ValueError."""
    if type(value) is not str:
        raise ValueError(f"{value!r:.40} is not a string")
    return value


def whole_of(value: object) -> int:
    """A member that must be an integer. Raises ValueError."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r:.40} is not a whole number")
    return value


def _image_end(value: dict[str, Any]) -> ImageEnd:
    return ImageEnd(
        whole_of(value["position"]), whole_of(value["firstOffset"]), whole_of(value["timestamp"])
    )
