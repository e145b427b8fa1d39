"""What POP hands out, in virtual time: invisible for exactly as long as was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.dead_letters import DeadLetters
from aerobee.testing import VirtualCluster, faults
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.support.v2_calls import V2, sent_message
from tests.support.v2_own_channel import OwnChannel

START = datetime(2030, 1, 1, tzinfo=UTC)
HOUR_S = 3_600.0
POLL_S = 20.0
"""As long as a broker lets a poll wait."""


@asynccontextmanager
async def client_of(cluster: VirtualCluster, broker: str = "broker-a") -> AsyncIterator[V2]:
    channel = OwnChannel(cluster.broker(broker).address)
    try:
        yield V2(cast(Any, channel))
    finally:
        await channel.close()


async def polled(client: V2, wait_s: float = 5.0) -> list[v2.Message]:
    """5 s is the shortest wait of a poll."""
    return (await client.receive("orders", "billing", wait_s=wait_s)).messages


async def test_what_is_not_acknowledged_comes_again_when_its_time_is_over_and_not_before() -> None:
    async with VirtualCluster(starts_at=START) as cluster, client_of(cluster) as client:
        await cluster.create_topic("orders", queues=1)
        await client.send(sent_message("orders"))
        [first] = (await client.receive("orders", "billing", invisible_s=HOUR_S)).messages
        await cluster.advance(minutes=59, seconds=40)
        assert await polled(client) == []
        # A poll that waits is given it at that moment.
        [again] = await polled(client, POLL_S)
        assert timedelta(hours=1) <= cluster.now - START < timedelta(hours=1, seconds=2)
        assert again.system_properties.message_id == first.system_properties.message_id
        assert again.system_properties.delivery_attempt == 2
        assert await client.acknowledge("billing", first) == [v2.INVALID_RECEIPT_HANDLE]
        assert await client.acknowledge("billing", again) == [v2.OK]
        await cluster.advance(hours=5)
        assert await polled(client) == []


async def test_a_changed_time_counts_from_the_change() -> None:
    async with VirtualCluster(starts_at=START) as cluster, client_of(cluster) as client:
        await cluster.create_topic("orders", queues=1)
        await client.send(sent_message("orders"))
        [first] = (await client.receive("orders", "billing", invisible_s=60)).messages
        await cluster.advance(seconds=50)
        changed = await client.change("billing", first, 2 * HOUR_S)
        assert changed.status.code == v2.OK
        began = cluster.now
        await cluster.advance(hours=1, minutes=59, seconds=45)
        assert await polled(client) == []
        [again] = await polled(client, POLL_S)
        assert timedelta(hours=2) <= cluster.now - began < timedelta(hours=2, seconds=2)
        first.system_properties.receipt_handle = changed.receipt_handle
        assert await client.acknowledge("billing", first) == [v2.INVALID_RECEIPT_HANDLE]
        assert await client.acknowledge("billing", again) == [v2.OK]


async def test_what_always_fails_is_a_dead_letter_after_its_attempts() -> None:
    async with VirtualCluster(starts_at=START) as cluster, client_of(cluster) as client:
        await cluster.create_topic("orders", queues=1)
        await client.send(sent_message("orders", b"broken"))
        attempts: list[int] = []
        for _ in range(40):
            received = await client.receive("orders", "billing", wait_s=0, invisible_s=600)
            attempts += [one.system_properties.delivery_attempt for one in received.messages]
            await cluster.advance(minutes=11)
        assert attempts == list(range(1, len(attempts) + 1))
        async with ClusterConnection(cluster.nameservers) as connection:
            letters = [letter async for letter in DeadLetters(connection).find("billing")]
    assert [letter.message.body for letter in letters] == [b"broken"]
    assert len(attempts) == 17


@pytest.mark.thorough
@pytest.mark.parametrize("ends", ["kill", "power"])
async def test_another_master_knows_who_has_what(ends: str) -> None:
    async with VirtualCluster(replicas=2) as cluster:
        await cluster.create_topic("orders", queues=1)
        first_master = await cluster.master()
        async with client_of(cluster, first_master) as client:
            for number in range(2):
                await client.send(sent_message("orders", b"%d" % number, f"ID-{number}"))
            found = await client.receive("orders", "billing", invisible_s=HOUR_S)
            done, kept = found.messages
            assert await client.acknowledge("billing", done) == [v2.OK]
            if ends == "kill":
                faults.kill(cluster, first_master)
            else:
                faults.cut_power(cluster, first_master, seed=3)
        await cluster.advance(minutes=5)
        async with client_of(cluster, await cluster.master()) as client:
            assert await polled(client) == []
            await cluster.advance(hours=1)
            [again] = await polled(client)
            assert again.body == kept.body
            assert await client.acknowledge("billing", again) == [v2.OK]
