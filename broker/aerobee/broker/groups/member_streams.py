"""The open streams of members, of any protocol.

Owns: ending them before a term is left or the broker stops. Members keep what they hold across it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from aerobee.broker.replication.duties import Duty
from aerobee.runtime.errors import AerobeeError, ShuttingDown

LEAVE_S = 0.1
"""How long members' streams may take to end before their leases are written down."""


class EndableStream(Protocol):
    def on_ended(self, error: AerobeeError) -> None:
        """The stream ends with `error`. Does not wait."""
        ...


class MemberStreams(Duty):
    """On the loop."""

    def __init__(self) -> None:
        self._streams: dict[EndableStream, None] = {}
        self._closed = asyncio.Event()

    @contextmanager
    def opened(self, stream: EndableStream) -> Iterator[None]:
        """The stream is open inside this context."""
        self._streams[stream] = None
        try:
            yield
        finally:
            del self._streams[stream]
            self._closed.set()

    async def leave(self) -> None:
        await self.end_all(LEAVE_S)

    async def end_all(self, timeout_s: float) -> None:
        """Tell every member to come back later. Returns once all were told, or at the timeout."""
        for stream in list(self._streams):
            stream.on_ended(ShuttingDown("the broker is shutting down; join again in a moment"))
        try:
            async with asyncio.timeout(timeout_s):
                while self._streams:
                    self._closed.clear()
                    await self._closed.wait()
        except TimeoutError:
            pass
