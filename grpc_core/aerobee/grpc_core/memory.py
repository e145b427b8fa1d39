"""How much all connections of a process hold together, in bytes."""

from __future__ import annotations

from collections.abc import Callable


class MemoryAccount:
    """Counts what waits to be sent or read. Shared by all connections of one event loop; when they
    exceed the limit together, `on_exceeded` ends one of them."""

    __slots__ = ("_on_exceeded", "bytes_max", "used")

    def __init__(self, bytes_max: int, on_exceeded: Callable[[], None]) -> None:
        assert bytes_max > 0, bytes_max
        self.bytes_max = bytes_max
        self.used = 0
        self._on_exceeded = on_exceeded

    def add(self, size: int) -> None:
        """`size` is negative for what is gone."""
        self.used += size
        if self.used > self.bytes_max and size > 0:
            self._on_exceeded()
