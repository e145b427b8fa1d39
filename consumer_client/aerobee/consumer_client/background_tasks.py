"""The tasks of one consumer: started in one group, and ended together.

A task group waits for its tasks; endless ones must be cancelled first, wherever and however late
they were started. Owns: the list that makes this possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from types import TracebackType
from typing import Any, Self

from aerobee.client_core.short_tracebacks import end_with
from aerobee.cluster_view.routes import Routes
from aerobee.runtime import errors
from aerobee.runtime.task_groups import first_error, run_together


class BackgroundTasks:
    """A task group whose tasks can all be cancelled. Use as an asynchronous context manager."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._alive: set[asyncio.Task[Any]] = set()
        self.failure: errors.AerobeeError | None = None
        """What ended a task, and thereby the group."""

    def create_task(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Start a task; its failure ends the whole group."""
        task = self._group.create_task(work, name=name)
        self._alive.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._alive.discard(task)
        if self.failure is None and not task.cancelled():
            error = task.exception()
            if isinstance(error, BaseExceptionGroup):
                error = first_error(error)
            if isinstance(error, errors.AerobeeError):
                self.failure = error

    def cancel_all(self) -> None:
        for task in self._alive:
            task.cancel()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            await end_with(self._group, error)
        else:
            await self._group.__aexit__(kind, error, traceback)


async def keep_in_step(
    step: Callable[[], Awaitable[None]],
    *,
    changed: asyncio.Event,
    routes: Routes,
    topics: Collection[str],
    interval_ms: int,
) -> None:
    """Run the step now, at every change of these topics' routes, whenever `changed` is set, and at
    intervals; never returns."""

    async def watch() -> None:
        with routes.changes() as changes:
            async for changed_topics in changes:
                if not changed_topics.isdisjoint(topics):
                    changed.set()

    async def go_on() -> None:
        while True:
            changed.clear()
            await step()
            await wait_event(changed, interval_ms / 1_000)

    await run_together(go_on(), routes=watch())


async def wait_event(event: asyncio.Event, timeout_s: float | None) -> None:
    """Wait until the event is set, or the time limit, if any, is over."""
    if timeout_s is not None and timeout_s <= 0:
        await asyncio.sleep(0)
        return
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
