"""A nameserver as a process of its own: signals, exit codes, kill -9."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from aerobee.v1 import nameserver_pb2 as pb
from aerobee.v1 import nameserver_pb2_grpc
from tests.support.ports import free_port
from tests.support.waiting import until

PROGRAM = """
import sys
from aerobee.nameserver.app import run_nameserver
from aerobee.nameserver.config import EtcdConfig, NameserverConfig

cluster, listen, endpoint = sys.argv[1:]
etcd = EtcdConfig(endpoints=(endpoint,))
sys.exit(run_nameserver(NameserverConfig(cluster=cluster, listen=listen, etcd=etcd)))
"""
Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def listen() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def start(shared_etcd: Any, cluster: str, listen: str) -> Iterator[Start]:
    """Starts the nameserver, again and again at the same address."""
    with contextlib.ExitStack() as stack:

        def begin() -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", PROGRAM, cluster, listen,
                 shared_etcd.endpoint],
                env={**os.environ, "GRPC_VERBOSITY": "NONE"},  # gRPC logs refusals by itself
                stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            assert process.stderr is not None
            stack.enter_context(process.stderr)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield begin


async def is_known(listen: str) -> bool:
    async with grpc.aio.insecure_channel(listen) as channel:
        stub = nameserver_pb2_grpc.NameserverServiceStub(channel)
        try:
            await stub.ListTopics(pb.ListTopicsRequest(), wait_for_ready=True, timeout=5)
        except grpc.aio.AioRpcError:
            return False
    return True


async def test_a_signal_stops_it_cleanly(start: Start, listen: str) -> None:
    process = start()
    await until(lambda: is_known(listen))
    process.send_signal(signal.SIGTERM)
    _, stderr = await asyncio.to_thread(process.communicate, timeout=10)
    assert (process.returncode, stderr) == (0, "")


async def test_a_second_one_on_the_port_refuses_to_start_in_one_sentence(
    start: Start, listen: str
) -> None:
    start()
    await until(lambda: is_known(listen))
    second = start()
    _, stderr = await asyncio.to_thread(second.communicate, timeout=10)
    assert second.returncode == 3
    assert listen in stderr
    assert stderr.count("\n") == 1, stderr


@pytest.mark.slow
async def test_a_killed_one_knows_everything_again_after_its_restart(
    start: Start,
    listen: str,
    shared_etcd: Any,
    start_nameserver: Any,
    make_broker: Any,
    running: Any,
) -> None:
    other = await start_nameserver(shared_etcd.endpoint)
    await running(make_broker("broker-a"), other)
    created = await other.stub.CreateTopic(pb.CreateTopicRequest(name="orders"))
    for _ in range(3):
        process = start()
        await until(lambda: is_known(listen))
        async with grpc.aio.insecure_channel(listen) as channel:
            stub = nameserver_pb2_grpc.NameserverServiceStub(channel)
            answer = await stub.QueryRoute(pb.QueryRouteRequest(topics=["orders"]))
        assert answer.routes[0].topic == created
        process.kill()
        await asyncio.to_thread(process.wait)
