"""The wires between real processes, which a test may cut: TCP proxies with one switchboard.

Owns: a proxy per place that somebody listens at, and for each pair of nodes and each direction
whether bytes flow, how late and how fast. A broker's advertised address is its proxy's, so clients,
replicas and tools all pass through it; each broker reaches the nameservers by proxies of its own.

Who dials a broker's proxy is found by the dialling socket's owner in /proc, so that the wire
between two brokers can be cut while their clients notice nothing. What always holds: a blocked
direction loses nothing; bytes wait and arrive late, as TCP delivers them when a network is whole
again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

HOST = "127.0.0.1"
READ_BYTES = 65_536
CLIENTS = "clients"

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1
_ALL_STATES = _NO_COOKIE = 0xFFFF_FFFF
_HEAD_BYTES = 16
_INODE_AT = 68
"""In `struct inet_diag_msg`."""


@dataclass(slots=True)
class Wire:
    """One direction between two nodes."""

    flows: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    """0: no limit."""

    def __post_init__(self) -> None:
        self.flows.set()


class Network:
    """The switchboard. Nodes are names; `process_ids` tells which process is which node."""

    def __init__(self, process_ids: Callable[[], dict[int, str]]) -> None:
        self._process_ids = process_ids
        self._wires: dict[tuple[str, str], Wire] = {}
        self._connections: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []

    async def listen(self, node: str, port: int, *, dialled_by: str = "") -> int:
        """A proxy before `node`, which listens on `port`; returns the proxy's port.

        `dialled_by`: who dials, if only one node does; empty: found out for each connection.
        """

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            source = dialled_by or self._dialler(writer)
            try:
                far_reader, far_writer = await asyncio.open_connection(HOST, port)
            except OSError:
                writer.transport.abort()
                return
            connection = _Connection(
                source,
                node,
                [
                    _Pump(reader, far_writer, self._wire(source, node)),
                    _Pump(far_reader, writer, self._wire(node, source)),
                ],
            )
            self._connections.add(connection)
            try:
                await connection.run()
            finally:
                self._connections.discard(connection)

        server = await asyncio.start_server(accept, HOST, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def block(self, source: str, target: str) -> None:
        """Bytes from one node to the other wait."""
        self._wire(source, target).flows.clear()

    def part(self, one: str, others: Iterable[str]) -> None:
        """Bytes wait in both directions between one node and others."""
        for other in others:
            self.block(one, other)
            self.block(other, one)

    def slow(self, source: str, target: str, *, delay_s: float, bytes_per_s: float) -> None:
        wire = self._wire(source, target)
        wire.delay_s, wire.bytes_per_s = delay_s, bytes_per_s

    def reset(self, one: str, other: str) -> int:
        """Break the connections between two nodes, as a router does that restarts."""
        broken = [held for held in self._connections if {held.source, held.target} == {one, other}]
        for connection in broken:
            connection.abort()
        return len(broken)

    def heal(self) -> None:
        """All wires are as new; what waited goes on its way."""
        for wire in self._wires.values():
            wire.delay_s = wire.bytes_per_s = 0.0
            wire.flows.set()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            await asyncio.sleep(0.001)

    def _wire(self, source: str, target: str) -> Wire:
        return self._wires.setdefault((source, target), Wire())

    def _dialler(self, writer: asyncio.StreamWriter) -> str:
        """The node whose process owns the other end of an accepted connection."""
        host, port = writer.get_extra_info("peername")[:2]
        own_port = writer.get_extra_info("sockname")[1]
        inode = _socket_inode(host, port, own_port)
        for process_id, node in self._process_ids().items():
            if inode is not None and _owns_socket(process_id, inode):
                return node
        return CLIENTS


class _Pump:
    """Bytes of one direction of one connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: Wire
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._wire = wire

    async def run(self) -> None:
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take(due))
            tasks.create_task(self._give(due))

    def abort(self) -> None:
        self._writer.transport.abort()

    async def _take(self, due: asyncio.Queue[tuple[float, bytes]]) -> None:
        while True:
            try:
                data = await self._reader.read(READ_BYTES)
            except OSError:
                data = b""
            await due.put((time.monotonic() + self._wire.delay_s, data))
            if not data:
                return

    async def _give(self, due: asyncio.Queue[tuple[float, bytes]]) -> None:
        while True:
            at_s, data = await due.get()
            await self._wire.flows.wait()
            await asyncio.sleep(max(0.0, at_s - time.monotonic()))
            if not data:
                self._writer.close()
                return
            # Raises OSError when nobody takes bytes any more: then the whole connection ends.
            self._writer.write(data)
            await self._writer.drain()
            if self._wire.bytes_per_s:
                await asyncio.sleep(len(data) / self._wire.bytes_per_s)


class _Connection:
    """Two pumps that end together."""

    def __init__(self, source: str, target: str, pumps: list[_Pump]) -> None:
        self.source = source
        self.target = target
        self._pumps = pumps
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> Self:
        self._task = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as tasks:
                for pump in self._pumps:
                    tasks.create_task(pump.run())
        except* OSError:
            pass
        except* asyncio.CancelledError:
            pass
        for pump in self._pumps:
            pump.abort()
        return self

    def abort(self) -> None:
        for pump in self._pumps:
            pump.abort()
        if self._task is not None:
            self._task.cancel()


def _socket_inode(host: str, port: int, remote_port: int) -> int | None:
    """Of the socket that has `host` at both ends, IPv4 or mapped to IPv6.

    The kernel is asked for this one socket (sock_diag(7)), in a tenth of a millisecond. To list all
    of them in /proc/net/tcp it walks a table, more than 10 ms in which nothing flows on any wire.
    """
    address = socket.inet_aton(host).ljust(16, b"\0")
    wanted = (
        struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, _ALL_STATES)
        + struct.pack("!HH", port, remote_port)
        + address
        + address
        + struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    )
    head = struct.pack("=IHHII", _HEAD_BYTES + len(wanted), _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(head + wanted)
        answer = kernel.recv(4_096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None  # it has ended since
    (inode,) = struct.unpack_from("=I", answer, _HEAD_BYTES + _INODE_AT)
    return int(inode)


def _owns_socket(process_id: int, inode: int) -> bool:
    wanted = f"socket:[{inode}]"
    try:
        with os.scandir(f"/proc/{process_id}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    if os.readlink(entry.path) == wanted:
                        return True
    except OSError:
        pass
    return False
