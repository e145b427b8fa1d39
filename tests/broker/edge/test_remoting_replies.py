"""What a broker tells and asks remoting clients by itself, and what survives its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aerobee.broker.edge.remoting.feature import Remoting
from aerobee.remoting_core.command import Command
from aerobee.rocketmq_remoting.codes import Code
from aerobee.store.engine.tables.config_tables import TopicConfig
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.remoting_peer import Peer, bodies_of, object_of, peer_at, records_of
from tests.support.waiting import until

TOPICS = {"t": TopicConfig(name="t", read_queue_count=2, write_queue_count=2)}


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    return await start_broker(topics=TOPICS)


@pytest.fixture
async def peer(broker: RunningBroker) -> AsyncIterator[Peer]:
    async with peer_at(broker.port) as peer:
        yield peer


# ------------------------------------------------------------------------------------ replies


def reply(client_id: str) -> dict[str, Any]:
    properties = f"MSG_TYPE\x01reply\x02CORRELATION_ID\x01C7\x02REPLY_TO_CLIENT\x01{client_id}\x02"
    return {"a": "PG", "b": "aerobee_REPLY_TOPIC", "c": "TBW102", "d": 4, "e": 0, "f": 0,
            "g": 17, "h": 0, "i": properties}  # fmt: skip


async def test_a_reply_reaches_the_client_that_asked(broker: RunningBroker, peer: Peer) -> None:
    sent = await peer.send("t", b"?", properties="REPLY_TO_CLIENT\x01asker\x02")
    assert sent.code == 0
    (asked,) = records_of(await peer.pull("g", "t", sysFlag=4))
    assert asked.properties["CLUSTER"] == broker.config.cluster  # where to reply
    async with peer_at(broker.port, "asker") as asker:
        await asker.beat("", producers=("PG",))
        asker.answers[326] = lambda request: request.answer()
        answer = await peer.done(325, b"!", **reply("asker"))
        assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("0", "0")
        (push,) = asker.told
        assert (push.code, push.body) == (326, b"!")
        assert "CORRELATION_ID\x01C7\x02" in push.fields["properties"]
        assert {"bornHost", "storeHost", "storeTimestamp", "defaultTopic"} <= push.fields.keys()
        asker.answers[326] = lambda request: request.answer(1, remark="too late")
        assert (await peer.ask(325, b"!", **reply("asker"))).code == Code.SYSTEM_ERROR
    await until(lambda: broker.feature(Remoting).clients.producer_with_id("asker") is None)
    answer = await peer.ask(325, b"!", **reply("asker"))
    assert (answer.code, "not connected" in answer.remark) == (Code.SYSTEM_ERROR, True)


# ------------------------------------------------------------------------------------ locks


def queues(group: str, client_id: str, *ids: int) -> bytes:
    named = [{"brokerName": "broker-a", "topic": "t", "queueId": each} for each in ids]
    return json.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": named}).encode()


async def locked(peer: Peer, *ids: int) -> list[int]:
    answer = await peer.done(41, queues("g", peer.client_id, *ids))
    return sorted(each["queueId"] for each in object_of(answer)["lockOKMQSet"])


async def test_after_a_restart_a_lock_waits_for_its_last_holder(start_broker: StartBroker) -> None:
    broker = await start_broker(topics=TOPICS)
    async with peer_at(broker.port, "c1") as first, peer_at(broker.port, "c2") as second:
        for queue_id in (0, 1):
            await first.send("t", b"x", queue_id)
        await first.beat("g", "t")
        await second.beat("g", "t")
        for queue_id in (0, 1):
            assert (await first.commit("g", "t", 1, queue_id)).code == 0
        assert await locked(first, 0, 1) == [0, 1]
        await first.done(42, queues("g", "c1", 1))
        assert await locked(second, 0, 1) == [1]  # it has committed nothing
    await broker.stop()
    broker = await start_broker()
    async with peer_at(broker.port, "c1") as first, peer_at(broker.port, "c2") as second:
        assert await locked(second, 0) == []
        assert await locked(first, 0, 1) == [0]
        assert await locked(second, 1) == [1]
        await first.done(42, queues("g", "c1", 0))
        assert await locked(second, 0) == [0]


# ------------------------------------------------------------------------------------ dead letters


async def test_a_message_given_up_twice_is_one_dead_letter(start_broker: StartBroker) -> None:
    given_up: dict[str, Any] = {
        "topic": "%RETRY%g",
        "properties": "UNIQ_KEY\x01ID\x02RETRY_TOPIC\x01t\x02ORIGIN_MESSAGE_ID\x01ID\x02",
        "l": 3,
        "j": 3,
    }
    broker = await start_broker(topics=TOPICS)
    async with peer_at(broker.port) as peer:
        await peer.beat("g", "t")
        first, again = await asyncio.gather(
            *(peer.send(body=b"poison", **given_up) for _ in range(2))
        )
        assert (first.code, again.fields) == (0, first.fields)
        # The same id does not make it the same message.
        assert (await peer.send(body=b"another", **given_up)).fields["queueOffset"] == "1"
    await broker.stop()
    broker = await start_broker()
    async with peer_at(broker.port) as peer:
        await peer.beat("g", "t")
        assert (await peer.send(body=b"poison", **given_up)).fields == first.fields
        dead = await peer.pull("any", "%DLQ%g", sysFlag=4)
        assert bodies_of(dead) == [b"poison", b"another"]


# ------------------------------------------------------------------------------------ questions


async def test_what_a_consumer_says_of_itself_is_passed_on(
    broker: RunningBroker, peer: Peer
) -> None:
    table = '{"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"t"}:5}}'
    async with peer_at(broker.port, "c2") as member:
        await member.beat("g", "t")
        member.answers[307] = lambda request: request.answer(
            body=json.dumps(dict(request.fields)).encode()
        )
        member.answers[221] = lambda request: request.answer(body=table.encode())
        member.answers[309] = lambda request: request.answer(body=request.body)
        answer = await peer.done(307, consumerGroup="g", clientId="c2", jstackEnable=True)
        assert object_of(answer) == {"consumerGroup": "g", "clientId": "c2", "jstackEnable": "true"}
        answer = await peer.done(223, group="g", topic="t")
        assert answer.body.decode() == (
            '{"consumerTable":{"c2":{{"brokerName":"b","queueId":1,"topic":"t"}:5}}}'
        )
        sent = await peer.send("t", b"again")
        answer = await peer.done(
            309, consumerGroup="g", clientId="c2", msgId=sent.fields["msgId"], brokerName="b"
        )
        assert bodies_of(answer) == [b"again"]
    for code in (307, 309):
        answer = await peer.ask(code, consumerGroup="g", clientId="c9", msgId="0" * 32)
        assert answer.code == Code.CONSUMER_NOT_ONLINE
    assert (await peer.ask(223, group="g", topic="t")).code == Code.CONSUMER_NOT_ONLINE


async def test_a_client_that_goes_while_it_is_asked_is_not_online(
    broker: RunningBroker, peer: Peer
) -> None:
    async with peer_at(broker.port, "c2") as member:
        await member.beat("g", "t")
        asking = asyncio.ensure_future(peer.ask(307, consumerGroup="g", clientId="c2"))
        await until(lambda: any(each.code == 307 for each in member.told))
    assert (await asking).code == Code.CONSUMER_NOT_ONLINE


async def test_a_client_with_many_open_questions_is_asked_no_more(broker: RunningBroker) -> None:
    async with peer_at(broker.port, "c2") as member, peer_at(broker.port) as peer:
        await member.beat("g", "t")
        asked = [
            asyncio.ensure_future(peer.ask(307, consumerGroup="g", clientId="c2"))
            for _ in range(65)
        ]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result().code for each in done] == [Code.SYSTEM_BUSY]
        member.client.close()
        answers = await asyncio.gather(*asked)
    assert [each.code for each in answers].count(Code.CONSUMER_NOT_ONLINE) == 64


async def test_an_answer_to_nothing_asked_is_ignored(peer: Peer) -> None:
    peer.client.tell(Command(0, flag=1, opaque=99))
    assert (await peer.ask(38, consumerGroup="g")).code == Code.SYSTEM_ERROR
