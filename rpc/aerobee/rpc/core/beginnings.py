"""Calls with a stream of answers begin a few in each turn of the event loop, on all connections.

Such a call, a poll for example, costs its handler a task and much more than its frames. One
connection begins a limited number of streams in a turn, but thousands of connections that each
begin one would stop everything else for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

BEGUN_PER_TURN: Final = 8


class Call(Protocol):
    def start(self, message: bytes | None) -> None:
        """The request is complete; None: the call has it."""
        ...


class Beginnings:
    """Of one server; on its loop."""

    __slots__ = ("_is_beginning", "_is_due", "_loop", "_room", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._room = BEGUN_PER_TURN
        self._waiting: deque[tuple[Call, bytes | None]] = deque()
        self._is_due = False
        self._is_beginning = False

    def has_to_wait(self, call: Call, message: bytes | None) -> bool:
        """Whether a call waits for a later turn, in which it is started with this message."""
        has_room = self._room > 0 and (self._is_beginning or not self._waiting)
        if has_room:
            self._room -= 1
        else:
            self._waiting.append((call, message))
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._begin)
        return not has_room

    def _begin(self) -> None:
        """The next turn."""
        self._is_due = False
        self._room = BEGUN_PER_TURN
        waiting = self._waiting
        self._is_beginning = True
        while waiting and self._room > 0:
            call, message = waiting.popleft()
            call.start(message)
        self._is_beginning = False
        if waiting and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._begin)
