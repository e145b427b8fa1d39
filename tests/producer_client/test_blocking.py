"""The producer for code without an event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from aerobee.producer_client import BlockingProducer, Message
from aerobee.runtime import errors

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeBroker, FakeNameserver


async def test_a_script_sends_from_many_threads(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    def script() -> None:
        with BlockingProducer(nameserver.address) as producer:
            with ThreadPoolExecutor(4) as threads:
                receipts = list(
                    threads.map(lambda n: producer.send(Message("orders", b"%d" % n)), range(100))
                )
            assert len({receipt.message_id for receipt in receipts}) == 100
            assert len(producer.send_batch([Message("orders", b"x")] * 10)) == 10
            producer.send_one_way(Message("orders", b"y"))
            producer.flush()
            with pytest.raises(errors.IllegalName):
                producer.send(Message("a/b", b"1"))
            producer.close()
            producer.close()
            with pytest.raises(errors.ShuttingDown):
                producer.send(Message("orders", b"late"))

    await asyncio.to_thread(script)
    assert len(broker_a.bodies("orders")) == 111


def test_a_wrong_address_shows_when_it_is_opened() -> None:
    with pytest.raises(errors.InvalidArgument, match="not host:port"):
        BlockingProducer("nonsense").__enter__()
    with pytest.raises(errors.ShuttingDown):
        BlockingProducer("127.0.0.1:1").send(Message("orders", b"1"))
