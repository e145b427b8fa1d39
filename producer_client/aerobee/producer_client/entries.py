"""Sends on their way into a producer: no batch and no stream knows of them yet.

Owns: what `Producer.flush` waits for besides batches, which are sends that look up their topic or
wait for room, and work that a call has left behind: one-way messages of a topic that is being
looked up, and transactions being rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager


class Entries:
    """Those of one producer, on its loop."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        """`tasks` runs what is left behind."""
        self._tasks = tasks
        self._waiting: set[asyncio.Future[None]] = set()
        self._later: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"Entries({len(self._waiting)} waiting, {len(self._later)} left behind)"

    @contextmanager
    def entering(self) -> Iterator[None]:
        """Covers the time in which a send is known nowhere else."""
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(entered)
        try:
            yield
        finally:
            self._waiting.discard(entered)
            entered.set_result(None)

    def do_later(self, work: Coroutine[None, None, None], name: str) -> None:
        """Do it in a task."""
        task = self._tasks.create_task(work, name=name)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def over(self) -> None:
        """Until those of this moment have entered, or failed."""
        entries = {*self._later, *self._waiting}
        if entries:
            await asyncio.wait(entries)

    def cancel(self) -> None:
        """What was left behind is not done."""
        for task in self._later:
            task.cancel()
