"""Waiting for a time that may come earlier than expected."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aerobee.runtime.waiting import Waiters


class Pauses:
    """The running pauses. Belongs to the loop."""

    def __init__(self) -> None:
        self._over = Waiters()

    async def pause(self, wait_s: float) -> None:
        """Wait this long, or until `end_all`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._over.wait()

    def end_all(self) -> None:
        """End the running pauses: what they wait for has changed."""
        self._over.wake()
