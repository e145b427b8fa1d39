"""Replicas that die, pause, resign and move between nameservers, with a real etcd that is killed
now and then: nobody may believe to be master while somebody else does."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from aerobee.broker.replication.master_lease import MasterLease
from aerobee.runtime.clock import SystemClock
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.heartbeating_replica import HeartbeatingReplica

CLOCK = SystemClock()
REPLICAS = 3
NAMESERVERS = 2
DURATION_S = 10.0
INTERVAL_S = 0.15


class Start(HeartbeatingReplica):
    """One start of a replica that counts its lease."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lease = MasterLease()
        self.is_over = False
        self.group = pb.GroupRecord()
        self._seen = 0
        self._server: Any = None

    def heartbeat(self, *, leaving: bool = False) -> pb.BrokerHeartbeat:
        self.lease.sent(self.sequence, CLOCK.monotonic_s())
        return super().heartbeat(leaving=leaving)

    def believed_epoch(self) -> int:
        """The epoch under which it would acknowledge a message now; 0: it would not."""
        for directive in self.directives[self._seen :]:
            self.lease.renewed(directive.renewed_sequence, directive.lease_duration_ms)
            if directive.group.revision > self.group.revision:
                self.group.CopyFrom(directive.group)
        self._seen = len(self.directives)
        if self.is_over or self.resigned_epoch == self.group.epoch:
            return 0
        is_master = (self.group.master_id, self.group.master_instance) == (
            self.broker_id,
            self.instance,
        )
        return self.group.epoch if is_master and self.lease.is_valid(CLOCK.monotonic_s()) else 0

    async def go_to(self, server: Any) -> None:
        self._server = server
        with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError, ConnectionError):
            async with asyncio.timeout(2.0):
                await self.connect(server)
                self.keep_beating(INTERVAL_S)

    async def let_all_in_sync(self) -> None:
        """As a master does whose slaves have everything."""
        if not self.believed_epoch():
            return
        group = self.group
        alive = [one.identity.broker_id for one in self.last.replicas]
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._server.stub.AlterInSyncSet(
                pb.AlterInSyncSetRequest(
                    broker_name=self.name,
                    master_id=self.broker_id,
                    master_instance=self.instance,
                    epoch=group.epoch,
                    expected_revision=group.revision,
                    in_sync=[
                        pb.ReplicaName(broker_id=one, incarnation=f"log-{one}") for one in alive
                    ],
                ),
                timeout=1.0,
            )


@dataclass
class World:
    """The replicas, and what may happen to them."""

    cluster: str
    servers: list[Any]
    chance: random.Random
    replicas: list[Start] = field(default_factory=list)
    masters: dict[int, str] = field(default_factory=dict)
    """Epoch -> who acknowledged under it."""
    starts: int = 0

    def server(self) -> Any:
        return self.chance.choice(self.servers)

    def check(self) -> None:
        believers = []
        for replica in self.replicas:
            if epoch := replica.believed_epoch():
                believers.append((epoch, replica.instance))
                assert self.masters.setdefault(epoch, replica.instance) == replica.instance
        assert len(believers) <= 1, f"two masters at once: {believers}"

    async def check_always(self) -> None:
        while True:
            self.check()
            await asyncio.sleep(0.005)

    async def restart(self, replica: Start) -> None:
        """kill -9, and another start after a while."""
        replica.is_over = True
        replica.kill()
        await asyncio.sleep(self.chance.choice((0.0, 0.1, 1.5)))
        self.starts += 1
        again = Start(
            self.cluster,
            replica.broker_id,
            f"i{replica.broker_id}-{self.starts}",
            predecessor=replica.instance,
            log_epoch=replica.group.epoch,
        )
        self.replicas[replica.broker_id] = again
        for _ in range(20):
            await again.go_to(self.server())
            if again.directives:
                return
            await asyncio.sleep(0.2)

    async def pause(self, replica: Start) -> None:
        """Silent for longer than its lease, and back on another stream."""
        replica.kill()
        await asyncio.sleep(self.chance.uniform(0.3, 1.6))
        await replica.go_to(self.server())

    async def resign(self, replica: Start) -> None:
        if epoch := replica.believed_epoch():
            replica.successor_id = self.chance.randrange(REPLICAS)
            replica.resigned_epoch = epoch

    async def move(self, replica: Start) -> None:
        await replica.go_to(self.server())

    async def something(self, replica: Start) -> None:
        acts: list[Callable[[Start], Any]] = [self.restart, self.pause, self.resign, self.move]
        await self.chance.choices(acts, (3, 2, 2, 3))[0](replica)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 12))]
)
async def test_nobody_believes_to_be_master_while_somebody_else_does(
    seed: int, own_etcd: Any, start_nameserver: Any, cluster: str
) -> None:
    own_etcd.start()
    servers = [await start_nameserver(own_etcd.endpoint) for _ in range(NAMESERVERS)]
    world = World(cluster, servers, random.Random(seed))
    for number in range(REPLICAS):
        world.replicas.append(Start(cluster, number, f"i{number}-0"))
        await world.replicas[number].go_to(world.server())

    async def live(number: int) -> None:
        while True:
            await asyncio.sleep(world.chance.uniform(0.1, 1.2))
            await world.something(world.replicas[number])

    async def follow_master() -> None:
        while True:
            await asyncio.sleep(0.1)
            for replica in list(world.replicas):
                await replica.let_all_in_sync()

    async def disturb_etcd() -> None:
        for _ in range(2):
            await asyncio.sleep(DURATION_S / 3)
            await asyncio.to_thread(own_etcd.kill)
            await asyncio.sleep(world.chance.uniform(0.0, 1.5))
            await asyncio.to_thread(own_etcd.start)

    tasks = [asyncio.create_task(live(number)) for number in range(REPLICAS)]
    tasks += [asyncio.create_task(act()) for act in (follow_master, disturb_etcd)]
    checking = asyncio.create_task(world.check_always())
    done, _ = await asyncio.wait(
        [checking, *tasks[:-1]], timeout=DURATION_S, return_when=asyncio.FIRST_EXCEPTION
    )
    for task in (*tasks, checking):
        task.cancel()
    for one in done:
        await one
    await asyncio.gather(*tasks, checking, return_exceptions=True)
    for replica in world.replicas:
        replica.kill()
    assert len(world.masters) >= 3, f"fail-overs happened: {world.masters}"
