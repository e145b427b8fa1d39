"""Back-pressure: how many bytes may wait in a producer, and who waits for room.

Soft limit: one message may cross it, the next waits. Those who wait are served in order, and
nobody overtakes them.
"""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """Bytes in use against a bound."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take_nowait(self, size: int) -> bool:
        """Take `size` bytes if there is room and nobody waits."""
        if self.bytes_used >= self.bytes_max or self._waiting:
            return False
        self.bytes_used += size
        return True

    async def take(self, size: int) -> None:
        """Take `size` bytes as soon as there is room."""
        if self.take_nowait(size):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(size)
            raise

    def release(self, size: int) -> None:
        """Give back what was taken; wakes who waits."""
        self.bytes_used -= size
        assert self.bytes_used >= 0
        while self._waiting and self.bytes_used < self.bytes_max:
            waiting_size, granted = self._waiting.popleft()
            if not granted.done():
                self.bytes_used += waiting_size
                granted.set_result(None)
