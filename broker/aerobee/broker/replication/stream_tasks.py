"""Helpers for the tasks of a replication stream: waking, silence, and deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aerobee.broker.replication.joining import Sender
from aerobee.broker.replication.messages import MessageStream
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Unreachable

Message = TypeVar("Message")


class Wake:
    """Wakes the one task that waits for it; a timeout may do so, too."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiting task, or let its next wait return at once."""
        self._event.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Until `set` was called since the last wait ended, or for at most this long."""
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
    """Ends a stream whose other side has gone silent."""

    def __init__(self, clock: Clock, limit_s: float, peer: str) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._peer = peer
        self._heard_s = clock.monotonic_s()

    def heard(self) -> None:
        """Something arrived."""
        self._heard_s = self._clock.monotonic_s()

    async def watch(self) -> None:
        """Raises Unreachable when nothing has arrived for too long."""
        while True:
            silent_s = self._clock.monotonic_s() - self._heard_s
            if silent_s >= self._limit_s:
                raise Unreachable(
                    f"{self._peer} sent nothing for {silent_s:.1f} s, more than "
                    f"{self._limit_s:.1f}; connecting again"
                )
            await asyncio.sleep(self._limit_s - silent_s)


async def write_within(
    seconds: float,
    peer: str,
    stream: MessageStream[object, Message],
    sender: Sender,
    message: Message,
) -> None:
    """Write a message while nothing else is being waited for.

    Raises Unreachable if it is not taken in time, and all that `MessageStream.write` raises.
    """
    try:
        async with asyncio.timeout(seconds) as scope:
            await stream.write(sender, message)
    except TimeoutError:
        if not scope.expired():
            raise
        raise Unreachable(f"{peer} read nothing within {seconds:.1f} s") from None


async def within(
    seconds: float, peer: str, answer: Callable[[], Awaitable[Message | None]]
) -> Message:
    """The next message, which must arrive.

    Raises Unreachable if it does not arrive in time, or the stream ends instead.
    """
    try:
        async with asyncio.timeout(seconds) as scope:
            said = await answer()
    except TimeoutError:
        if not scope.expired():
            raise
        raise Unreachable(f"{peer} did not answer within {seconds:.1f} s") from None
    if said is None:
        raise Unreachable(f"{peer} ended the stream")
    return said
