"""Tasks that live and end together: those of one replication stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MqError, Unreachable


class FrameStream(Protocol):
    """One side's view of a replication stream; messages as bytes, in order."""

    async def read(self) -> bytes | None:
        """The next message; None when the other side has ended the stream. Raises MqError."""
        ...

    async def write(self, frame: bytes) -> None:
        """Returns when the next one may be written. Raises MqError."""
        ...


async def run_together(
    main: Coroutine[Any, Any, None], **others: Coroutine[Any, Any, None]
) -> None:
    """Until `main` returns or any of them raises; then none of them runs any more.

    Raises what was raised first, as it is; but a cancellation that meets a failure is not
    forgotten: whoever takes it for an ordinary failure, and tries again, would never end.
    """
    caller = asyncio.current_task()
    assert caller is not None, "called by a task"
    cancelled_before = caller.cancelling()
    has_ended = False
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task, name=name) for name, task in others.items()]
            await main
            has_ended = True
            for task in running:
                task.cancel()
    except BaseExceptionGroup as errors:
        # Once `main` has ended, the group itself may have left a cancellation behind (Python 3.11).
        if not has_ended and caller.cancelling() > cancelled_before:
            raise asyncio.CancelledError from None
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """A bug rather than an error of the stream, which may follow from it."""
    flat: list[BaseException] = []
    waiting: list[BaseException] = [errors]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(error.exceptions)
        else:
            flat.append(error)
    return next((error for error in flat if not isinstance(error, MqError)), flat[0])


class Wake:
    """Wakes the one task that waits for it; time may do so, too."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiting task, or let its next wait return at once."""
        self._event.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Until `set` was called since the last wait ended, at most so long."""
        if seconds is None:
            await self._event.wait()
        elif not self._event.is_set():
            timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._event.set)
            try:
                await self._event.wait()
            finally:
                timer.cancel()
        self._event.clear()


class Silence:
    """Ends a stream whose other side says nothing any more."""

    def __init__(self, clock: Clock, limit_s: float, peer: str) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._peer = peer
        self._heard_s = clock.monotonic_s()

    def heard(self) -> None:
        """Something came."""
        self._heard_s = self._clock.monotonic_s()

    async def watch(self) -> None:
        """Raises Unreachable when nothing has come for too long."""
        while True:
            silent_s = self._clock.monotonic_s() - self._heard_s
            if silent_s >= self._limit_s:
                raise Unreachable(
                    f"{self._peer} has said nothing for {silent_s:.1f} s, more than "
                    f"{self._limit_s:.1f}; connecting again"
                )
            await asyncio.sleep(self._limit_s - silent_s)


async def write_within(seconds: float, peer: str, stream: FrameStream, frame: bytes) -> None:
    """Hand over a message that nothing else waits beside.

    Raises Unreachable if it is not taken in time, and other MqErrors as `FrameStream.write`.
    """
    try:
        async with asyncio.timeout(seconds):
            await stream.write(frame)
    except TimeoutError:
        raise Unreachable(f"{peer} took nothing within {seconds:.1f} s") from None


async def within(seconds: float, peer: str, answer: Callable[[], Awaitable[bytes | None]]) -> bytes:
    """The next message, which must come.

    Raises Unreachable if it does not in time, or the stream ends instead.
    """
    try:
        async with asyncio.timeout(seconds):
            data = await answer()
    except TimeoutError:
        raise Unreachable(f"{peer} did not answer within {seconds:.1f} s") from None
    if data is None:
        raise Unreachable(f"{peer} ended the stream")
    return data
