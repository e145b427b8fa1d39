"""Waiting for what many others wait for as well: coming and leaving cost the same for the first and
for the hundred thousandth.

asyncio's Event, Lock, Semaphore and Condition, and the callbacks of its futures, search a list for
one that leaves. If a peer has made thousands of calls wait for one object and leaves with all of
them, the event loop does nothing else for seconds. So what calls of clients may wait for together
is one of these; asyncio's own are for a known, small number of waiters.

All of them belong to the loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class Waiters:
    """Tasks that wait for the next time that something happens; in place of an Event that is
    replaced each time."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self) -> None:
        """Until the next `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            await waiter
        finally:
            self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """It has happened: all that wait now continue."""
        if self._waiting:
            woken, self._waiting = self._waiting, {}
            for waiter in woken:
                if not waiter.done():
                    waiter.set_result(None)


class Turns:
    """At most so many at a time, in the order in which they came: `async with turns`. In place of a
    Semaphore; with one turn, of a Lock."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, at_a_time: int = 1) -> None:
        assert at_a_time > 0, at_a_time
        self._free = at_a_time
        # Unlike a dict, it finds its first entry at once after many have been removed there.
        self._waiting: OrderedDict[asyncio.Future[None], None] | tuple[()] = ()
        """Empty until somebody waits: many hold turns for which nobody ever does."""

    def is_taken(self) -> bool:
        """Whether a newcomer has to wait."""
        return not self._free

    async def acquire(self) -> None:
        """Wait for a turn, which lasts until `release`."""
        if self._free:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting = self._waiting or OrderedDict()
        waiting[waiter] = None
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()  # its turn had just come
            raise
        finally:
            waiting.pop(waiter, None)

    def release(self) -> None:
        """The turn goes to the one that has waited longest."""
        while waiting := self._waiting:
            waiter, _ = waiting.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()


class SharedFuture(asyncio.Future[T]):
    """A future that many wait for, with `asyncio.shield` or `asyncio.wait`."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._told: dict[Callable[[SharedFuture[T]], object], Context] = {}

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        """A function may be added once."""
        if self.done():
            super().add_done_callback(fn, context=context)
            return
        assert fn not in self._told, "each waiter has a callback of its own"
        self._told[fn] = context or copy_context()

    def remove_done_callback(self, fn: Callable[[Any], object], /) -> int:
        """How many were removed."""
        return 0 if self._told.pop(fn, None) is None else 1

    def set_result(self, result: T, /) -> None:
        super().set_result(result)
        self._tell()

    def set_exception(self, exception: type | BaseException, /) -> None:
        super().set_exception(exception)
        self._tell()

    def cancel(self, msg: object = None) -> bool:
        is_cancelled = super().cancel(msg)
        self._tell()
        return is_cancelled

    def _tell(self) -> None:
        told, self._told = self._told, {}
        loop = self.get_loop()
        for callback, context in told.items():
            loop.call_soon(callback, self, context=context)


def shared(work: asyncio.Future[T]) -> SharedFuture[T]:
    """The outcome of a task or another future, which many may wait for."""
    outcome: SharedFuture[T] = SharedFuture()
    work.add_done_callback(lambda done: _pass_on(done, outcome))
    return outcome


def _pass_on(done: asyncio.Future[T], outcome: SharedFuture[T]) -> None:
    if outcome.done():
        return
    if done.cancelled():
        outcome.cancel()
    elif (error := done.exception()) is not None:
        outcome.set_exception(error)
        outcome.exception()  # nobody need wait for it
    else:
        outcome.set_result(done.result())


class Pauses:
    """Waiting for a time that may come earlier than expected: all that wait can be woken."""

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
