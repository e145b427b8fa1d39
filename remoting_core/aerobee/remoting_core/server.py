"""A server of remoting: its connections, and what they hold together.

Nothing here is global: two servers in one process share nothing but the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Protocol

from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.remoting_core.limits import Limit, LimitObserver, RemotingLimits

_FAREWELL_S: Final = 1.0
BACKLOG: Final = 1_024
FAILED: Final = 1
"""Apache's SYSTEM_ERROR."""


class Handler(Protocol):
    """What a server does with requests."""

    def handle(
        self, connection: Connection, request: Command
    ) -> Command | Coroutine[Any, Any, Command | None] | None:
        """The answer, or what gives it later, or None: it was or will be sent to the connection.
        Answers of one-way requests are dropped."""
        ...

    def closed(self, connection: Connection) -> None: ...


class RemotingServer:
    """Serves until `stop`. Belongs to the event loop that it was made in."""

    def __init__(
        self,
        handler: Handler,
        observer: LimitObserver,
        *,
        now: Callable[[], float],
        on_bug: Callable[[Command, Exception], None],
        limits: RemotingLimits | None = None,
        connections_max: int = 1 << 30,
        memory_bytes_max: int = 128 << 20,
    ) -> None:
        """`now`: monotonic seconds. `on_bug` gets each exception of the handler; the peer is told
        of a failure without details. `memory_bytes_max`: for all that was not read or sent yet;
        beyond it, the connection that holds the most ends."""
        self.limits = limits or RemotingLimits()
        self._handler = handler
        self._observer = observer
        self._now = now
        self._on_bug = on_bug
        self._loop = asyncio.get_running_loop()
        self._connections_max = connections_max
        self._memory_bytes_max = memory_bytes_max
        self._open: dict[Connection, int] = {}
        """With the bytes that it held when it was counted last."""
        self._held_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Server] = []
        self._is_stopping = False
        self._emptied = asyncio.Event()

    def __repr__(self) -> str:
        return f"RemotingServer(connections={len(self._open)}, running={len(self._tasks)})"

    def __len__(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    @property
    def held_bytes(self) -> int:
        """What all connections held when each was counted last."""
        return self._held_bytes

    async def listen(self, host: str, port: int) -> int:
        """Accept connections on an address; returns the port. Raises OSError."""
        server = await self._loop.create_server(self.connect, host, port, backlog=BACKLOG)
        self._listeners.append(server)
        return int(server.sockets[0].getsockname()[1])

    def connect(self, listener: str = "") -> Connection:
        """The protocol of a connection that another listener has accepted."""
        return Connection(self, self.limits, now=self._now, listener=listener)

    async def stop(self, grace_s: float) -> None:
        """Take nothing new; what runs has `grace_s` seconds to end, then it is cancelled. May be
        called again."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        if self._tasks and grace_s > 0:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        for connection in self:
            connection.close()
        await self._until_empty(min(grace_s, _FAREWELL_S))
        for connection in self:
            connection.abort()
        await self._until_empty(_FAREWELL_S)

    async def _until_empty(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while self._open:
                    self._emptied.clear()
                    await self._emptied.wait()
        except TimeoutError:
            pass

    # ------------------------------------------------------------------- what connections report

    def opened(self, connection: Connection) -> bool:
        if self._is_stopping:
            return False
        if len(self._open) >= self._connections_max:
            reason = f"more than {self._connections_max} connections"
            self._observer.limit_met(Limit.CONNECTIONS, connection.peer, reason)
            return False
        self._open[connection] = 0
        return True

    def received(self, connection: Connection, request: Command) -> None:
        try:
            found = self._handler.handle(connection, request)
            if isinstance(found, Command):
                self._reply(connection, request, found)
        except Exception as error:
            self._fail(connection, request, error)
            return
        if found is not None and not isinstance(found, Command):
            connection.begun()
            task = self._loop.create_task(self._finish(connection, request, found))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _finish(
        self, connection: Connection, request: Command, work: Coroutine[Any, Any, Command | None]
    ) -> None:
        try:
            found = await work
            if found is not None:
                self._reply(connection, request, found)
        except Exception as error:
            self._fail(connection, request, error)
        finally:
            connection.finished()

    def _reply(self, connection: Connection, request: Command, answer: Command) -> None:
        if not request.is_one_way:
            connection.reply(answer)

    def _fail(self, connection: Connection, request: Command, error: Exception) -> None:
        self._on_bug(request, error)
        words = "the server failed because of a bug of its own; see its log"
        self._reply(connection, request, request.answer(FAILED, remark=words))

    def holds(self, connection: Connection) -> None:
        before = self._open.get(connection)
        if before is None:
            return
        self._open[connection] = now = connection.held_bytes
        self._held_bytes += now - before
        if self._held_bytes > self._memory_bytes_max:
            self._end_heaviest()

    def _end_heaviest(self) -> None:
        """Counts all of them again first: what was sent since then is not held."""
        self._open = {each: each.held_bytes for each in self._open}
        self._held_bytes = sum(self._open.values())
        if self._held_bytes <= self._memory_bytes_max:
            return
        heaviest = max(self._open, key=lambda each: self._open[each])
        reason = f"all connections hold {self._held_bytes} bytes, this one most of them"
        self.met(heaviest, Limit.MEMORY, reason)
        heaviest.abort()

    def met(self, connection: Connection, limit: Limit, reason: str) -> None:
        self._observer.limit_met(limit, connection.peer, reason)

    def closed(self, connection: Connection) -> None:
        held = self._open.pop(connection, None)
        if held is None:
            return
        self._held_bytes -= held
        self._emptied.set()
        self._handler.closed(connection)
