"""Readings and checksums of single brokers through the client, with typed errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aerobee.client_core import Audit, ClusterConnection
from aerobee.cluster_view.channels import Channels
from aerobee.rpc import own_protocol
from aerobee.rpc import serving as rpc
from aerobee.runtime import errors
from aerobee.v1 import audit_pb2, audit_pb2_grpc

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeNameserver

EVERYTHING = audit_pb2.SnapshotRequest()


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    channels = Channels()
    yield channels
    await channels.close()


class OddBroker(audit_pb2_grpc.AuditServiceServicer):
    """Answers as a test tells it."""

    def __init__(self) -> None:
        self.ends = False
        self.refuses: errors.AerobeeError | None = None
        self.cancelled = asyncio.Event()

    async def Snapshot(
        self, request: audit_pb2.SnapshotRequest, context: Any
    ) -> AsyncIterator[audit_pb2.SnapshotPart]:
        if self.refuses is not None:
            raise self.refuses
        yield audit_pb2.SnapshotPart(broker=audit_pb2.SnapshotBroker(instance="i"))
        if self.ends:
            return
        try:
            await asyncio.sleep(60)
        finally:
            self.cancelled.set()


@pytest.fixture
async def odd() -> AsyncIterator[tuple[OddBroker, str]]:
    broker, server = OddBroker(), rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.AuditService"])
    audit_pb2_grpc.add_AuditServiceServicer_to_server(broker, server.server)
    yield broker, f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    await server.stop(0)


async def test_a_reading_of_a_real_broker_comes_whole(
    nameserver: FakeNameserver, served: ClusterConnection
) -> None:
    address = nameserver.endpoints()[0].address
    audit = Audit(served.channels)
    parts = [part async for part in audit.snapshot(address, EVERYTHING)]
    assert parts[0].broker.stats.identity.broker_name == "broker-a"
    assert parts[-1].HasField("end")
    ends = [each.end async for each in audit.checksums(address)]
    assert max(ends, default=0) == parts[0].broker.stats.log_confirmed_end
    with pytest.raises(errors.InvalidArgument, match="at least"):
        [each async for each in audit.checksums(address, range_bytes=1)]


async def test_a_broker_that_is_away_is_unreachable(channels: Channels) -> None:
    with pytest.raises(errors.Unreachable, match=r"127\.0\.0\.1:1"):
        [part async for part in Audit(channels).snapshot("127.0.0.1:1", EVERYTHING)]


async def test_a_reading_that_ends_before_its_end_is_none(
    channels: Channels, odd: tuple[OddBroker, str]
) -> None:
    broker, address = odd
    broker.ends = True
    with pytest.raises(errors.Unreachable, match="before its last part"):
        [part async for part in Audit(channels).snapshot(address, EVERYTHING)]


async def test_the_next_part_is_waited_for_so_long_and_no_longer(
    channels: Channels, odd: tuple[OddBroker, str]
) -> None:
    broker, address = odd
    with pytest.raises(errors.DeadlineExceeded, match="within 100 ms"):
        [part async for part in Audit(channels, timeout_ms=100).snapshot(address, EVERYTHING)]
    async with asyncio.timeout(5):
        await broker.cancelled.wait()


async def test_the_brokers_refusal_arrives_typed(
    channels: Channels, odd: tuple[OddBroker, str]
) -> None:
    broker, address = odd
    broker.refuses = errors.Busy("4 audits are reading already")
    with pytest.raises(errors.Busy, match="4 audits"):
        [part async for part in Audit(channels).snapshot(address, EVERYTHING)]


async def test_who_stops_reading_ends_the_call(
    channels: Channels, odd: tuple[OddBroker, str]
) -> None:
    broker, address = odd
    async with aclosing(Audit(channels).snapshot(address, EVERYTHING)) as parts:
        assert (await anext(parts)).HasField("broker")
    async with asyncio.timeout(5):
        await broker.cancelled.wait()


async def test_a_broker_that_knows_no_audits_says_so(channels: Channels) -> None:
    server = rpc.RpcServer(own_protocol.say_error, [])
    address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    with pytest.raises(errors.AerobeeError, match=grpc.StatusCode.UNIMPLEMENTED.name):
        [part async for part in Audit(channels).snapshot(address, EVERYTHING)]
    await server.stop(0)
