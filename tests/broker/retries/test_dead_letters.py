"""Dead letters are sent again exactly once, or dropped, over real gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from aerobee.client_core import Message
from aerobee.rpc.own_protocol import code_of
from aerobee.runtime.errors import NotWritableTopic
from aerobee.runtime.metrics.config import MetricsConfig
from aerobee.store.format.dead_letter_fields import resends_of
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.retries.test_sending_back import codes, pulled, send_back
from tests.support.grpcio_client import error_from_rpc
from tests.support.ports import free_port
from tests.support.scrapes import Scrape

SETTLED_BY = "CID_RMQ_SYS_DEAD_LETTERS"


async def settle(
    broker: Any, *offsets: int, resend: broker_pb2.Resend | None = None, group: str = "g"
) -> list[int]:
    response = await broker.offsets.SettleDeadLetters(
        broker_pb2.SettleDeadLettersRequest(group=group, offsets=offsets, resend=resend)
    )
    return codes(response.results)


async def letters(broker: Any) -> list[bytes]:
    return [bytes(each.body) for each in await pulled(broker, "%DLQ%g", group=SETTLED_BY)]


@pytest.fixture
async def dead(broker: RunningBroker) -> RunningBroker:
    """With dead letters 0, 1 and 2."""
    await broker.send_bodies("t", 0, b"0", b"1", b"2")
    assert codes(await send_back(broker, 0, 1, 2, level=-1)) == [common_pb2.OK] * 3
    return broker


async def test_a_letter_is_sent_again_once_and_listed_no_more(dead: RunningBroker) -> None:
    for _ in range(2):  # the first answer may have been lost
        assert await settle(dead, 1, resend=broker_pb2.Resend()) == [common_pb2.OK]
    assert await letters(dead) == [b"0", b"2"]
    *_, copy = await pulled(dead, group="other")
    assert (bytes(copy.body), copy.reconsume_times, copy.queue_offset) == (b"1", 0, 3)
    assert [(each.source, each.target) for each in resends_of(copy)] == [("%DLQ%g", "t")]
    assert [bytes(each.body) for each in await pulled(dead)] == [b"1"], "the group gets it again"


async def test_a_letter_can_go_elsewhere_and_a_circle_is_stopped(dead: RunningBroker) -> None:
    way = broker_pb2.Resend(topic="t", resends_max=2)
    offset = 0
    for _ in range(2):
        assert await settle(dead, offset, resend=way) == [common_pb2.OK]
        *_, copy = await pulled(dead)
        assert codes(await send_back(dead, copy.queue_offset, level=-1)) == [common_pb2.OK]
        offset = (await pulled(dead, "%DLQ%g", group=""))[-1].queue_offset
    assert await settle(dead, offset, resend=way) == [common_pb2.INVALID_ARGUMENT]
    assert await letters(dead) == [b"1", b"2", b"0"]


async def test_a_stray_is_not_resent_but_can_be_put_somewhere(dead: RunningBroker) -> None:
    """Somebody sent it straight to the dead letters: each resend would list it again."""
    dead.writes.append("%DLQ%g", 0, b"stray")
    assert await settle(dead, 3, resend=broker_pb2.Resend()) == [common_pb2.INVALID_ARGUMENT]
    assert await letters(dead) == [b"0", b"1", b"2", b"stray"]
    assert await settle(dead, 3, resend=broker_pb2.Resend(topic="t")) == [common_pb2.OK]


async def test_letters_are_dropped_and_a_restart_does_not_bring_them_back(
    start_broker: Any,
) -> None:
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"0", b"1", b"2")
    await send_back(broker, 0, 1, 2, level=-1)
    assert await settle(broker, 0, 2, 9) == [
        common_pb2.OK,
        common_pb2.OK,
        common_pb2.INVALID_ARGUMENT,
    ]
    assert await letters(broker) == [b"1"]
    await broker.stop()
    again = await start_broker()
    assert await letters(again) == [b"1"]


async def test_what_cannot_be_sent_stays(dead: RunningBroker) -> None:
    assert await settle(dead, 0, resend=broker_pb2.Resend(topic="u")) == [
        common_pb2.TOPIC_NOT_FOUND
    ]
    assert await settle(dead, 0, resend=broker_pb2.Resend(), group="nobody") == [
        common_pb2.TOPIC_NOT_FOUND
    ]
    for resend, group, code in (
        (broker_pb2.Resend(resends_max=17), "g", common_pb2.INVALID_ARGUMENT),
        (broker_pb2.Resend(), "n" * 120 + "x", common_pb2.ILLEGAL_NAME),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await settle(dead, 0, resend=resend, group=group)
        assert code_of(error_from_rpc(failure.value, "the broker")) == code
    assert await letters(dead) == [b"0", b"1", b"2"]


async def test_dead_letters_are_counted_by_group_and_topic(start_broker: StartBroker) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    broker = await start_broker(metrics=MetricsConfig(listen=metrics))
    await broker.send_bodies("t", 0, b"0", b"1", b"2")
    for offsets in ((0, 1, 2), (0,)):  # the last one is dead already
        await send_back(broker, *offsets, level=-1)
    scrape = await asyncio.to_thread(Scrape.of, metrics)
    dead = scrape.get("rocketmq_send_to_dlq_messages_total", consumer_group="g", topic="t")
    assert dead == 3


@pytest.mark.parametrize("topic", ["%DLQ%g", "%RETRY%g", "%RETRY%nobody"])
async def test_nobody_sends_straight_to_a_groups_own_topics(
    dead: RunningBroker, topic: str
) -> None:
    """What is there came from the group: nothing else could be resent to where it came from."""
    ack = await dead.send_bodies(topic, 0, b"stray")
    assert ack.code == common_pb2.NOT_WRITABLE_TOPIC
    assert "cannot send to it; send to the topic that the group subscribes to" in ack.message
    assert await letters(dead) == [b"0", b"1", b"2"]
    with pytest.raises(NotWritableTopic, match="belongs to a consumer group"):
        Message(topic, b"stray")
