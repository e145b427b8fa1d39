"""Virtual time for a running event loop: when everything waits, the clock moves to the next timer.

Time stands still while anything is ready, a thread works for the loop, or a socket has something to
read. So nothing times out because a machine is slow.

An hour has many thousands of timers without consequences: heartbeats, ticks, checks of files. While
time is advanced explicitly it moves in strides, and periodic timers are due at the end of one,
together. A timer that has not occurred before is never skipped.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple, cast

from aerobee.runtime.clock import LOOP_CLOCK
from aerobee.testing.inline_workers import InlinePool

THREAD_WAIT_S = 1.0
"""Real seconds between two checks of working threads; the loop is woken when they finish anyway."""
SOCKET_WAIT_S = 0.005
"""Real seconds that foreign sockets get before time moves on."""
PERIODIC_AFTER = 3
"""How often a timer must have occurred to count as periodic."""
_OWN_SOCKETS = 1
"""The loop's own, with which threads wake it."""


class NotVirtual(RuntimeError):
    """This loop cannot have virtual time."""


class _Key(NamedTuple):
    """Timers of the same kind: their owner, and their delay."""

    owner: str
    delay_s: float


class VirtualTime:
    """The time of one loop; a `Clock`. Between `begin` and `end` the loop is patched."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: int) -> None:
        """Raises NotVirtual."""
        if not isinstance(loop, asyncio.SelectorEventLoop):
            raise NotVirtual(
                f"{type(loop).__name__} cannot have virtual time: run the test on asyncio's own "
                "event loop (with pytest-asyncio or anyio, do not choose uvloop for it)"
            )
        self._loop: Any = loop
        self._real_time = loop.time
        self._selector: selectors.BaseSelector | None = None
        self._now_s = self._began_s = loop.time()
        self._began_ms = now_ms
        self._working = 0
        self._fired: Counter[_Key] = Counter()
        self._stride_s = 0.0
        self._idle: list[asyncio.Future[None]] = []

    async def advance(self, elapsed_s: float, stride_s: float) -> None:
        """Return once this much time has passed and nothing is left to do at that moment."""
        goal = self._loop.create_future()
        timer = self._loop.call_later(elapsed_s, _set, goal)
        self._stride_s = stride_s
        try:
            await goal
        finally:
            self._stride_s = 0.0
            timer.cancel()
        await self.settle()

    async def settle(self) -> None:
        """Return once nothing is left to do before the next timer."""
        idle = self._loop.create_future()
        self._idle.append(idle)
        await idle

    # --------------------------------------------------------------------------------- Clock

    def now_ms(self) -> int:
        return self._began_ms + int((self._now_s - self._began_s) * 1_000 + 1e-4)

    def monotonic_s(self) -> float:
        return self._now_s

    # ---------------------------------------------------------------------------- the loop

    def begin(self) -> None:
        loop = self._loop
        self._selector = loop._selector
        self._run_in_executor = loop.run_in_executor
        self._call_at = loop.call_at
        loop._selector = _Selector(cast(selectors.BaseSelector, self._selector), self)
        loop.time = self.monotonic_s
        loop.run_in_executor = self._run_counted
        loop.call_at = self._call_noted
        setattr(loop, LOOP_CLOCK, self)

    def end(self) -> None:
        """Time passes as outside again, from its current value: it never goes back."""
        loop = self._loop
        loop._selector = self._selector
        ahead_s = self._now_s - self._real_time()
        real_time = self._real_time
        loop.time = lambda: real_time() + ahead_s
        del loop.run_in_executor, loop.call_at
        delattr(loop, LOOP_CLOCK)
        self._wake_idle()

    @property
    def has_work(self) -> bool:
        """A thread works for the loop."""
        return self._working > 0

    def move(self, timeout_s: float) -> None:
        """Everything waits for the next timer, which is this far away: move to it, or beyond."""
        if self._wake_idle():
            return
        next_s = self._now_s + timeout_s
        if self._stride_s > timeout_s:
            next_s = max(next_s, min(self._now_s + self._stride_s, self._first_single_s()))
        self._now_s = next_s

    def _wake_idle(self) -> bool:
        waiting, self._idle = self._idle, []
        for idle in waiting:
            _set(idle)
        return bool(waiting)

    def _first_single_s(self) -> float:
        """When the first timer is due that is not periodic."""
        return min(
            (
                handle._when
                for handle in self._loop._scheduled
                if not handle._cancelled and not self._is_periodic(handle)
            ),
            default=self._now_s,
        )

    def _is_periodic(self, handle: Any) -> bool:
        arguments = handle._args
        key = arguments[0] if arguments and handle._callback == self._fire else None
        return isinstance(key, _Key) and self._fired[key] >= PERIODIC_AFTER

    def _call_noted(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        task = asyncio.current_task(self._loop)
        name = getattr(callback, "__qualname__", "") if task is None else task.get_name()
        key = _Key(name, round(when - self._now_s, 3))
        handle: asyncio.TimerHandle = self._call_at(
            when, self._fire, key, callback, *args, context=context
        )
        return handle

    def _fire(self, key: _Key, callback: Callable[..., object], *args: Any) -> None:
        self._fired[key] += 1
        callback(*args)

    def _run_counted(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = cast("asyncio.Future[Any]", self._run_in_executor(executor, func, *args))
        if isinstance(executor, InlinePool):
            return future
        self._working += 1
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: asyncio.Future[Any]) -> None:
        self._working -= 1


class _Selector:
    """The loop's selector, in whose waits time passes."""

    def __init__(self, selector: selectors.BaseSelector, time: VirtualTime) -> None:
        self._selector = selector
        self._time = time

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._selector.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._time.has_work:
            return self._selector.select(THREAD_WAIT_S)
        if timeout is None:  # only somebody outside can go on
            return self._selector.select(None)
        if len(self._selector.get_map()) > _OWN_SOCKETS:
            events = self._selector.select(SOCKET_WAIT_S)
            if events:
                return events
        self._time.move(timeout)
        return []


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
