"""Connections within one event loop, without sockets: who listens, who connects, which links are
cut.

Every place (a node, or `CLIENT` for all others) has a name; tasks know theirs through a context
variable, which tasks and callbacks inherit. Data for a cut link waits, like packets that are resent
again and again; connections break only when an end gives up, or is killed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

from aerobee.testing.memory_transport import MemoryTransport

CLIENT = "client"
PLACE: ContextVar[str] = ContextVar("aerobee_testing_place", default=CLIENT)
"""Where the running code is."""

MakeProtocol = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]
FIRST_CLIENT_PORT = 49_152


class MemoryListener:
    """What `loop.create_server` returns."""

    def __init__(
        self, network: MemoryNetwork, bound: socket.socket, make: MakeProtocol, context: Context
    ) -> None:
        self.bound = bound
        """Keeps the port."""
        self.make = make
        self.context = context
        self.place = context.get(PLACE, CLIENT)
        self._network = network

    @property
    def address(self) -> Address:
        host, port, *_ = self.bound.getsockname()
        return host, port

    def close(self) -> None:
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        """It is closed immediately."""


class MemoryNetwork:
    """Between `begin` and `end`, servers of the loop are reached through it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Any = loop
        self._listeners: dict[Address, MemoryListener] = {}
        self._known: set[Address] = set()
        """Addresses that have, or had, a listener; everything else is outside."""
        self._late: list[tuple[str, MemoryTransport]] = []
        """Ends that learn of their connection's end only when the link to a place is healed."""
        self._transports: set[MemoryTransport] = set()
        self._cut: set[frozenset[str]] = set()
        self._healed = asyncio.Event()
        self._client_ports = FIRST_CLIENT_PORT

    def begin(self) -> None:
        self._create_connection = self._loop.create_connection
        self._create_server = self._loop.create_server
        self._loop.create_connection = self._connect
        self._loop.create_server = self._listen

    def end(self) -> None:
        del self._loop.create_connection, self._loop.create_server
        for listener in list(self._listeners.values()):
            listener.close()

    # -------------------------------------------------------------------------------- faults

    def cut(self, one: str, other: str) -> None:
        """Nothing gets from one place to the other, in either direction."""
        self._cut.add(frozenset((one, other)))

    def heal(self, one: str, other: str) -> None:
        self._cut.discard(frozenset((one, other)))
        self._healed.set()
        self._healed = asyncio.Event()
        for transport in list(self._transports):
            transport.go_on()
        late, self._late = self._late, []
        for place, transport in late:
            self.tell_reset(place, transport)

    def heal_all(self) -> None:
        for link in list(self._cut):
            one, *other = link
            self.heal(one, other[0] if other else one)

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cut

    def kill(self, place: str) -> None:
        """The place's sockets are closed by the system, as after the death of a process."""
        for listener in list(self._listeners.values()):
            if listener.place == place:
                listener.close()
        for transport in list(self._transports):
            if transport.place == place:
                transport.reset()

    # ---------------------------------------------------------------------------- the loop's

    def unlisten(self, listener: MemoryListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]
        listener.bound.close()

    async def _listen(self, make: MakeProtocol, *args: Any, **options: Any) -> Any:
        bound = options.get("sock")
        if bound is None or options.get("ssl") is not None:
            return await self._create_server(make, *args, **options)
        listener = MemoryListener(self, bound, make, copy_context())
        self._listeners[listener.address] = listener
        self._known.add(listener.address)
        return listener

    async def _connect(
        self, make: MakeProtocol, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        address = (host, port)
        if address not in self._listeners:
            if address not in self._known:
                return await self._create_connection(make, host, port, **options)
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        here = PLACE.get()
        while self.is_cut(here, self._listeners[address].place):
            await self._healed.wait()
            if address not in self._listeners:
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        listener = self._listeners[address]
        self._client_ports += 1
        own_address = (host, self._client_ports)
        server, client = listener.context.run(listener.make), make()
        near = MemoryTransport(self, client, here, own_address, address, copy_context())
        far = MemoryTransport(
            self, server, listener.place, address, own_address, listener.context.copy()
        )
        near.begin(far)
        far.begin(near)
        return near, client

    # -------------------------------------------------------------------------- transports

    def tell_reset(self, place: str, transport: MemoryTransport) -> None:
        """An end at `place` is gone: notify the other one, as soon as anything gets there."""
        if self.is_cut(place, transport.place):
            self._late.append((place, transport))
        else:
            transport.was_reset()

    def opened(self, transport: MemoryTransport) -> None:
        self._transports.add(transport)

    def closed(self, transport: MemoryTransport) -> None:
        self._transports.discard(transport)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = self._loop
        return loop
