"""Nameservers and brokers as tasks of one event loop, each with lives: started, stopped, killed,
restarted on the same port.

The nodes are real; only the registry is in memory, instead of etcd.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import replace

from aerobee.broker.app import serve_broker
from aerobee.broker.config import BrokerConfig
from aerobee.nameserver.app import serve_nameserver
from aerobee.nameserver.config import NameserverConfig
from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.runtime.clock import Clock
from aerobee.runtime.supervise import Lifecycle
from aerobee.store.engine.disk import Disk
from aerobee.store.flush.workers import Threads, Workers
from aerobee.testing.inline_workers import InlineWorkers
from aerobee.testing.memory_network import PLACE, MemoryNetwork
from aerobee.testing.node_disk import DiskFaults, NodeDisk

START_TIMEOUT_S = 60.0

OnListening = Callable[[int], None]


class Node:
    """Something that listens on a port and has lives. `name` is also its place in a network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._life: asyncio.Task[None] | None = None
        self._ended: asyncio.Task[None] | None = None
        """A life that was told to end, and may not have ended yet."""
        self._lifecycle = Lifecycle()

    @property
    def is_running(self) -> bool:
        return self._life is not None and not self._life.done()

    async def _begin(self, serve: Callable[[Lifecycle, OnListening], Awaitable[None]]) -> int:
        """Returns the port once it listens. Raises what ended it before that."""
        if self.is_running:
            raise RuntimeError(f"{self.name} runs already")
        await self._gone()
        loop = asyncio.get_running_loop()
        listening: asyncio.Future[int] = loop.create_future()
        self._lifecycle = lifecycle = Lifecycle()

        def on_listening(port: int) -> None:
            if not listening.done():
                listening.set_result(port)

        async def live() -> None:
            await serve(lifecycle, on_listening)

        context = copy_context()
        context.run(PLACE.set, self.name)
        life = loop.create_task(live(), name=self.name, context=context)
        self._life = life
        async with asyncio.timeout(START_TIMEOUT_S):
            await asyncio.wait((life, listening), return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            self._life = None
            life.result()
            raise RuntimeError(f"{self.name} ended before it listened")
        return listening.result()

    async def stop(self) -> None:
        """A clean stop. Raises what ended it earlier, if anything did."""
        life, self._life = self._life, None
        if life is not None:
            self._lifecycle.stop.set()
            await life
        await self._gone()

    def _end(self) -> None:
        """The life ends at once, whatever it does about that."""
        life, self._life = self._life, None
        if life is not None:
            self._ended = life
            life.cancel()

    async def _gone(self) -> None:
        """Return once nothing of the last life is running."""
        ended, self._ended = self._ended, None
        if ended is not None:
            await asyncio.wait((ended,))
            if not ended.cancelled():
                ended.exception()


class NameserverNode(Node):
    def __init__(
        self,
        config: NameserverConfig,
        store: KeyValueStore,
        clock: Clock,
        chance: random.Random,
        network: MemoryNetwork | None,
    ) -> None:
        super().__init__("nameserver")
        self._config = config
        self._store = store
        self._clock = clock
        self._chance = chance
        self._network = network

    @property
    def address(self) -> str:
        return self._config.listen

    async def start(self) -> None:
        """May be called again, on the same port."""

        async def serve(lifecycle: Lifecycle, on_listening: OnListening) -> None:
            await serve_nameserver(
                self._config,
                lifecycle,
                clock=self._clock,
                chance=self._chance,
                on_listening=on_listening,
                store=self._store,
            )

        port = await self._begin(serve)
        self._config = replace(self._config, listen=_with_port(self._config.listen, port))

    async def kill(self) -> None:
        """As SIGKILL does."""
        if self._network is not None:
            self._network.kill(self.name)
        self._end()
        await self._gone()


class BrokerNode(Node):
    """A broker on a disk that outlives it."""

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        disk: Disk,
        clock: Clock,
        chance: random.Random,
        network: MemoryNetwork | None,
    ) -> None:
        """With a `network`, its jobs are done inline; without one, by threads."""
        super().__init__(name)
        self.config = config
        self.disk = disk
        self.faults = DiskFaults()
        self._clock = clock
        self._chance = chance
        self._network = network
        self._node_disk: NodeDisk | None = None
        self._workers: Workers = Threads()

    @property
    def address(self) -> str:
        return self.config.listen

    async def start(self) -> None:
        """May be called again, on the same port and disk."""
        is_inline = self._network is not None
        disk = self._node_disk = NodeDisk(self.disk, self.faults, waits=not is_inline)
        self._workers = InlineWorkers(self.faults) if is_inline else Threads()

        async def serve(lifecycle: Lifecycle, on_listening: OnListening) -> None:
            await serve_broker(
                self.config,
                lifecycle,
                clock=self._clock,
                chance=self._chance,
                disk=disk,
                on_listening=on_listening,
                workers=self._workers,
            )

        port = await self._begin(serve)
        self.config = replace(self.config, listen=_with_port(self.config.listen, port))

    async def kill(self) -> None:
        """As SIGKILL does; return once nothing of it is running."""
        self.kill_now()
        await self._gone()

    def kill_now(self) -> None:
        """As SIGKILL does: nothing more is written, and nobody is notified. What it had written is
        in the page cache and remains."""
        if self._node_disk is not None:
            self._node_disk.kill()
        if self._network is not None:
            self._network.kill(self.name)
        is_hung = self.faults.is_hung
        self.answer_disk()
        self._end()
        if is_hung:
            self.faults.hang()

    def answer_disk(self) -> None:
        """What a hung disk held continues."""
        self.faults.answer()
        if isinstance(self._workers, InlineWorkers):
            self._workers.release()


def _with_port(address: str, port: int) -> str:
    return f"{address.rpartition(':')[0]}:{port}"
