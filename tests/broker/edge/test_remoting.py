"""Remoting at one broker, command by command: answers, codes, and what is stored."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from aerobee.broker.edge.remoting.feature import Remoting
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.rocketmq_remoting.codes import Code
from aerobee.rocketmq_remoting.config import RemotingConfig
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.dead_letter_fields import read_dead_letter
from aerobee.store.format.message_id import parse_offset_message_id
from aerobee.store.format.record import SYSFLAG_COMPRESSED
from aerobee.v1 import broker_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.remoting_peer import Peer, bodies_of, object_of, peer_at, records_of
from tests.support.v2_calls import V2
from tests.support.waiting import until


def topic(name: str, **more: Any) -> TopicConfig:
    return TopicConfig(name=name, read_queue_count=2, write_queue_count=2, **more)


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    topics = (topic("t"), topic("other"), topic("closed", perm=4), topic("hidden", perm=2))
    return await start_broker(topics={each.name: each for each in topics})


@pytest.fixture
async def peer(broker: RunningBroker) -> AsyncIterator[Peer]:
    async with peer_at(broker.port) as peer:
        yield peer


# ------------------------------------------------------------------------------------ sending


async def test_a_message_comes_back_as_it_was_sent(broker: RunningBroker, peer: Peer) -> None:
    answer = await peer.send(
        "t", b"hello", 1, "KEYS\x01k1 k2\x02TAGS\x01a\x02mine\x01x\x02", flag=9, sysFlag=1
    )
    assert answer.code == 0
    fields = answer.fields
    assert (fields["queueId"], fields["queueOffset"]) == ("1", "0")
    (record,) = records_of(await peer.pull("g", "t", 0, 1, sysFlag=4, subscription="*"))
    assert (record.body, record.flag, record.born_timestamp_ms) == (b"hello", 9, 17)
    assert record.sys_flag & SYSFLAG_COMPRESSED
    assert record.properties == {
        "KEYS": "k1 k2",
        "TAGS": "a",
        "mine": "x",
        "MSG_REGION": fields["MSG_REGION"],
        "UNIQ_KEY": fields["transactionId"],
    }
    _, position = parse_offset_message_id(fields["msgId"])
    assert position == record.physical_offset
    viewed = await peer.done(33, offset=position)
    assert viewed.body == bytes(record.buffer[record.start : record.start + record.size])


async def test_a_batch_has_an_id_for_each_message(peer: Peer) -> None:
    def one(body: bytes) -> bytes:
        return struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0"

    fields = {"a": "PG", "b": "t", "e": 0, "f": 0, "g": 17, "h": 0, "m": True}
    answer = await peer.done(320, one(b"1") + one(b"22") + one(b"333"), **fields)
    records = records_of(await peer.pull("g", "t", sysFlag=4, subscription="*"))
    assert [record.body for record in records] == [b"1", b"22", b"333"]
    positions = [parse_offset_message_id(each)[1] for each in answer.fields["msgId"].split(",")]
    assert positions == [record.physical_offset for record in records]


async def test_long_names_are_as_good_as_short_ones(peer: Peer) -> None:
    fields = {"producerGroup": "PG", "topic": "t", "queueId": 0, "sysFlag": 0,
              "bornTimestamp": 17, "flag": 0}  # fmt: skip
    assert (await peer.done(10, b"x", **fields)).fields["queueId"] == "0"


@pytest.mark.parametrize("below", [-1, -100])
async def test_a_broker_chooses_the_queue_of_a_number_below_zero(peer: Peer, below: int) -> None:
    assert {(await peer.send("t", b"x", below)).fields["queueId"] for _ in range(2)} == {"0", "1"}


async def test_a_message_that_was_received_can_be_sent_on(peer: Peer) -> None:
    """Clients send what brokers and readers have added as well."""
    added = {"POP_CK": "0 1 2", "1ST_POP_TIME": "17", "MIN_OFFSET": "0", "CONSUME_START_TIME": "18",
             "TIMER_OUT_MS": "19", "RETRY_TOPIC": "u", "MSG_REGION": "DefaultRegion"}  # fmt: skip
    properties = "".join(f"{name}\x01{value}\x02" for name, value in added.items())
    answer = await peer.send("t", b"x", properties=properties + "mine\x01x\x02")
    (record,) = records_of(await peer.pull("g", "t", sysFlag=4, subscription="*"))
    assert record.properties == {
        "MSG_REGION": "DefaultRegion",
        "UNIQ_KEY": answer.fields["transactionId"],
        "mine": "x",
    }


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "absent"}, Code.TOPIC_NOT_EXIST),
        ({"topic": "closed"}, Code.NO_PERMISSION),
        ({"topic": "%RETRY%g"}, Code.TOPIC_NOT_EXIST),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.NO_PERMISSION),
        ({"queue_id": 7}, Code.SYSTEM_ERROR),
        ({"properties": "DELAY\x01soon\x02"}, Code.MESSAGE_ILLEGAL),
        ({"body": bytes((4 << 20) + 1)}, Code.MESSAGE_ILLEGAL),
        ({"sysFlag": 0x80}, Code.MESSAGE_ILLEGAL),
        ({"sysFlag": "x"}, Code.INVALID_PARAMETER),
    ],
    ids=str,
)
async def test_what_cannot_be_stored_is_refused_with_a_code_that_clients_know(
    peer: Peer, change: dict[str, Any], code: Code
) -> None:
    if change.get("topic") == "%RETRY%g":
        code = Code.NO_PERMISSION
    answer = await peer.send(**{"topic": "t", "body": b"x", **change})
    assert (answer.code, bool(answer.remark)) == (code, True)


async def test_an_unknown_request_is_answered_with_what_to_use_instead(peer: Peer) -> None:
    answer = await peer.ask(99_999)
    assert answer.code == Code.REQUEST_CODE_NOT_SUPPORTED
    assert "gRPC" in answer.remark
    peeked = await peer.ask(200052, consumerGroup="g", topic="t", queueId=0, maxMsgNums=1)
    assert peeked.code == Code.REQUEST_CODE_NOT_SUPPORTED
    assert "a pull" in peeked.remark


async def test_a_delayed_message_comes_later_and_can_be_recalled(peer: Peer) -> None:
    kept = await peer.send("t", b"kept", properties="TIMER_DELAY_MS\x01200\x02")
    recalled = await peer.send("t", b"recalled", properties="TIMER_DELAY_MS\x01200\x02")
    handle = recalled.fields["recallHandle"]
    assert handle != kept.fields["recallHandle"]
    refused = await peer.ask(370, topic="other", recallHandle=handle)
    assert refused.code == Code.MESSAGE_ILLEGAL
    answer = await peer.done(370, topic="t", recallHandle=handle)
    assert answer.fields["msgId"] == recalled.fields["transactionId"]
    found = await peer.pull("g", "t", wait_ms=10_000, sysFlag=6, subscription="*")
    assert bodies_of(found) == [b"kept"]


# ------------------------------------------------------------------------------------ pulling


async def test_a_pull_waits_for_a_message(peer: Peer) -> None:
    await peer.beat("g", "t")
    waiting = asyncio.ensure_future(peer.pull("g", "t", wait_ms=10_000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await peer.send("t", b"now")
    answer = await waiting
    assert bodies_of(answer) == [b"now"]
    assert answer.fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "1",
        "minOffset": "0",
        "maxOffset": "1",
    }


async def test_a_pull_that_waits_in_vain_is_answered_in_time(peer: Peer) -> None:
    await peer.beat("g", "t")
    answer = await peer.pull("g", "t", wait_ms=100)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_NOT_FOUND, "0")
    answer = await peer.pull("g", "t")
    assert answer.code == Code.PULL_NOT_FOUND


async def test_pulls_of_a_client_that_has_gone_leave_nothing(broker: RunningBroker) -> None:
    pulls = broker.feature(Remoting).pulls
    async with peer_at(broker.port) as leaving:
        await leaving.beat("g", "t")
        waiting = asyncio.ensure_future(leaving.pull("g", "t", wait_ms=30_000))
        await until(lambda: pulls.waiting == 1)
    with pytest.raises(ConnectionError):
        await waiting
    await until(lambda: pulls.waiting == 0)


async def test_tags_are_filtered_and_what_is_passed_over_counts_as_read(peer: Peer) -> None:
    for tag in "abcab":
        await peer.send("t", tag.encode(), properties=f"TAGS\x01{tag}\x02")
    await peer.beat("g", "t", tags="a || c")
    assert bodies_of(await peer.pull("g", "t")) == [b"a", b"c", b"a"]
    await peer.beat("g", "t", tags="nothing", version=2)
    answer = await peer.pull("g", "t", wait_ms=100)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_NOT_FOUND, "5")


async def test_a_reader_soon_knows_that_it_has_passed_what_it_does_not_want(peer: Peer) -> None:
    for tag in "bb":
        await peer.send("t", tag.encode(), properties=f"TAGS\x01{tag}\x02")
    await peer.beat("g", "t", tags="a")
    at_once = await peer.pull("g", "t", wait_ms=20_000)
    assert at_once.fields["nextBeginOffset"] == "2"
    waiting = asyncio.ensure_future(peer.pull("g", "t", 2, wait_ms=20_000))
    await asyncio.sleep(0.05)  # it waits
    for tag in "bb":
        await peer.send("t", tag.encode(), properties=f"TAGS\x01{tag}\x02")
    answer = await asyncio.wait_for(waiting, 10)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_NOT_FOUND, "4")


async def test_sql_is_judged_at_the_broker(peer: Peer) -> None:
    for price in (5, 50):
        await peer.send("t", b"%d" % price, properties=f"price\x01{price}\x02")
    how: dict[str, Any] = {"sysFlag": 4, "subscription": "price > 10", "expressionType": "SQL92"}
    assert bodies_of(await peer.pull("g", "t", **how)) == [b"50"]
    answer = await peer.pull("g", "t", **{**how, "subscription": "price >"})
    assert answer.code == Code.SUBSCRIPTION_PARSE_FAILED


async def test_an_offset_outside_the_queue_is_corrected(peer: Peer) -> None:
    await peer.send("t", b"one")
    answer = await peer.pull("g", "t", 99, sysFlag=4)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "1")


async def test_without_a_subscription_nothing_is_read(peer: Peer) -> None:
    assert (await peer.pull("g", "t")).code == Code.SUBSCRIPTION_NOT_EXIST
    await peer.beat("g", "t", version=3)
    assert (await peer.pull("g", "t", subVersion=4)).code == Code.SUBSCRIPTION_NOT_LATEST
    assert (await peer.pull("g", "t", subVersion=3)).code == Code.PULL_NOT_FOUND
    assert (await peer.pull("g", "hidden", sysFlag=4)).code == Code.NO_PERMISSION
    assert (await peer.pull("g", "absent", sysFlag=4)).code == Code.TOPIC_NOT_EXIST


# ------------------------------------------------------------------------------------ groups


async def test_members_are_told_at_once_when_one_comes_or_goes(broker: RunningBroker) -> None:
    async with peer_at(broker.port, "c1") as first:
        await first.beat("g", "t")
        async with peer_at(broker.port, "c2") as second:
            await second.beat("g", "t")
            answer = await second.done(38, consumerGroup="g")
            assert object_of(answer) == {"consumerIdList": ["c1", "c2"]}
            first.told.clear()
            second.told.clear()
            await second.beat("g", "t")  # nothing new
            await second.beat("g", "t", "other")
            await until(lambda: len(first.told) == len(second.told) == 1)
            assert (first.told[0].code, first.told[0].fields) == (40, {"consumerGroup": "g"})
            first.told.clear()
        await until(lambda: len(first.told) == 1)
        assert object_of(await first.done(38, consumerGroup="g")) == {"consumerIdList": ["c1"]}
        await first.done(35, clientID="c1", consumerGroup="g")
        assert (await first.ask(38, consumerGroup="g")).code == Code.SYSTEM_ERROR


async def test_broadcasting_members_with_one_client_id_do_not_replace_each_other(
    broker: RunningBroker,
) -> None:
    """As all of one host have it: each reads by its own subscription."""
    async with peer_at(broker.port, "c1") as first, peer_at(broker.port, "c1") as second:
        for tag in "ab":
            await first.send("t", tag.encode(), properties=f"TAGS\x01{tag}\x02")
        await first.beat("g", "t", tags="a", version=7, broadcasting=True)
        await second.beat("g", "t", tags="b", version=8, broadcasting=True)
        for _ in range(2):
            assert bodies_of(await first.pull("g", "t", subVersion=7)) == [b"a"]
            assert bodies_of(await second.pull("g", "t", subVersion=8)) == [b"b"]
            await first.beat("g", "t", tags="a", version=7, broadcasting=True)
        assert not broker.feature(Remoting).members.has(GroupQueue("g", "t", 0))
        assert object_of(await first.done(38, consumerGroup="g")) == {"consumerIdList": ["c1"]}
        found = object_of(await first.done(203, consumerGroup="g"))
        assert len(found["connectionSet"]) == 2
        await second.done(35, clientID="c1", consumerGroup="g")
        assert bodies_of(await first.pull("g", "t", subVersion=7)) == [b"a"]


async def test_a_subscription_never_goes_back_to_an_older_version(broker: RunningBroker) -> None:
    async with peer_at(broker.port) as peer, peer_at(broker.port, "c2") as silent:
        await peer.beat("g", "t", version=8)
        await peer.beat("g", "t", version=7)  # overtaken on its way
        assert (await peer.pull("g", "t", subVersion=8)).code == Code.PULL_NOT_FOUND
        async with peer_at(broker.port, "c3") as older:
            await older.beat("g", "t", version=1)
            # Of a connection without a heart-beat, the newest one of its group counts.
            assert (await silent.pull("g", "t", subVersion=8)).code == Code.PULL_NOT_FOUND
            answer = await silent.pull("g", "t", subVersion=9)
            assert answer.code == Code.SUBSCRIPTION_NOT_LATEST


async def test_offsets_are_committed_and_a_lower_one_changes_nothing(peer: Peer) -> None:
    for _ in range(3):
        await peer.send("t", b"x")
    assert await peer.offset("g", "t") is None
    assert (await peer.commit("g", "t", 2)).code == 0
    assert await peer.offset("g", "t") == 2
    assert (await peer.commit("g", "t", 1)).code == 0
    assert await peer.offset("g", "t") == 2
    assert (await peer.commit("g", "t", 4)).code == Code.INVALID_PARAMETER
    await peer.beat("g", "t")
    await peer.pull("g", "t", 3, sysFlag=1, commitOffset=3)
    assert await peer.offset("g", "t") == 3


async def test_pulls_of_many_queues_commit_at_the_same_time(peer: Peer) -> None:
    for number in range(4):
        await peer.send("t", b"x", number % 2)
    await peer.beat("g", "t")
    for offset in (1, 2):
        pulls = [
            peer.pull("g", "t", offset, queue_id, sysFlag=1, commitOffset=offset)
            for queue_id in (0, 1)
        ]
        assert {answer.code for answer in await asyncio.gather(*pulls)} <= {
            Code.SUCCESS,
            Code.PULL_NOT_FOUND,
        }
    for queue_id in (0, 1):
        await peer.commit("g", "t", 1, queue_id)  # waits for what was committed before
    assert [await peer.offset("g", "t", queue_id) for queue_id in (0, 1)] == [2, 2]


async def test_a_new_group_reads_a_young_log_from_its_beginning_unless_it_asks_not_to(
    peer: Peer,
) -> None:
    assert (await peer.done(32, topic="t", queueId=0)).fields == {"timestamp": "-1"}
    await peer.send("t", b"x")
    answer = await peer.done(14, consumerGroup="g", topic="t", queueId=0)
    assert answer.fields == {"offset": "0"}
    assert await peer.offset("g", "t") is None
    assert (await peer.done(30, topic="t", queueId=0)).fields == {"offset": "1"}
    assert (await peer.done(31, topic="t", queueId=0)).fields == {"offset": "0"}
    stored_ms = int((await peer.done(32, topic="t", queueId=0)).fields["timestamp"])
    assert abs(time.time() * 1_000 - stored_ms) < 60_000
    later = await peer.done(29, topic="t", queueId=0, timestamp=1 << 50)
    assert later.fields == {"offset": "1"}
    assert (await peer.done(29, topic="t", queueId=0, timestamp=0)).fields == {"offset": "0"}


async def test_a_group_with_members_is_not_deleted_unless_an_operator_insists(
    broker: RunningBroker, peer: Peer
) -> None:
    await peer.beat("g", "t")
    await peer.commit("g", "t", 0)
    deletion = broker_pb2.DeleteGroupRequest(group="g")
    with pytest.raises(grpc.aio.AioRpcError, match="'c1'; 1 in all"):
        await broker.groups.DeleteGroup(deletion)
    assert await peer.offset("g", "t") == 0
    deletion.force = True
    await broker.groups.DeleteGroup(deletion)
    assert await peer.offset("g", "t") is None


async def test_a_lock_belongs_to_one_client_until_it_is_given_back(broker: RunningBroker) -> None:
    def queues(client_id: str, *ids: int) -> bytes:
        named = [{"brokerName": "broker-a", "topic": "t", "queueId": each} for each in ids]
        return json.dumps({"clientId": client_id, "consumerGroup": "g", "mqSet": named}).encode()

    async def locked(peer: Peer, *ids: int) -> list[int]:
        found = object_of(await peer.done(41, queues(peer.client_id, *ids)))["lockOKMQSet"]
        return sorted(each["queueId"] for each in found)

    async with peer_at(broker.port, "c1") as first, peer_at(broker.port, "c2") as second:
        assert await locked(first, 0) == [0]
        assert await locked(second, 0, 1) == [1]
        assert await locked(first, 0, 1) == [0]
        await second.done(42, queues("c2", 0))
        assert await locked(second, 0) == []
        await first.done(42, queues("c1", 0))
        assert await locked(second, 0) == [0]


async def test_a_reset_by_an_operator_wins_over_commits_from_before_it(
    broker: RunningBroker, peer: Peer
) -> None:
    for _ in range(5):
        await peer.send("t", b"x")
    await peer.beat("g", "t")
    await peer.commit("g", "t", 4)
    waiting = asyncio.ensure_future(peer.pull("g", "t", 5, wait_ms=30_000))
    await until(lambda: broker.feature(Remoting).pulls.waiting == 1)
    queue = broker_pb2.QueueOffset(topic="t", queue_id=0, offset=1)
    await broker.offsets.ResetOffsets(broker_pb2.ResetOffsetsRequest(group="g", offsets=[queue]))
    answer = await waiting
    assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "1")
    await peer.commit("g", "t", 5)
    assert await peer.offset("g", "t") == 1
    answer = await peer.pull("g", "t", 5)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "1")
    peer.told.clear()
    await peer.commit("g", "t", 1)
    await until(lambda: [each.code for each in peer.told] == [40])  # it has given the queue up
    await peer.commit("g", "t", 3)
    assert await peer.offset("g", "t") == 3


async def test_broadcasting_members_are_told_of_a_reset(broker: RunningBroker) -> None:
    """In the body that each client reads; clustered ones learn it by pulling."""
    queue = '{"brokerName":"broker-a","queueId":0,"topic":"t"}'
    async with (
        peer_at(broker.port) as java,
        peer_at(broker.port) as cpp,
        peer_at(broker.port, "c2") as clustered,
    ):
        await java.send("t", b"x")
        await java.beat("g", "t", broadcasting=True)
        cpp.language = "CPP"
        await cpp.beat("g", "t", broadcasting=True)
        await clustered.beat("g", "t")
        await until(lambda: len(clustered.told) == 1)
        for peer in (java, cpp, clustered):
            peer.told.clear()
        offset = broker_pb2.QueueOffset(topic="t", queue_id=0, offset=1)
        request = broker_pb2.ResetOffsetsRequest(group="g", offsets=[offset])
        await broker.offsets.ResetOffsets(request)
        await until(lambda: len(java.told) == len(cpp.told) == 1)
        for push in (*java.told, *cpp.told):
            assert (push.code, push.fields["group"], push.fields["topic"]) == (220, "g", "t")
            assert {"timestamp", "isForce"} <= push.fields.keys()
        assert java.told[0].body.decode() == f'{{"offsetTable":{{{queue}:1}}}}'
        assert cpp.told[0].body.decode() == f'{{"offsetTable":[{queue[:-1]},"offset":1}}]}}'
        assert clustered.told == []


async def test_a_reader_that_has_pulled_everything_is_told_of_a_reset_to_the_end(
    broker: RunningBroker, peer: Peer
) -> None:
    for _ in range(3):
        await peer.send("t", b"x")
    await peer.beat("g", "t")
    queue = broker_pb2.QueueOffset(topic="t", queue_id=0, offset=3)
    await broker.offsets.ResetOffsets(broker_pb2.ResetOffsetsRequest(group="g", offsets=[queue]))
    assert (await peer.commit("g", "t", 2)).code == 0
    answer = await peer.pull("g", "t", 3)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "3")
    assert (await peer.pull("g", "t", 3)).code == Code.PULL_NOT_FOUND
    await peer.send("t", b"x")
    assert (await peer.commit("g", "t", 4)).code == 0
    assert await peer.offset("g", "t") == 4


# ------------------------------------------------------------------------------------ retries


async def test_a_message_that_is_sent_back_comes_again_and_then_is_a_dead_letter(
    peer: Peer,
) -> None:
    await peer.beat("g", "t", "%RETRY%g")
    await peer.send("t", b"failing", properties="TAGS\x01a\x02")
    (record,) = records_of(await peer.pull("g", "t"))
    back: dict[str, Any] = {"group": "g", "originTopic": "t", "unitMode": False}
    for _ in range(2):  # the second one is a repetition
        await peer.done(36, offset=record.physical_offset, delayLevel=1, **back)
    (again,) = records_of(await peer.pull("g", "%RETRY%g", wait_ms=10_000))
    assert (again.body, again.reconsume_times, again.tag) == (b"failing", 1, "a")
    assert again.properties["RETRY_TOPIC"] == "t"
    assert again.properties["ORIGIN_MESSAGE_ID"]
    await peer.done(36, offset=again.physical_offset, delayLevel=-1, **back)
    (dead,) = records_of(await peer.pull("dead", "%DLQ%g", sysFlag=4))
    assert dead.body == b"failing"
    # It is finished where it was, although nothing was committed there.
    assert (await peer.pull("g", "t")).code == Code.PULL_NOT_FOUND


async def test_only_a_member_makes_dead_letters_of_what_it_gave_up(
    broker: RunningBroker, peer: Peer
) -> None:
    given_up: dict[str, Any] = {
        "topic": "%RETRY%g",
        "body": b"poison",
        "properties": "UNIQ_KEY\x01ID\x02RETRY_TOPIC\x01t\x02ORIGIN_MESSAGE_ID\x01ID\x02"
        "DELAY\x016\x02MIN_OFFSET\x010\x02",
        "l": 3,
    }
    assert (await peer.send(**given_up, j=3)).code == Code.NO_PERMISSION
    await peer.beat("g", "t")
    assert (await peer.send(**given_up, j=2)).code == Code.NO_PERMISSION
    assert (await peer.send(**given_up, j=3)).code == 0
    (dead,) = records_of(await peer.pull("any", "%DLQ%g", sysFlag=4))
    letter = read_dead_letter(dead)
    assert (dead.body, letter.origin.topic) == (b"poison", "t")
    assert (letter.death.group, letter.death.attempts, letter.death.member) == ("g", 4, "c1")
    assert {"DELAY", "MIN_OFFSET"}.isdisjoint(dead.properties)


async def test_nothing_is_sent_back_from_where_no_message_begins(peer: Peer) -> None:
    answer = await peer.ask(36, offset=5, group="g", delayLevel=0)
    assert answer.code == Code.QUERY_NOT_FOUND


# ------------------------------------------------------------------------------------ transactions


async def half(peer: Peer, body: bytes) -> dict[str, Any]:
    """What its producer says at its end."""
    properties = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    answer = await peer.send("t", body, properties=properties, sysFlag=4)
    assert answer.code == 0, answer
    _, position = parse_offset_message_id(answer.fields["msgId"])
    return {
        "producerGroup": "PG",
        "tranStateTableOffset": answer.fields["queueOffset"],
        "commitLogOffset": position,
        "msgId": answer.fields["transactionId"],
    }


async def test_a_transaction_shows_its_message_if_it_is_committed(peer: Peer) -> None:
    committed, rolled_back = await half(peer, b"yes"), await half(peer, b"no")
    await half(peer, b"open")
    assert (await peer.pull("g", "t", sysFlag=4)).code == Code.PULL_NOT_FOUND
    await peer.done(37, **rolled_back, commitOrRollback=12)
    await peer.done(37, **committed, commitOrRollback=8)
    (record,) = records_of(await peer.pull("g", "t", wait_ms=10_000, sysFlag=6))
    assert record.body == b"yes"
    assert record.sys_flag & 0xC == 8
    assert record.prepared_transaction_offset == committed["commitLogOffset"]
    assert {"TRAN_MSG", "REAL_TOPIC", "REAL_QID"}.isdisjoint(record.properties)


@pytest.mark.parametrize(
    "wrong", [{"producerGroup": "another"}, {"tranStateTableOffset": 7}], ids=str
)
async def test_only_who_knows_the_half_message_ends_its_transaction(
    peer: Peer, wrong: dict[str, Any]
) -> None:
    said = await half(peer, b"half")
    answer = await peer.ask(37, **{**said, **wrong}, commitOrRollback=8)
    assert answer.code == Code.INVALID_PARAMETER
    await peer.done(37, **said, commitOrRollback=0)
    assert (await peer.pull("g", "t", sysFlag=4)).code == Code.PULL_NOT_FOUND


# ------------------------------------------------------------------------------------ owners


async def test_a_group_moves_to_pop_and_back_without_losing_its_place(
    broker: RunningBroker, peer: Peer
) -> None:
    """While clients of one kind have a queue, those of the other are refused."""
    official = V2(broker.channel)
    for number in range(4):
        await peer.send("t", b"%d" % number)
    await peer.beat("g", "t")
    assert len(bodies_of(await peer.pull("g", "t"))) == 4
    await peer.commit("g", "t", 2)
    assert (await official.receive("t", "g", wait_s=0.1)).code == v2.PRECONDITION_FAILED

    await peer.done(35, clientID=peer.client_id, consumerGroup="g")
    taken = await official.receive("t", "g", count=1)
    assert [message.body for message in taken.messages] == [b"2"]

    await peer.beat("g", "t")
    answer = await peer.pull("g", "t", 2)
    assert (answer.code, "POP" in answer.remark) == (Code.SYSTEM_BUSY, True)
    assert (await peer.commit("g", "t", 4)).code == Code.SYSTEM_BUSY
    assert await official.acknowledge("g", *taken.messages) == [v2.OK]
    leaving = service_pb2.NotifyClientTerminationRequest(group=v2.Resource(name="g"))
    assert (await official.call("NotifyClientTermination", leaving)).status.code == v2.OK

    async with asyncio.timeout(20):
        while (answer := await peer.pull("g", "t", 2)).code == Code.SYSTEM_BUSY:
            await asyncio.sleep(0.05)
    assert await peer.offset("g", "t") == 3
    assert bodies_of(await peer.pull("g", "t", 3)) == [b"3"]
    assert (await peer.commit("g", "t", 4)).code == 0


async def test_broadcasting_members_read_whoever_has_the_queue(
    broker: RunningBroker, peer: Peer
) -> None:
    official = V2(broker.channel)
    await peer.send("t", b"x")
    await peer.beat("g", "t", broadcasting=True)
    assert len((await official.receive("t", "g")).messages) == 1
    assert bodies_of(await peer.pull("g", "t")) == [b"x"]


async def test_remoting_is_off_if_an_operator_says_so(start_broker: StartBroker) -> None:
    broker = await start_broker(remoting=RemotingConfig(enabled=False))
    async with peer_at(broker.port) as peer:
        with pytest.raises(ConnectionError):
            await peer.ask(38, consumerGroup="g")


async def test_operators_see_remoting_members(broker: RunningBroker) -> None:
    async with peer_at(broker.port) as peer:
        await peer.beat("g", "t", tags="a || b")
        listed = await broker.groups.ListGroups(broker_pb2.ListGroupsRequest())
        assert list(listed.groups) == ["g"]
        request = broker_pb2.DescribeGroupRequest(group="g")
        (member,) = (await broker.groups.DescribeGroup(request)).members
        assert (member.client_id, member.official) == ("c1", "remoting client, PYTHON")
        (subscription,) = member.subscriptions
        assert (subscription.topic, subscription.filter.expression) == ("t", "a || b")
        assert member.last_heartbeat_age_ms < 10_000


async def test_clients_of_every_protocol_are_listed(broker: RunningBroker) -> None:
    official = V2(broker.channel)
    async with peer_at(broker.port) as peer:
        await peer.beat("g", "t")
        await official.receive("t", "g-official")
        listed = await broker.groups.ListClients(broker_pb2.ListClientsRequest())
        rows = {each.group: each for each in listed.clients}
        assert set(rows) == {"g", "g-official"}
        ours = rows["g"]
        assert (ours.protocol, ours.kind, list(ours.topics)) == ("remoting", "consumer", ["t"])
        assert ours.address.startswith("127.0.0.1:")
        theirs = rows["g-official"]
        assert (theirs.protocol, theirs.kind) == ("gRPC", "simple consumer")
        assert theirs.address.startswith("127.0.0.1:")


# ------------------------------------------------------------------------------------ tools


async def test_tools_learn_how_far_a_topic_and_a_group_have_come(
    broker: RunningBroker, peer: Peer
) -> None:
    for body in (b"1", b"2"):
        await peer.send("t", body, 1)
    await peer.beat("g", "t")
    assert (await peer.commit("g", "t", 1, 1)).code == 0
    of_topic = (await peer.done(202, topic="t")).body.decode()
    name = broker.config.broker_name
    assert f'{{"brokerName":"{name}","queueId":1,"topic":"t"}}:{{"lastUpdate' in of_topic
    assert '"maxOffset":2,"minOffset":0' in of_topic
    assert of_topic.count('"queueId"') == 2
    of_group = (await peer.done(208, consumerGroup="g", topic="t")).body.decode()
    assert '"brokerOffset":2,"consumerOffset":1' in of_group
    assert '"offsetTable":{}' in (await peer.done(208, consumerGroup="other")).body.decode()
    config = object_of(await peer.done(351, topic="t"))
    assert (config["topicName"], config["perm"], config["readQueueNums"]) == ("t", 6, 2)
    status = object_of(await peer.done(28))["table"]
    assert status["brokerVersionDesc"].startswith("aerobee ")
    for code in (202, 351):
        assert (await peer.ask(code, topic="absent")).code == Code.TOPIC_NOT_EXIST


async def test_what_tools_cannot_do_here_says_what_can(peer: Peer) -> None:
    answer = await peer.ask(3001, username="new")
    assert answer.code == Code.REQUEST_CODE_NOT_SUPPORTED
    assert "aerobee user" in answer.remark
