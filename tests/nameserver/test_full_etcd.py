"""An etcd that answers and takes no writes, as one that has reached its quota: who is registered
stays so, and the nameserver says in one sentence what waits. And what it says of one that is flaky
or slow.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.nameserver.etcd3_loader import load_etcd3
from aerobee.nameserver.etcd_calls import HELD_S, SLOW_CALLS, EtcdCalls
from aerobee.nameserver.etcd_connection import OutOfSpace
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.etcd import HOST, EtcdProcess, running_etcd
from tests.support.waiting import until

QUOTA = 2 * 1024 * 1024


def client_of(etcd: EtcdProcess) -> Any:
    return load_etcd3().client(host=HOST, port=etcd.client_port)


async def fill(client: Any) -> None:
    """etcd looks at its size now and then only."""
    numbers = itertools.count()
    await until(lambda: is_refused(client, next(numbers)))


def is_refused(client: Any, number: int) -> bool:
    try:
        client.put(f"/elsewhere/{number}", "x" * 200_000)
    except grpc.RpcError as error:
        return "space exceeded" in (error.details() or "")
    return False


def clear(client: Any) -> None:
    """As the page on a full etcd has it."""
    answer = client.delete_prefix("/elsewhere/")
    client.compact(answer.header.revision, physical=True)
    client.defragment()
    (alarm,) = client.list_alarms()
    assert list(client.disarm_alarm(alarm.member_id))


@pytest.mark.slow
async def test_an_etcd_without_space_keeps_brokers_registered_and_is_told_in_one_sentence(
    tmp_path: Path, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    with running_etcd(tmp_path, f"--quota-backend-bytes={QUOTA}") as etcd:
        server = await start_nameserver(etcd.endpoint)
        await running(make_broker("broker-a"), server)
        await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders"))
        client = client_of(etcd)
        await fill(client)
        with pytest.raises(grpc.aio.AioRpcError, match="no space left: compact and defragment it"):
            await server.stub.CreateTopic(pb.CreateTopicRequest(name="more"))

        async def trouble() -> str:
            described = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
            # Far longer than its lease of one second.
            assert [each.identity.broker_name for each in described.brokers] == ["broker-a"]
            assert not described.stale
            return str(described.etcd_trouble)

        async def is_told() -> bool:
            return (await trouble()).startswith("etcd takes no writes: elections")

        await until(is_told)
        assert "masters continue (etcd at" in await trouble()
        assert "disarm its alarm)" in await trouble()
        clear(client)

        async def is_well() -> bool:
            return not await trouble()

        # Nothing else is written meanwhile: it finds out by itself.
        await until(is_well)
        await server.stub.CreateTopic(pb.CreateTopicRequest(name="more"))


def test_calls_of_which_some_fail_do_not_have_etcd_go_and_come() -> None:
    clock = ManualClock()
    calls = EtcdCalls(clock)
    assert calls.is_reachable is None
    lost = RegistryUnavailable("no answer")
    calls.answered(0.01, is_write=True)
    for _ in range(100):  # one of two members is dead
        clock.advance_ms(500)
        calls.failed(lost)
        assert calls.is_reachable
        clock.advance_ms(500)
        calls.answered(0.01, is_write=False)
        assert calls.is_reachable
    calls.failed(lost, is_write=True)
    clock.advance_ms(int(HELD_S * 1_000) - 1)
    assert calls.is_reachable
    clock.advance_ms(1)
    assert calls.is_reachable is False
    assert calls.trouble.startswith("etcd does not answer: elections, changes of in-sync sets")
    calls.answered(0.01, is_write=True)
    assert calls.is_reachable is False
    clock.advance_ms(int(HELD_S * 1_000))
    assert calls.is_reachable
    assert not calls.trouble


def test_an_etcd_that_refuses_for_lack_of_space_answers_and_is_not_writable() -> None:
    clock = ManualClock()
    calls = EtcdCalls(clock)
    full = OutOfSpace("etcd at e:1 has no space left")
    calls.answered(0.01, is_write=True)
    for _ in range(10):
        clock.advance_ms(500)
        calls.failed(full, is_write=True)
        clock.advance_ms(500)
        calls.answered(0.01, is_write=False)
    assert calls.is_reachable
    assert calls.is_writable is False
    assert calls.refuses_writes
    assert "masters continue (etcd at e:1 has no space left)" in calls.trouble


def test_a_slow_etcd_is_told_of_with_its_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    calls = EtcdCalls(clock)
    for _ in range(SLOW_CALLS):
        calls.answered(0.8, is_write=False)
    assert calls.trouble.startswith("etcd is slow, a call takes 0.8 s: elections")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    for _ in range(SLOW_CALLS):
        calls.answered(0.01, is_write=False)
    assert not calls.trouble
