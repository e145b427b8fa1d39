"""`aerobee broker handover` and `aerobee cluster remove-replica` as separate processes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from aerobee.rpc import own_protocol
from aerobee.rpc import serving as rpc
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, broker_pb2_grpc
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.fake_cluster import BrokerAt, FakeNameserver

pytestmark = pytest.mark.slow


class Master(broker_pb2_grpc.AdminServiceServicer):
    """Takes hand-overs as told."""

    def __init__(self) -> None:
        self.asked: list[broker_pb2.HandOverRequest] = []
        self.refuse: errors.AerobeeError | None = None
        self.address = ""

    async def HandOver(
        self, request: broker_pb2.HandOverRequest, context: Any
    ) -> broker_pb2.HandOverResponse:
        self.asked.append(request)
        if self.refuse is not None:
            raise self.refuse
        return broker_pb2.HandOverResponse(master_id=2, epoch=7, paused_ms=41)


@dataclass
class GroupNameserver(FakeNameserver):
    """Removes replicas as told."""

    removed: list[pb.RemoveReplicaRequest] = field(default_factory=list)

    async def RemoveReplica(self, request: pb.RemoveReplicaRequest, context: Any) -> pb.GroupRecord:
        self.removed.append(request)
        if request.broker_id == 1:
            raise errors.InvalidArgument("replica 1 of broker-a is alive: stop it first")
        return pb.GroupRecord(broker_name="broker-a", epoch=3, master_id=0, replicas=[0, 1])


@dataclass
class Cluster:
    nameserver: GroupNameserver
    master: Master

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aerobee.cli", *arguments),
            *("--nameserver", self.nameserver.address),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, remarked = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode(), remarked.decode()


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    master = Master()
    server = rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.AdminService"])
    broker_pb2_grpc.add_AdminServiceServicer_to_server(master, server.server)
    master.address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    nameserver = GroupNameserver(brokers={"broker-a": BrokerAt(master.address)})
    await nameserver.start()
    yield Cluster(nameserver, master)
    await nameserver.stop()
    await server.stop(0)


async def test_a_hand_over_goes_to_the_master_and_says_what_came_of_it(cluster: Cluster) -> None:
    code, said, _ = await cluster.command("broker", "handover", "broker-a", "--to", "2")
    assert (code, said) == (
        0,
        "broker-a: replica 2 is master in epoch 7; writes paused for 41 ms\n",
    )
    code, said, _ = await cluster.command("broker", "handover", "broker-a", "--json")
    assert json.loads(said) == {"broker": "broker-a", "masterId": 2, "epoch": 7, "pausedMs": 41}
    chosen, free = cluster.master.asked
    assert chosen.successor_id == 2
    assert not free.HasField("successor_id"), "0 would be a wish"
    assert free.timeout_ms == 10_000


async def test_a_refused_hand_over_is_one_sentence(cluster: Cluster) -> None:
    cluster.master.refuse = errors.InvalidArgument("replica 9 is not in sync")
    code, said, remarked = await cluster.command("broker", "handover", "broker-a", "--to", "9")
    assert (code, said) == (2, "")
    assert remarked == "aerobee: replica 9 is not in sync\n"
    code, _, remarked = await cluster.command("broker", "handover", "broker-x")
    assert code == 3
    assert "broker-x has no master now" in remarked


async def test_a_replica_is_removed_or_the_reason_is_given(cluster: Cluster) -> None:
    code, said, _ = await cluster.command("cluster", "remove-replica", "broker-a", "2", "--yes")
    assert (code, said) == (0, "broker-a: replica 2 is removed; left are 0, 1\n")
    (asked,) = cluster.nameserver.removed
    assert (asked.broker_name, asked.broker_id) == ("broker-a", 2)
    code, said, remarked = await cluster.command(
        "cluster", "remove-replica", "broker-a", "1", "--yes"
    )
    assert (code, said) == (2, "")
    assert remarked == "aerobee: replica 1 of broker-a is alive: stop it first\n"
    code, _, remarked = await cluster.command("cluster", "remove-replica", "broker-a", "x")
    assert code == 2
    assert "'x' is not a valid" in remarked
