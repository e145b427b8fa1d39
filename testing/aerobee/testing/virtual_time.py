"""Virtual time for a running event loop: when everything waits, the clock moves to the next timer.

Time stands still while anything is ready, a thread works for the loop, or a socket has something to
read. So nothing times out because a machine is slow.

Advancing is sleeping: the clock stops at each timer. Only some housekeeping of nodes and clients,
which in almost every round finds nothing to do, is lined up, since an hour has many thousands of
rounds: they take place at fixed moments of virtual time, however that time passes.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, cast

from aerobee.runtime.clock import LOOP_CLOCK
from aerobee.testing.inline_workers import InlinePool

THREAD_WAIT_S = 1.0
"""Real seconds between two checks of working threads; the loop is woken when they finish anyway."""
SOCKET_WAIT_S = 0.005
"""Real seconds that foreign sockets get before time moves on."""
HOUSEKEEPING = (
    "ConnectionSet._tick",
    "cluster-secret",
    "durable-ends",
    "route-cache:prove",
)
"""Callbacks and tasks that look again and again, and in almost every round find nothing to do."""
ROUND_S = 5.0
"""Their rounds begin at multiples of this since the cluster began."""
STEPS_AT_ONCE = 10_000
"""After so many turns of the loop at one moment, time moves on by `STEP_S`."""
STEP_S = 1e-9
_OWN_SOCKETS = 1
"""The loop's own, with which threads wake it."""


class NotVirtual(RuntimeError):
    """This loop cannot have virtual time."""


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
        self._idle: list[asyncio.Future[None]] = []
        self._steps = 0
        """Turns of the loop at this moment."""

    async def advance(self, elapsed_s: float) -> None:
        """Return once this much time has passed and nothing is left to do at that moment."""
        await asyncio.sleep(elapsed_s)
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
        loop.call_at = self._call_lined_up
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
        """Everything waits for the next timer, which is this far away: move to it."""
        self._steps = 0
        if not self._wake_idle():
            self._now_s += timeout_s

    def step(self) -> None:
        """The loop goes on at this moment. A loop calls timers a nanosecond early; tasks that then
        wait for the rest, in turn, would never leave this moment."""
        self._steps += 1
        if self._steps % STEPS_AT_ONCE == 0:
            self._now_s += STEP_S

    def _wake_idle(self) -> bool:
        waiting, self._idle = self._idle, []
        for idle in waiting:
            _set(idle)
        return bool(waiting)

    def _call_lined_up(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        task = asyncio.current_task(self._loop)
        owner = getattr(callback, "__qualname__", "") if task is None else task.get_name()
        if owner in HOUSEKEEPING:
            rounds = math.ceil(round((when - self._began_s) / ROUND_S, 6))
            when = self._began_s + rounds * ROUND_S
        handle: asyncio.TimerHandle = self._call_at(when, callback, *args, context=context)
        return handle

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
            self._time.step()
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
