"""Chained lines: each has the hash of the one before it.

    {"seq":2,"time":"2026-...","event":"act",...,"prev":"5f3a","hash":"9d05","mac":"77c1"}

`hash` is the SHA-256 of the line's bytes up to it, with a brace: `{"seq":2,...,"prev":"5f3a"}`.
`mac` is the HMAC-SHA256 of the hash, present if the node has a key, which `key` names. So anyone
can check that nothing was changed since some hash was recorded elsewhere, and no one can forge a
line without the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

LINE_BYTES_MAX: Final = 65_536
_ENDING = re.compile(rb'(\{"seq":.*),"hash":"([0-9a-f]{64})"(?:,"mac":"([0-9a-f]{64})")?\}')


class Place(NamedTuple):
    """How far a chain has come."""

    sequence: int
    hash: str

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse `17:5f3a...`. Raises ValueError."""
        sequence, _, digest = text.partition(":")
        if re.fullmatch(r"[0-9a-f]{64}", digest) is None:
            raise ValueError(f"{text!r} is not SEQUENCE:HASH")
        return cls(int(sequence), digest)


BEGINNING: Final = Place(0, "0" * 64)
"""The place before the first line."""


class Key:
    """A key known only to the nodes."""

    __slots__ = ("_key", "name")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.name = hashlib.sha256(key).hexdigest()[:8]
        """Identifies the key without revealing it."""

    def __repr__(self) -> str:
        return f"<Key {self.name}>"

    def mac(self, digest: str) -> str:
        return hmac.digest(self._key, digest.encode(), "sha256").hex()


class UnreadableLine(Exception):
    """Not a line of a chain."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line as read from a file."""

    place: Place
    before: str
    """The hash of the line before it."""
    is_whole: bool
    """Its hash matches its content."""
    mac: str
    """Empty: none."""
    content: Mapping[str, Any]

    @property
    def key_name(self) -> str:
        return str(self.content.get("key", ""))


def line_after(place: Place, content: Mapping[str, Any], key: Key | None) -> tuple[bytes, Place]:
    """The next line, including its line end, and the place of the chain after it."""
    sequence = place.sequence + 1
    named = {} if key is None else {"key": key.name}
    document = {"seq": sequence, **content, **named, "prev": place.hash}
    body = json.dumps(document, separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest()
    mac = "" if key is None else f',"mac":"{key.mac(digest)}"'
    return body[:-1] + f',"hash":"{digest}"{mac}}}\n'.encode(), Place(sequence, digest)


def read_line(data: bytes) -> Line:
    """Parse a line without its line end. Raises UnreadableLine."""
    found = _ENDING.fullmatch(data)
    if found is None:
        raise UnreadableLine("it is not a line of an audit log")
    body, digest, mac = found[1] + b"}", found[2].decode(), (found[3] or b"").decode()
    try:
        content = json.loads(body)
        sequence, before = int(content["seq"]), str(content["prev"])
    except (ValueError, KeyError, TypeError):
        raise UnreadableLine("it is not a line of an audit log") from None
    is_whole = hashlib.sha256(body).hexdigest() == digest
    return Line(Place(sequence, digest), before, is_whole, mac, content)
