"""A client that lives in a task of its own.

Frameworks open and close what they own from whatever task they are in at that time. A client of
ours has a task group, which belongs to the task that opened it.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any


class OwnTask:
    """Holds a context open from `start` to `close`, which any tasks of one loop may call."""

    def __init__(self, context: AbstractAsyncContextManager[Any], *, name: str) -> None:
        self._context = context
        self._name = name
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns once it is open. Raises what opening it raises."""
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._live(opened), name=self._name)
        try:
            await asyncio.shield(opened)
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def _live(self, opened: asyncio.Future[None]) -> None:
        try:
            async with self._context:
                opened.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def end(self) -> None:
        """Have it closed, without waiting."""
        self._closing.set()

    async def close(self) -> None:
        """Returns once it is closed. Raises what closing it raises, or what ended it before."""
        self.end()
        if self._task is not None:
            await self._task
