"""Wakes everything that waits for a change; carries no data, because the data's owner can be
asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Notifier:
    """Callbacks, called in the order in which they were added."""

    def __init__(self) -> None:
        self._callbacks: dict[Callable[[], object], None] = {}

    def notify(self) -> None:
        for callback in tuple(self._callbacks):
            callback()

    @contextmanager
    def subscribed(self, callback: Callable[[], object]) -> Iterator[None]:
        """`callback` is called on every change inside the `with` block."""
        self._callbacks[callback] = None
        try:
            yield
        finally:
            del self._callbacks[callback]

    async def wait_until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `holds()` became true within `timeout_s`; it is checked at once and after
        each change."""
        changed = asyncio.Event()
        with self.subscribed(changed.set):
            try:
                async with asyncio.timeout(timeout_s):
                    while not holds():
                        await changed.wait()
                        changed.clear()
            except TimeoutError:
                return holds()
        return True
