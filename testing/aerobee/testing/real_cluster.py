"""A cluster in real time, on a thread and an event loop of this process, or with brokers as
separate processes.

Inside this process it starts in a tenth of a second: no process is started, and the registry is in
memory instead of etcd. The brokers' stores are real, below a folder.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from aerobee.broker.config import BrokerConfig
from aerobee.runtime.clock import Clock, SystemClock, system_random
from aerobee.runtime.private_files import make_private_folder
from aerobee.store.engine.disk import RealDisk
from aerobee.testing.cluster_nodes import ClusterNodes, Shape
from aerobee.testing.nodes import BrokerNode
from aerobee.testing.process_node import BrokerProcess

T = TypeVar("T")

CALL_TIMEOUT_S = 120.0


class ClusterThread:
    """An event loop on a thread; calls from other threads wait for their results."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, call: Coroutine[Any, Any, T], timeout_s: float = CALL_TIMEOUT_S) -> T:
        """Raises what the call raises, and TimeoutError."""
        return self.submit(call).result(timeout_s)

    def submit(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    async def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """The same for another event loop."""
        return await asyncio.wrap_future(self.submit(call))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


class RealCluster:
    """A nameserver and brokers; `with` starts and stops them. All methods block, and may be called
    by any thread but the cluster's own.

    Args:
        folder: where brokers keep what they store; made if it is not there.
        groups: broker groups, named broker-a, broker-b and so on.
        replicas: brokers of each; those after the first are named broker-a-1 and so on.
        processes: each broker is a process of its own.
    """

    def __init__(
        self, folder: Path, *, groups: int = 1, replicas: int = 1, processes: bool = False
    ) -> None:
        self.folder = folder
        self._shape = Shape(groups=groups, replicas=replicas)
        self._has_processes = processes
        self._clock: Clock = SystemClock()
        self._chance: random.Random = system_random()
        self.thread = ClusterThread("aerobee-cluster")
        self._nodes: ClusterNodes | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Return once it takes messages."""
        self.thread.start()
        try:
            self.thread.call(self._start())
        except BaseException:
            self.thread.stop()
            raise

    async def _start(self) -> None:
        self._nodes = ClusterNodes(
            self._shape,
            clock=self._clock,
            chance=self._chance,
            network=None,
            make_broker=self._make_broker,
            root_of=self._root,
        )
        try:
            await self._nodes.start()
        except BaseException:
            await self._nodes.kill()
            raise

    def stop(self) -> None:
        """A clean stop."""
        try:
            self.thread.call(self.nodes.stop())
        finally:
            self.thread.stop()

    def _root(self, name: str) -> Path:
        root = self.folder / name
        make_private_folder(str(root))
        return root

    def _make_broker(self, name: str, config: BrokerConfig) -> BrokerNode | BrokerProcess:
        if self._has_processes:
            return BrokerProcess(name, config)
        disk = RealDisk(config.store_root)
        return BrokerNode(name, config, disk, self._clock, self._chance, None)

    @property
    def nodes(self) -> ClusterNodes:
        """What it consists of; belongs to the cluster's thread."""
        if self._nodes is None:
            raise RuntimeError("the cluster is not started")
        return self._nodes

    @property
    def nameservers(self) -> str:
        """What clients are given."""
        return self.nodes.address

    def create_topic(
        self, name: str, *, queues: int = 0, attributes: Mapping[str, str] | None = None
    ) -> None:
        """`queues`: 0: four for each broker group. `attributes`: {"message.type": "FIFO"}, for
        example. Raises TopicExists, IllegalName."""
        self.thread.call(self.nodes.create_topic(name, queues=queues, attributes=attributes))

    def delete_topic(self, name: str) -> None:
        """Raises TopicNotFound."""
        self.thread.call(self.nodes.delete_topic(name))

    def master(self, group: str = "broker-a") -> str:
        """The broker that leads the group; empty while none does."""
        return self.thread.call(self.nodes.master(group))

    def start_broker(self, broker: str = "broker-a") -> None:
        """Start one again that was killed or stopped, over its own folder."""
        self.thread.call(self.nodes.broker(broker).start())

    def stop_broker(self, broker: str = "broker-a") -> None:
        """A clean stop."""
        self.thread.call(self.nodes.broker(broker).stop())

    def heal(self) -> None:
        """Undo what faults and `stop_broker` left; return once it takes messages."""
        self.thread.call(self.nodes.heal())

    def broker(self, name: str) -> BrokerNode | BrokerProcess:
        """For `aerobee.testing.faults`."""
        return self.nodes.broker(name)
