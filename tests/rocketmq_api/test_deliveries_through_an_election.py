"""A master is killed while its messages are in flight: the next one knows who had which."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.rocketmq_api.test_sends_through_an_election import master_of
from tests.support.grpcio_client import build_channel
from tests.support.local_up import running
from tests.support.v2_calls import V2, Received, sent_message
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
COUNT = 30
PATIENCE_S = 60.0


async def asked(client: V2, count: int) -> Received:
    """One poll; nothing while there is no master."""
    try:
        return await client.receive("t", "readers", count=count)
    except grpc.aio.AioRpcError:
        await asyncio.sleep(0.2)
        return Received()


@pytest.mark.thorough
async def test_what_was_acknowledged_stays_so_and_the_rest_comes_with_its_attempts(
    tmp_path: Path,
) -> None:
    with running(tmp_path, "--replicas", "2") as up:
        up.run("topic", "create", "t", "--queues", "1", "--type", "NORMAL")
        wait_until(lambda: up.knows("t"), "the topic")
        async with build_channel(up.document()["nameserver"]) as channel:
            client = V2(channel)
            for number in range(COUNT):
                answer = await client.send(sent_message("t", b"x", f"ID-{number}"))
                assert answer.status.code == v2.OK
            taken = (await client.receive("t", "readers", count=20)).messages
            done, open_ones = taken[:10], taken[10:]
            assert await client.acknowledge("readers", *done) == [v2.OK] * 10
            os.kill(master_of(up), signal.SIGKILL)
            attempts: dict[str, int] = {}
            async with asyncio.timeout(PATIENCE_S):
                while len(attempts) < COUNT - len(done):
                    for message in (await asked(client, 32)).messages:
                        system = message.system_properties
                        attempts[system.message_id] = system.delivery_attempt
                        assert await client.acknowledge("readers", message) == [v2.OK]
            # A handle of the old master, for a message that the new one has handed out anew.
            assert await client.acknowledge("readers", open_ones[0]) == [v2.INVALID_RECEIPT_HANDLE]
            assert (await client.receive("t", "readers")).messages == []
        in_flight = {each.system_properties.message_id for each in open_ones}
        acknowledged = {each.system_properties.message_id for each in done}
        assert attempts == {
            name: 2 if name in in_flight else 1
            for name in (f"ID-{number}" for number in range(COUNT))
            if name not in acknowledged
        }


@pytest.mark.thorough
async def test_a_broker_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        up.run("topic", "create", "t", "--queues", "1", "--type", "NORMAL")
        wait_until(lambda: up.knows("t"), "the topic")
        async with build_channel(up.document()["nameserver"]) as channel:
            client = V2(channel)
            for number in range(4):
                await client.send(sent_message("t", b"x", f"ID-{number}"))
            first, _ = (await client.receive("t", "readers", count=2)).messages
            assert await client.acknowledge("readers", first) == [v2.OK]
            os.kill(master_of(up), signal.SIGKILL)
            seen: list[tuple[str, int]] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(seen) < 3:
                    for message in (await asked(client, 32)).messages:
                        system = message.system_properties
                        seen.append((system.message_id, system.delivery_attempt))
                        assert await client.acknowledge("readers", message) == [v2.OK]
        assert sorted(seen) == [("ID-1", 2), ("ID-2", 1), ("ID-3", 1)]
