"""An object store that fails on command: before a call, after it, in the middle, or by lying lists.

Its calls are numbered, so that a test can let any one of them fail, or end the process there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from aerobee.runtime.errors import TierUnavailable
from aerobee.store.tier.objects import ObjectInfo, ObjectMissing


class Killed(BaseException):
    """The process ended at this point."""


class MemoryObjects:
    """Objects in memory, without faults."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        self.held[name] = b"".join(chunks)

    def create(self, name: str, data: bytes) -> bool:
        if name in self.held:
            return False
        self.held[name] = data
        return True

    def read(self, name: str, start: int, size: int) -> bytes:
        if name not in self.held:
            raise ObjectMissing(name)
        return self.held[name][start : start + size]

    def list(self, prefix: str) -> list[ObjectInfo]:
        return [
            ObjectInfo(name, len(self.held[name]))
            for name in sorted(self.held)
            if name.startswith(prefix)
        ]

    def remove(self, name: str) -> None:
        self.held.pop(name, None)


class FaultyObjects:
    """`MemoryObjects` behind a network that a test disturbs."""

    def __init__(self, held: MemoryObjects | None = None) -> None:
        self.real = held or MemoryObjects()
        self.calls: list[str] = []
        self.before: Callable[[int], None] = lambda number: None
        """Called with the number of each call before it is carried out; may raise."""
        self.after: Callable[[int], None] = lambda number: None
        """The same once it was carried out: the answer is lost."""
        self.half = False
        """A put that `before` lets fail leaves half of the object under its name."""
        self.listed: dict[str, list[ObjectInfo]] | None = None
        """Lists answer from here: what was there at some earlier time."""

    def _call(self, name: str, done: Callable[[], object]) -> object:
        self.calls.append(name)
        number = len(self.calls)
        self.before(number)
        try:
            result = done()
        except ObjectMissing:
            self.after(number)
            raise
        self.after(number)
        return result

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        try:
            self._call(f"put {name}", lambda: self.real.put(name, chunks))
        except (TierUnavailable, Killed):
            if self.half and name not in self.real.held:
                data = b"".join(chunks)
                self.real.held[name] = data[: len(data) // 2]
            raise

    def create(self, name: str, data: bytes) -> bool:
        return bool(self._call(f"create {name}", lambda: self.real.create(name, data)))

    def read(self, name: str, start: int, size: int) -> bytes:
        result = self._call(f"read {name}", lambda: self.real.read(name, start, size))
        assert isinstance(result, bytes)
        return result

    def list(self, prefix: str) -> list[ObjectInfo]:
        self.calls.append(f"list {prefix}")
        self.before(len(self.calls))
        if self.listed is not None:
            return self.listed.get(prefix, [])
        return self.real.list(prefix)

    def remove(self, name: str) -> None:
        self._call(f"remove {name}", lambda: self.real.remove(name))


def fails_at(wanted: int, kind: type[BaseException] = TierUnavailable) -> Callable[[int], None]:
    """A fault of the call with this number alone."""

    def fault(number: int) -> None:
        if number == wanted:
            raise kind(f"call {number}")

    return fault


def fails_often(chance: random.Random, share: float) -> Callable[[int], None]:
    """A fault of that share of all calls."""

    def fault(number: int) -> None:
        if chance.random() < share:
            raise TierUnavailable(f"call {number}")

    return fault
