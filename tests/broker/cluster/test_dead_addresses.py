"""Whom a broker talks to may be gone without a word: it goes on by another connection, at once.

gRPC lets channels of one process to one address share a connection, also one that is dead, until
keepalive has noticed it after 15 s.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.broker.cluster.in_sync_registry import InSyncRegistry
from aerobee.broker.cluster.registration import Registration, RegistrationConfig
from aerobee.broker.replication.master_lease import MasterLease
from aerobee.broker.replication.master_term import Proposal, ReplicaName
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import QUERY_ROUTE
from aerobee.cluster_view.nameservers import Nameservers
from aerobee.cluster_view.routes import ROUTE_ATTEMPT_MS
from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.retry import Backoff
from aerobee.v1 import common_pb2, nameserver_pb2, nameserver_pb2_grpc
from tests.support.dying_path import DyingPath, dying_path
from tests.support.grpcio_client import build_channel
from tests.support.replication_streams import running_master, running_slave
from tests.support.stores import batch_of
from tests.support.waiting import until

PROPOSAL = Proposal(frozenset({ReplicaName(0, "log-0")}), 3)
IDENTITY = common_pb2.BrokerIdentity(broker_name="broker-a", instance="i1")


class Nameserver(nameserver_pb2_grpc.NameserverServiceServicer):
    """Makes every change and renews every registration."""

    async def AlterInSyncSet(
        self, request: nameserver_pb2.AlterInSyncSetRequest, context: object
    ) -> nameserver_pb2.GroupRecord:
        return nameserver_pb2.GroupRecord(
            broker_name=request.broker_name, revision=request.expected_revision + 1
        )

    async def QueryRoute(
        self, request: nameserver_pb2.QueryRouteRequest, context: object
    ) -> nameserver_pb2.QueryRouteResponse:
        return nameserver_pb2.QueryRouteResponse(version=1)

    async def Register(
        self, requests: AsyncIterator[nameserver_pb2.BrokerHeartbeat], context: object
    ) -> AsyncIterator[nameserver_pb2.BrokerDirective]:
        async for heartbeat in requests:
            yield nameserver_pb2.BrokerDirective(
                lease_duration_ms=heartbeat.lease_duration_ms, renewed_sequence=heartbeat.sequence
            )


@asynccontextmanager
async def nameserver_behind_a_path() -> AsyncIterator[DyingPath]:
    """Some other part of the process has a connection to it, too."""
    server = grpc.aio.server()
    nameserver_pb2_grpc.add_NameserverServiceServicer_to_server(Nameserver(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with dying_path(port) as path, build_channel(path.address) as other:
        await other.channel_ready()
        yield path
    await server.stop(0)


async def test_a_nameserver_whose_address_has_died_is_asked_by_another_connection() -> None:
    async with nameserver_behind_a_path() as path:
        channels = Channels()
        registry = InSyncRegistry((path.address,), IDENTITY, channels)
        try:
            assert (await registry.alter(1, PROPOSAL)).revision == 4
            path.die()
            before = path.connections
            with pytest.raises(errors.DeadlineExceeded):
                await registry.alter(1, PROPOSAL)
            assert (await registry.alter(1, PROPOSAL)).revision == 4
            assert path.connections == before + 1
        finally:
            await channels.close()


def registration_at(config: RegistrationConfig, on_directive: Callable[[], None]) -> Registration:
    """One that a broker without a log would have."""

    async def hear(directive: nameserver_pb2.BrokerDirective) -> None:
        on_directive()

    def heartbeat() -> nameserver_pb2.BrokerHeartbeat:
        return nameserver_pb2.BrokerHeartbeat(identity=IDENTITY, address="127.0.0.1:10911")

    return Registration(
        config,
        clock=SystemClock(),
        chance=random.Random(1),
        heartbeat=heartbeat,
        on_directive=hear,
        due=asyncio.Event(),
    )


async def test_a_registration_goes_on_by_another_connection_when_the_address_has_died() -> None:
    heard_s: list[float] = []
    async with nameserver_behind_a_path() as path:
        config = RegistrationConfig(
            nameservers=(path.address,),
            lease_duration_ms=1_000,
            answer_timeout_ms=500,
            backoff=Backoff(base_ms=10, max_ms=50),
        )
        registration = registration_at(config, lambda: heard_s.append(time.monotonic()))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(registration.run())
            await until(lambda: bool(heard_s), timeout_s=5)
            path.die()
            died_s, heard = time.monotonic(), len(heard_s)
            await until(lambda: len(heard_s) > heard + 1, timeout_s=8)
            assert time.monotonic() - died_s < 5
            running.cancel()


async def test_a_nameserver_that_falls_silent_is_left_before_the_lease_ends() -> None:
    """Else a master would lose its lease with a nameserver, though others could renew it."""
    heard_s: list[float] = []
    async with nameserver_behind_a_path() as first, nameserver_behind_a_path() as second:
        config = RegistrationConfig(
            nameservers=(first.address, second.address), lease_duration_ms=5_000
        )
        registration = registration_at(config, lambda: heard_s.append(time.monotonic()))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(registration.run())
            await until(lambda: bool(heard_s), timeout_s=5)
            used = registration.statistics().nameserver
            (first if used == first.address else second).die()
            await until(lambda: registration.statistics().nameserver != used, timeout_s=8)
            before = len(heard_s)
            await until(lambda: len(heard_s) > before, timeout_s=5)
            assert heard_s[before] - heard_s[before - 1] < 5.0
            running.cancel()


NAME = "nameservers.example.net"


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """What a name resolves to: as that of a headless service of two nameservers."""
    addresses = ("127.0.0.2", "127.0.0.1")
    resolve = socket.getaddrinfo

    def found(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
        if host != NAME:
            return resolve(host, port, *arguments, **named)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return addresses


@asynccontextmanager
async def two_nameservers(addresses: tuple[str, str]) -> AsyncIterator[tuple[DyingPath, str]]:
    """At one port of both addresses; the path is to the first of them. And the common name."""
    dying, lasting = addresses
    server = grpc.aio.server()
    nameserver_pb2_grpc.add_NameserverServiceServicer_to_server(Nameserver(), server)
    port = server.add_insecure_port(f"{lasting}:0")
    await server.start()
    async with dying_path(port, dying, port) as path:
        yield path, f"{NAME}:{port}"
    await server.stop(0)


@pytest.mark.thorough
async def test_a_master_keeps_its_lease_when_one_of_two_nameservers_behind_a_name_is_gone(
    two_addresses: tuple[str, str],
) -> None:
    """Its machine swallows every packet, and the name still has its address, as for the first 40
    seconds after a node of Kubernetes has died."""
    lease = MasterLease()
    heard_s: list[float] = []
    margins_s: list[float] = []

    def sending(sequence: int) -> None:
        lease.sent(sequence, time.monotonic())

    async def hear(directive: nameserver_pb2.BrokerDirective) -> None:
        heard_s.append(time.monotonic())
        margins_s.append(lease.end_s - heard_s[-1])
        lease.renewed(directive.renewed_sequence, 5_000)

    async with two_nameservers(two_addresses) as (path, name):
        registration = Registration(
            RegistrationConfig(nameservers=(name,), lease_duration_ms=5_000),
            clock=SystemClock(),
            chance=random.Random(1),
            heartbeat=lambda: nameserver_pb2.BrokerHeartbeat(identity=IDENTITY),
            on_directive=hear,
            on_sending=sending,
            due=asyncio.Event(),
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(registration.run())
            await until(lambda: len(heard_s) == 2, timeout_s=10)
            assert path.connections == 1
            path.swallow()
            await until(lambda: len(heard_s) >= 3, timeout_s=10)
            assert path.connections == 1, "nobody came through to the dead one"
            running.cancel()
    assert margins_s[2] > 0.7, "seconds that were left of the lease"


async def test_a_client_asks_the_other_nameserver_behind_a_name_within_a_second(
    two_addresses: tuple[str, str],
) -> None:
    async with two_nameservers(two_addresses) as (path, name):
        channels = Channels()
        nameservers = Nameservers(channels, (name,), clock=SystemClock(), chance=random.Random(1))
        request = nameserver_pb2.QueryRouteRequest(topics=["orders"])
        try:
            await nameservers.call(QUERY_ROUTE, request)
            path.swallow()
            began_s = time.monotonic()
            answer = await nameservers.call(
                QUERY_ROUTE, request, timeout_ms=10_000, attempt_max_ms=ROUTE_ATTEMPT_MS
            )
            assert answer.version == 1
            # Its time, and the start that one address has on the next; with much patience.
            assert time.monotonic() - began_s < ROUTE_ATTEMPT_MS / 1_000 + 0.25 + 2.0
        finally:
            await channels.close()


async def test_a_slave_follows_by_another_connection_when_the_masters_address_has_died(
    tmp_path: Path,
) -> None:
    async with (
        running_master(tmp_path / "m", heartbeat_interval_s=0.1) as master,
        running_slave(tmp_path / "s", heartbeat_interval_s=0.1) as slave,
        dying_path(int(master.address.rpartition(":")[2])) as path,
        build_channel(path.address) as other,
    ):
        await other.channel_ready()
        master.append(batch_of("t", b"x"))
        following = slave.follow(path.address)
        await until(lambda: slave.store.appended_end == master.store.appended_end, timeout_s=5)
        path.die()
        with pytest.raises(errors.Unreachable, match="sent nothing"):
            await asyncio.wait_for(following, 5)
        master.append(batch_of("t", b"y"))
        slave.follow(path.address)
        await until(lambda: slave.store.appended_end == master.store.appended_end, timeout_s=5)
