"""A group's master changes while the producer connects to the former one."""

from __future__ import annotations

import asyncio

from aerobee.producer_client import Message, Producer
from tests.support.fake_cluster import BrokerAt, FakeBroker, FakeNameserver
from tests.support.silent_peer import silent_peer

SOON_S = 3.0
"""Below what an attempt to connect may take."""


async def test_a_producer_that_cannot_connect_goes_to_the_new_master_as_soon_as_it_hears_of_it(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    is_connected = asyncio.Event()
    async with silent_peer(is_connected.set) as former:
        nameserver.brokers["broker-a"] = BrokerAt(former)
        async with Producer(nameserver.address) as producer:
            sending = asyncio.ensure_future(producer.send(Message("orders", b"waits")))
            await is_connected.wait()
            await asyncio.sleep(0.1)  # it now waits for an answer
            nameserver.brokers["broker-a"] = broker_a
            await nameserver.publish()
            async with asyncio.timeout(SOON_S):
                await sending
    assert broker_a.bodies("orders") == [b"waits"]
