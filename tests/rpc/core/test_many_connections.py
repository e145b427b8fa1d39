"""Thousands of connections delay nobody, and those that end leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from typing import Any, cast
from unittest.mock import Mock

from aerobee.rpc.core.connection_set import ConnectionSet
from aerobee.rpc.core.server_connection import ServerConnection
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.raw_http2 import data, headers, message, raw_peer, request_block
from tests.support.waiting import until


async def test_a_connection_that_is_lost_leaves_no_garbage() -> None:
    async with serving() as running:
        gc.collect()
        gc.disable()
        try:
            async with raw_peer(running.port) as peer:
                await peer.send(
                    headers(1, request_block(SERVICE + "Chat")), data(1, message(b"hello"))
                )
                await until(lambda: running.server.connections)
                await peer.ping()
            await until(lambda: not running.server.connections)
            await asyncio.sleep(0)
            found = (each for each in gc.get_objects() if isinstance(each, ServerConnection))
            left = [each for each in found if each.server is running.server]
            assert left == [], "it waits for the garbage collector"
        finally:
            gc.enable()


class Ticked:
    """A connection, and its watch."""

    def __init__(self, ticked: list[Ticked]) -> None:
        self.watch = self
        self._ticked = ticked

    def tick(self, now_s: float) -> None:
        self._ticked.append(self)


class Turns:
    """A loop that keeps what is scheduled."""

    def __init__(self) -> None:
        self.due: list[Callable[[], object]] = []
        self._has_begun = False

    def call_later(self, delay_s: float, run: Callable[..., object], *args: object) -> Mock:
        if not self._has_begun:
            self._has_begun = True
            self.call_soon(run, *args)
        return Mock()

    def call_soon(self, run: Callable[..., object], *args: object) -> None:
        self.due.append(partial(run, *args))

    def time(self) -> float:
        return 0.0


def test_connections_are_watched_a_few_in_each_turn_of_the_loop() -> None:
    loop = Turns()
    ticked: list[Ticked] = []
    connections: ConnectionSet[Any] = ConnectionSet(cast(Any, loop), loop.time, 1 << 20)
    members = [Ticked(ticked) for _ in range(1_000)]
    for each in members:
        connections.add(each)
    connections.remove(members[0])
    turns = []
    while loop.due and len(ticked) < len(members) - 1:
        before = len(ticked)
        loop.due.pop(0)()
        turns.append(len(ticked) - before)
        if len(turns) == 1:
            connections.remove(members[1])  # it ends before its turn
            members.pop(1)
    assert set(ticked) == set(members[1:])
    assert max(turns) == 128
