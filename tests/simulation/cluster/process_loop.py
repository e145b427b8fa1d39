"""An event loop in virtual time, so that coroutines of the product run inside a simulated process.

Scheduled calls are kernel events: they wait while the machine is paused, and never run once the
process has ended. Thread works are done at once.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Self

from tests.simulation.cluster.kernel import Kernel, Process


class _DoneAtOnce(asyncio.Future[Any]):
    """Its callbacks do not wait for a turn of the loop: here a thread's work has no separate end
    that the death of the process could precede."""

    def add_done_callback(
        self, fn: Callable[[Self], object], /, *, context: Context | None = None
    ) -> None:
        fn(self)


class ProcessLoop:
    """Only what coroutines without sockets need of a loop."""

    def __init__(self, kernel: Kernel, process: Process) -> None:
        self._kernel = kernel
        self._process = process
        self._tasks: dict[asyncio.Task[Any], Coroutine[Any, Any, Any]] = {}

    @property
    def _as_loop(self) -> Any:
        return self

    def time(self) -> float:
        return self._kernel.clock_s(self._process.place)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    # ------------------------------------------------------------------------------ scheduling

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._as_loop, context)
        self._kernel.push(self._kernel.now_s, self._process.place, self._process, _run, handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._as_loop, context)
        self._kernel.after(max(0.0, when - self.time()), self._process, _run, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Its event comes and does nothing."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def run_in_executor(
        self, executor: object, func: Callable[..., object], *args: Any
    ) -> asyncio.Future[Any]:
        done = _DoneAtOnce(loop=self._as_loop)
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A dead process leaves tasks behind that were never finished."""

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task of the process. Anything it raises is a defect."""
        task: asyncio.Task[None] = asyncio.Task(coroutine, loop=self._as_loop)
        self._tasks[task] = coroutine
        task.add_done_callback(self._ended)
        return task

    def create_task(
        self, coroutine: Coroutine[Any, Any, Any], *, name: str | None = None
    ) -> asyncio.Task[Any]:
        """A task whose end the caller checks."""
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=self._as_loop, name=name)
        self._tasks[task] = coroutine
        task.add_done_callback(lambda task: self._tasks.pop(task))
        return task

    def end(self) -> None:
        """The process has ended: its tasks stop, whatever they wait for."""
        running = events._get_running_loop()
        events._set_running_loop(self._as_loop)
        try:
            for coroutine in list(self._tasks.values()):
                coroutine.close()
        finally:
            events._set_running_loop(running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def _run(process: Process, handle: asyncio.Handle) -> None:
    if handle.cancelled():
        return
    loop = handle._loop  # type: ignore[attr-defined]
    events._set_running_loop(loop)
    try:
        handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
    finally:
        events._set_running_loop(None)
