"""What RocketMQ's tools change at one broker, and what they read there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aerobee.rocketmq_remoting.codes import Code
from aerobee.store.engine.tables.config_tables import TopicConfig
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.remoting_peer import Peer, bodies_of, object_of, peer_at


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    topics = (TopicConfig(name=name, read_queue_count=2, write_queue_count=2) for name in "tu")
    return await start_broker(topics={each.name: each for each in topics})


@pytest.fixture
async def peer(broker: RunningBroker) -> AsyncIterator[Peer]:
    async with peer_at(broker.port) as peer:
        yield peer


def group(**more: Any) -> bytes:
    return json.dumps({"groupName": "g", "retryMaxTimes": 16, **more}).encode()


async def test_a_group_is_configured_and_deleted(peer: Peer) -> None:
    growing = {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 10, "max": 1_000, "multiplier": 2},
    }
    await peer.done(200, group(retryMaxTimes=3, groupRetryPolicy=growing))
    found = object_of(await peer.done(352, group="g"))
    assert (found["retryMaxTimes"], found["groupRetryPolicy"]) == (3, growing)
    assert found == object_of(await peer.done(201))["subscriptionGroupTable"]["g"]
    # Tools repeat all settings; what is as it was stays unset.
    await peer.done(200, group(groupName="h", groupRetryPolicy={"type": "CUSTOMIZED"}))
    other = object_of(await peer.done(352, group="h"))
    assert (other["retryMaxTimes"], other["attributes"]) == (16, {})
    for wrong in (
        group(consumeEnable=False),
        group(retryMaxTimes=-1),
        group(groupRetryPolicy={"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [5]}}),
        group(groupRetryPolicy={"type": "EXPONENTIAL", "exponentialRetryPolicy": {"max": 5}}),
        b"{}",
    ):
        answer = await peer.ask(200, wrong)
        assert (answer.code, bool(answer.remark)) == (Code.INVALID_PARAMETER, True)
    assert (await peer.ask(207, groupName="g")).code == Code.INVALID_PARAMETER  # without offsets
    assert (await peer.ask(215, topic="%RETRY%g")).code == Code.INVALID_PARAMETER
    await peer.done(207, groupName="g", cleanOffset=True)
    await peer.done(215, topic="%RETRY%g")
    assert (await peer.ask(352, group="g")).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_group_with_members_is_not_deleted(peer: Peer) -> None:
    await peer.beat("g", "t")
    answer = await peer.ask(207, groupName="g", cleanOffset=True)
    assert (answer.code, "'c1'" in answer.remark) == (Code.SYSTEM_ERROR, True)


async def test_offsets_are_set_by_time_by_queue_and_from_another_group(peer: Peer) -> None:
    for _ in range(3):
        await peer.send("t", b"x")
    answer = await peer.done(222, group="g", topic="t", timestamp=-1, isForce=True)
    assert b'"queueId":0,"topic":"t"}:3' in answer.body
    assert await peer.offset("g", "t") == 3
    await peer.done(222, group="g", topic="t", timestamp=0, isForce=True)
    assert await peer.offset("g", "t") == 0
    await peer.done(222, group="g", topic="t", timestamp=-1, isForce=False)
    assert await peer.offset("g", "t") == 0  # not forward without force
    await peer.done(222, group="g", topic="t", timestamp=0, queueId=0, offset=2)
    assert await peer.offset("g", "t") == 2
    assert (await peer.ask(222, group="g", topic="t", timestamp=0, queueId=0, offset=9)).code == 29
    await peer.done(314, srcGroup="g", destGroup="h", topic="t", offline=True)
    assert await peer.offset("h", "t") == 2
    assert (await peer.ask(222, group="g", topic="no", timestamp=0)).code == Code.TOPIC_NOT_EXIST


async def test_tools_see_who_is_connected(broker: RunningBroker, peer: Peer) -> None:
    await peer.beat("g", "t", tags="a || b", producers=("PG",))
    found = object_of(await peer.done(203, consumerGroup="g"))
    (client,) = found["connectionSet"]
    assert (client["clientId"], client["language"]) == ("c1", "PYTHON")
    assert client["clientAddr"].startswith("127.0.0.1:")
    assert (found["consumeType"], found["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    wanted = found["subscriptionTable"]["t"]
    assert (wanted["tagsSet"], wanted["codeSet"]) == (["a", "b"], [97, 98])
    assert object_of(await peer.done(204, producerGroup="PG"))["connectionSet"] == [client]
    (producer,) = object_of(await peer.done(328))["data"]["PG"]
    assert (producer["clientId"], producer["remoteIP"]) == ("c1", client["clientAddr"])
    assert object_of(await peer.done(300, topic="t")) == {"groupList": ["g"]}
    assert object_of(await peer.done(343, group="g")) == {"topicList": ["t"]}
    told = object_of(await peer.done(345, group="g", topic="t"))
    assert told["subscriptionData"]["subString"] == "a || b"
    await peer.done(35, clientID="c1", producerGroup="PG", consumerGroup="g")
    assert (await peer.ask(203, consumerGroup="g")).code == Code.CONSUMER_NOT_ONLINE
    assert (await peer.ask(204, producerGroup="PG")).code == Code.SYSTEM_ERROR
    assert object_of(await peer.done(328)) == {"data": {}}


async def test_tools_see_topics_settings_and_counts(broker: RunningBroker, peer: Peer) -> None:
    await peer.send("t", b"x", 1)
    assert bodies_of(await peer.pull("g", "t", 0, 1, sysFlag=4)) == [b"x"]
    topics = object_of(await peer.done(21))["topicConfigTable"]
    assert {"t", "u"} <= topics.keys()
    assert "SCHEDULE_TOPIC_XXXX" not in topics
    assert topics["t"]["writeQueueNums"] == 2
    settings = (await peer.done(26)).body.decode().splitlines()
    assert f"brokerName={broker.config.broker_name}" in settings
    assert "brokerRole=ASYNC_MASTER" in settings
    for name, key in (("TOPIC_PUT_NUMS", "t"), ("GROUP_GET_NUMS", "t@g"), ("BROKER_PUT_NUMS", "")):
        counted = object_of(await peer.done(315, statsName=name, statsKey=key or "c"))
        assert [counted[span]["sum"] for span in ("statsMinute", "statsHour", "statsDay")] == [
            1
        ] * 3
    assert (await peer.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="no")).code == 1
    table = object_of(await peer.done(28))["table"]
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("1", "1")
    assert (await peer.commit("g", "t", 1, 1)).code == 0
    spans = object_of(await peer.done(303, topic="t", group="g"))["consumeTimeSpanSet"]
    (span,) = [each for each in spans if each["messageQueue"]["queueId"] == 1]
    assert span["minTimeStamp"] == span["maxTimeStamp"] == span["consumeTimeStamp"] > 0
    stored = await peer.done(32, topic="t", queueId=1)
    assert int(stored.fields["timestamp"]) > 0
    assert (await peer.done(32, topic="t", queueId=0)).fields == {"timestamp": "-1"}


@pytest.mark.parametrize(
    "fields",
    [
        {"writeQueueNums": 4, "readQueueNums": 8},
        {"writeQueueNums": 0},
        {"writeQueueNums": 1, "attributes": "x=1"},
        {"writeQueueNums": 1},
        {},
    ],
    ids=str,
)
async def test_a_topic_that_cannot_be_changed_is_refused_with_a_reason(
    peer: Peer, fields: dict[str, Any]
) -> None:
    """Without a nameserver none can."""
    answer = await peer.ask(17, topic="t", **fields)
    assert (answer.code, bool(answer.remark)) == (Code.INVALID_PARAMETER, True)


# What Apache's tools ask brokers for, but for questions to clients and to other servers.
OF_TOOLS = (12, 17, 18, 21, 25, 26, 28, 32, 33, 50, 51, 200, 201, 202, 203, 204, 207, 208, 215,
            222, 223, 300, 303, 305, 307, 309, 314, 315, 317, 321, 323, 328, 343, 345, 351, 352,
            *range(3001, 3011))  # fmt: skip


@pytest.mark.parametrize("code", OF_TOOLS)
async def test_each_request_of_tools_is_served_or_answered_with_what_to_use(
    peer: Peer, code: int
) -> None:
    answer = await peer.ask(code)
    if answer.code == Code.REQUEST_CODE_NOT_SUPPORTED:
        _, said, instead = answer.remark.partition("; use ")
        assert said
        assert not instead.startswith("gRPC"), "says nothing of what the tool wanted"
