"""What a tier needs of an object store: five calls, all of which block.

Whoever calls cannot tell a failed request from one whose answer was lost. So there are exactly two
outcomes to act on: what a call returns, and `ObjectMissing`, the store's definite answer that there
is no such object. Everything else is `TierUnavailable`: it is unknown what happened.

Names are relative to the tier, with `/` between the parts. A listing may be old: it is a hint, and
nothing is concluded from what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How much of an object is in memory at a time."""


class ObjectMissing(Exception):
    """The store answered that there is no object of this name."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as listed."""

    name: str
    size_bytes: int


class Objects(Protocol):
    """[any thread] Every call raises TierUnavailable if its outcome is unknown."""

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object, whole or not at all. An existing one is replaced, so callers choose
        names that nothing else uses. What `chunks` raises is passed on; nothing is written then."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a small object if there is none of this name. False: there is one, which may be
        this one if an earlier call's answer was lost."""
        ...

    def read(self, name: str, start: int, size: int) -> bytes:
        """The bytes from `start` on; fewer than `size` only at the object's end.

        Raises ObjectMissing.
        """
        ...

    def list(self, prefix: str) -> list[ObjectInfo]:
        """The objects whose names begin with `prefix`, which ends with `/`, in order of their
        names."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object; does nothing if there is none."""
        ...


def read_whole(objects: Objects, name: str) -> bytes:
    """A small object. Raises ObjectMissing, TierUnavailable."""
    parts = []
    at = 0
    while True:
        part = objects.read(name, at, CHUNK_BYTES)
        parts.append(part)
        at += len(part)
        if len(part) < CHUNK_BYTES:
            return b"".join(parts)
