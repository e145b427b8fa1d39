"""`aerobee broker drain` and `aerobee health` as processes of their own: hooks and probes."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from aerobee.rpc import own_protocol
from aerobee.rpc import serving as rpc
from aerobee.rpc.health_server import serve_health
from aerobee.runtime import errors
from aerobee.runtime.health import Question
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2

pytestmark = pytest.mark.slow

REOPENING_S = 0.4
"""So long the former master does not follow yet."""


@dataclass
class Replica(broker_pb2_grpc.AdminServiceServicer):
    """A broker that hands over when `refusals` are used up, and follows its successor a while
    later."""

    role: int = common_pb2.MASTER
    others: int = 2
    connected: bool = True
    refusals: list[errors.AerobeeError] = field(default_factory=list)
    refuses_always: bool = False
    asked: list[broker_pb2.HandOverRequest] = field(default_factory=list)
    handed_over_s: float | None = None
    follows: bool = True
    address: str = ""

    async def GetStats(
        self, request: broker_pb2.GetStatsRequest, context: Any
    ) -> broker_pb2.BrokerStats:
        if self.role == common_pb2.MASTER:
            progress = [
                broker_pb2.ReplicaProgress(broker_id=1 + n, connected=self.connected)
                for n in range(self.others)
            ]
            return broker_pb2.BrokerStats(role=common_pb2.MASTER, replicas=progress)
        since_s = time.monotonic() - (self.handed_over_s or 0.0)
        slave = broker_pb2.SlaveProgress(
            master_id=1, connected=self.follows and since_s > REOPENING_S
        )
        return broker_pb2.BrokerStats(role=common_pb2.SLAVE, slave=slave)

    async def HandOver(
        self, request: broker_pb2.HandOverRequest, context: Any
    ) -> broker_pb2.HandOverResponse:
        self.asked.append(request)
        if self.refuses_always or self.refusals:
            raise self.refusals[0] if self.refuses_always else self.refusals.pop(0)
        self.role, self.handed_over_s = common_pb2.SLAVE, time.monotonic()
        return broker_pb2.HandOverResponse(master_id=1, epoch=4, paused_ms=12)


@pytest_asyncio.fixture
async def replica() -> AsyncIterator[Replica]:
    replica = Replica()
    server = rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.AdminService"])
    broker_pb2_grpc.add_AdminServiceServicer_to_server(replica, server.server)
    replica.address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    yield replica
    await server.stop(0)


async def aerobee(*arguments: str) -> tuple[int | None, str, str]:
    """Exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aerobee.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, remarked = await process.communicate()
    return process.returncode, said.decode(), remarked.decode()


async def test_a_master_is_drained_when_it_follows_its_successor(replica: Replica) -> None:
    code, said, _ = await aerobee("broker", "drain", "--broker", replica.address)
    assert (code, said) == (
        0,
        f"{replica.address}: replica 1 is master in epoch 4; writes paused for 12 ms\n",
    )
    assert replica.handed_over_s is not None
    assert time.monotonic() - replica.handed_over_s > REOPENING_S
    assert not replica.asked[0].HasField("successor_id"), "the master knows who has most"


async def test_where_there_is_nothing_to_hand_over_it_returns_at_once(replica: Replica) -> None:
    replica.others = 0
    code, said, _ = await aerobee("broker", "drain", "--broker", replica.address, "--json")
    assert (code, json.loads(said)["handedOver"]) == (0, False)
    replica.role = common_pb2.SLAVE
    code, said, _ = await aerobee("broker", "drain", "--broker", replica.address)
    assert (code, said) == (0, f"{replica.address}: a slave; nothing to hand over\n")
    assert replica.asked == []


async def test_the_last_replica_that_runs_is_not_held_up_by_those_that_do_not(
    replica: Replica,
) -> None:
    replica.connected = False
    begin_s = time.monotonic()
    code, said, _ = await aerobee("broker", "drain", "--broker", replica.address)
    assert (code, replica.asked) == (0, [])
    assert "no other replica is connected" in said
    # What it may take otherwise is five times as long.
    assert time.monotonic() - begin_s < 10


async def test_a_replica_that_is_about_to_be_in_sync_is_waited_for(replica: Replica) -> None:
    replica.refusals = [errors.InvalidArgument("only [] are in sync"), errors.Busy("under way")]
    code, said, _ = await aerobee("broker", "drain", "--broker", replica.address, "--json")
    assert (code, json.loads(said)["masterId"]) == (0, 1)
    assert len(replica.asked) == 3


async def test_if_nobody_can_take_over_in_time_it_says_so(replica: Replica) -> None:
    replica.refuses_always, replica.refusals = True, [errors.InvalidArgument("only [] in sync")]
    code, said, remarked = await aerobee(
        "broker", "drain", "--broker", replica.address, "--timeout-ms", "700"
    )
    assert (code, said) == (4, "")
    assert "no replica took over within 0.7 s: only [] in sync" in remarked


async def test_a_successor_that_does_not_act_in_time_is_no_success(replica: Replica) -> None:
    replica.follows = False
    code, _, remarked = await aerobee(
        "broker", "drain", "--broker", replica.address, "--timeout-ms", "700"
    )
    assert code == 4
    assert "did not copy from its successor" in remarked


async def test_a_broker_that_is_not_there_is_named() -> None:
    code, _, remarked = await aerobee("broker", "drain", "--broker", "127.0.0.1:1")
    assert code == 3
    assert "127.0.0.1:1" in remarked


class SlaveHealth:
    def why_not(self, question: Question) -> str:
        return "the replica is not in sync" if question is Question.READINESS else ""


async def test_health_is_an_exit_code_and_a_reason() -> None:
    async with serve_health("127.0.0.1:0", SlaveHealth()) as port:
        address = f"127.0.0.1:{port}"
        answers = await asyncio.gather(
            aerobee("health", address, "--service", "liveness"),
            aerobee("health", address),
            aerobee("health", address, "--service", "readiness", "--json"),
            aerobee("health", address, "--service", "x"),
            aerobee("health", "127.0.0.1:1"),
        )
    assert [code for code, _, _ in answers] == [0, 1, 1, 2, 3]
    assert answers[0][1] == "SERVING\n"
    assert answers[1][1] == "NOT_SERVING: the replica is not in sync\n"
    assert json.loads(answers[2][1])["reason"] == "the replica is not in sync"
    assert "startup, liveness, readiness" in answers[3][2]
