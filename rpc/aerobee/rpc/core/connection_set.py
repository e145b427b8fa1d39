"""All connections of a server or of a channel: what they hold in total, and how they end.

Owns: the set of open connections, the tick that ends what takes too long on them, and the account
of their memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from math import floor
from typing import Final, Generic, Protocol, TypeVar

from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.limits import Limit

_TICK_S: Final = 1.0
_TICKED_PER_TURN: Final = 128
_SCRATCH_BYTES: Final = 256 << 10


class MemoryLimit:
    """A limit that several accounts have in common."""

    __slots__ = ("bytes_max", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0


class MemoryAccount:
    """Counts the bytes waiting to be sent or read. Shared by all connections of one event loop;
    when they exceed the limit together, `on_exceeded` ends one of them."""

    __slots__ = ("_common", "_on_exceeded", "_scratch", "bytes_max", "used")

    def __init__(
        self, bytes_max: int, on_exceeded: Callable[[], None], common: MemoryLimit | None = None
    ) -> None:
        """`common`: exceeded by the accounts that share it, it counts as this one's limit."""
        assert bytes_max > 0, bytes_max
        self._common = common
        self.bytes_max = bytes_max
        self.used = 0
        self._on_exceeded = on_exceeded
        self._scratch: memoryview | None = None

    @property
    def scratch(self) -> memoryview:
        """Where input arrives before it is known what it is: the same memory for all connections,
        of which only one reads at a time."""
        if self._scratch is None:
            self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        return self._scratch

    def add(self, size: int) -> None:
        """`size` is negative for bytes that are gone."""
        self.used += size
        common = self._common
        if common is not None:
            common.used += size
            if size > 0 and common.used > common.bytes_max:
                self._on_exceeded()
        if self.used > self.bytes_max and size > 0:
            self._on_exceeded()


class Ticking(Protocol):
    def tick(self, now_s: float) -> None:
        """End what takes too long."""
        ...


class Member(Protocol):
    """What this set needs of a connection."""

    @property
    def watch(self) -> Ticking: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def is_closing(self) -> bool: ...

    def drain(self) -> None:
        """Take no new calls, and end when the running ones have ended."""
        ...

    def close(self, reason: str) -> None:
        """Reset running calls and end."""
        ...

    def fail(self, code: ErrorCode, reason: str, limit: Limit) -> None: ...

    def discard(self) -> None:
        """End at once, without GOAWAY."""
        ...


C = TypeVar("C", bound=Member)


class ConnectionSet(Generic[C]):
    """The connections of one event loop; they add and remove themselves."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float],
        memory_bytes_max: int,
        common: MemoryLimit | None = None,
    ) -> None:
        """`now`: monotonic seconds. `memory_bytes_max`: data waiting to be sent or read; beyond
        this, or beyond what is `common` with others, the connection that holds the most is
        ended."""
        self.memory = MemoryAccount(memory_bytes_max, self._end_heaviest, common)
        self._loop = loop
        self._now = now
        self._open: dict[C, None] = {}
        self._ticker: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None
        self._awaited: set[C] = set()
        """Those for which something waits until they have no calls, or have ended."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[C]:
        """Iterates over a copy: an action on one may remove any of them."""
        return iter(list(self._open))

    def add(self, connection: C) -> None:
        self._open[connection] = None
        if self._ticker is None:
            self._ticker = self._loop.call_later(_TICK_S, self._tick)

    def remove(self, connection: C) -> None:
        """Does nothing for one that is not in the set."""
        self._open.pop(connection, None)
        self.note_parted(connection)
        if not self._open:
            self._stop_ticking()

    def note_parted(self, connection: C) -> None:
        """Its calls have ended; its peer may not know yet."""
        self._awaited.discard(connection)
        if not self._awaited and self._emptied is not None:
            self._emptied.set()

    def _stop_ticking(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    def _tick(self) -> None:
        # On whole seconds, as other work of an idle process: waking up costs more than the tick.
        now_s = self._loop.time()
        next_s = (floor(now_s / _TICK_S + 0.5) + 1) * _TICK_S
        self._ticker = self._loop.call_later(next_s - now_s, self._tick)
        self._tick_some(list(self._open))

    def _tick_some(self, connections: list[C]) -> None:
        """A few in each turn: ten thousand at once would delay all calls."""
        self._tick_each(connections[-_TICKED_PER_TURN:], self._now())
        del connections[-_TICKED_PER_TURN:]
        if connections:
            self._loop.call_soon(self._tick_some, connections)

    def tick(self, now_s: float) -> None:
        """End what takes too long on all of them; called once a second."""
        self._tick_each(list(self._open), now_s)

    def _tick_each(self, connections: list[C], now_s: float) -> None:
        for connection in connections:
            if connection in self._open:
                connection.watch.tick(now_s)

    def _end_heaviest(self) -> None:
        heaviest = max(self._open, key=lambda one: one.held_bytes, default=None)
        if heaviest is not None and heaviest.held_bytes:
            heaviest.fail(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"all connections hold {self.memory.used} bytes, this one most of them",
                Limit.PROCESS_MEMORY,
            )

    # --------------------------------------------------------------------------------- ending

    async def drain(self, grace_s: float) -> None:
        """Take no new calls; returns when all have ended, or after `grace_s` seconds."""
        for connection in self:
            connection.drain()
        self._awaited = {one for one in self._open if not one.is_closing}
        await self._until_none_is_awaited(grace_s)

    async def end(self, reason: str, farewell_s: float) -> None:
        """Reset running calls. Peers have `farewell_s` to read why; then they are cut off."""
        for connection in self:
            connection.close(reason)
        self._awaited = set(self._open)
        await self._until_none_is_awaited(farewell_s)
        for connection in self:
            connection.discard()
        self._awaited = set(self._open)
        await self._until_none_is_awaited(farewell_s)
        self._stop_ticking()

    async def _until_none_is_awaited(self, timeout_s: float) -> None:
        if not self._awaited or timeout_s <= 0:
            return
        self._emptied = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                await self._emptied.wait()
        except TimeoutError:
            pass
        finally:
            self._emptied = None
