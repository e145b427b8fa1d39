"""Single messages over several real brokers: by id, by place, by key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aerobee.client_core import ClusterConnection, MessageId, Messages, ReceivedMessage
from aerobee.cluster_view.methods import SEND_STREAM
from aerobee.runtime import errors
from aerobee.store.format.compression import CompressionKind, compress
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_record
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.fake_cluster import BrokerAt, FakeNameserver, FakeTopic
from tests.support.ports import free_port
from tests.support.real_brokers import RealBroker

NAMES = ("broker-a", "broker-b")
HOST = HostAddress.parse("127.0.0.1:4242")


@dataclass
class TwoBrokers:
    """`orders` on both, `bills` on broker-b only."""

    nameserver: FakeNameserver
    brokers: dict[str, RealBroker]
    connection: ClusterConnection

    async def send_record(
        self, broker: str, body: bytes, *, sys_flag: int = 0, **properties: str
    ) -> None:
        record = encode_record(
            topic=b"orders",
            body=body,
            properties=encode_properties(properties),
            sys_flag=sys_flag,
            born_timestamp_ms=1,
            born_host=HOST,
        )
        stream = self.connection.channels.open_stream(self.brokers[broker].address, SEND_STREAM)
        await stream.write(
            broker_pb2.SendFrame(
                batches=[
                    broker_pb2.RecordBatch(
                        topic="orders", records=record, record_sizes=[len(record)]
                    )
                ]
            )
        )
        answer = await stream.read()
        assert answer is not None
        assert answer.acks[0].code == common_pb2.OK, answer
        stream.cancel()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[TwoBrokers]:
    brokers = {}
    for name, topics in zip(NAMES, ({"orders": 2}, {"orders": 2, "bills": 1}), strict=True):
        # Records name the port that is configured, so it cannot be 0.
        broker = RealBroker(name, tmp_path / name, topics, port=free_port())
        brokers[name] = await broker.start()
    nameserver = await FakeNameserver(
        brokers={name: BrokerAt(broker.address) for name, broker in brokers.items()},
        topics={
            "orders": FakeTopic(dict.fromkeys(NAMES, 2)),
            "bills": FakeTopic({"broker-b": 1}),
        },
    ).start()
    async with ClusterConnection(nameserver.address) as connection:
        yield TwoBrokers(nameserver, brokers, connection)
    await nameserver.stop()
    for broker in brokers.values():
        await broker.stop()


def bodies(messages: tuple[ReceivedMessage, ...]) -> list[bytes]:
    return [message.body for message in messages]


async def test_a_key_is_looked_for_on_every_broker_of_the_topic(two: TwoBrokers) -> None:
    messages = Messages(two.connection, timeout_ms=3_000)
    for number in range(6):
        await two.send_record(NAMES[number % 2], b"%d" % number, KEYS=f"k all n{number}")
    found = await messages.by_key("orders", "k")
    assert sorted(bodies(found.messages)) == [b"%d" % number for number in range(6)]
    times = [message.store_timestamp_ms for message in found.messages]
    assert times == sorted(times, reverse=True)
    assert (found.more, found.unanswered) == (False, ())
    assert {message.queue.broker_name for message in found.messages} == set(NAMES)
    newest = await messages.by_key("orders", "all", max_messages=2)
    assert len(newest.messages) == 2
    assert newest.more
    assert times[:2] == [message.store_timestamp_ms for message in newest.messages]
    (third,) = (await messages.by_key("orders", "n3")).messages
    assert (third.topic, third.queue.broker_name, third.keys) == (
        "orders",
        "broker-b",
        ("k", "all", "n3"),
    )
    at_time = await messages.by_key(
        "orders", "n3", begin_ms=third.store_timestamp_ms, end_ms=third.store_timestamp_ms
    )
    assert bodies(at_time.messages) == [b"3"]
    assert (await messages.by_key("orders", "n3", begin_ms=times[0] + 1)).messages == ()
    assert (await messages.by_key("bills", "k")).messages == ()


async def test_more_messages_of_one_key_and_one_time_than_an_answer_holds_are_all_found(
    two: TwoBrokers,
) -> None:
    messages = Messages(two.connection)
    for number in range(150):
        await two.send_record(NAMES[number // 140], b"%d" % number, KEYS="burst")
    found = await messages.by_key("orders", "burst", max_messages=1_000)
    assert sorted(int(body) for body in bodies(found.messages)) == list(range(150))
    assert not found.more
    some = await messages.by_key("orders", "burst", max_messages=100)
    assert (bodies(some.messages), some.more) == (bodies(found.messages[:100]), True)


async def test_a_unique_key_leads_to_its_message(two: TwoBrokers) -> None:
    messages = Messages(two.connection)
    await two.send_record("broker-b", b"body", UNIQ_KEY="C0A8000B30393764D8BE2A139A000007")
    found = await messages.by_unique_key("orders", "C0A8000B30393764D8BE2A139A000007")
    assert bodies(found.messages) == [b"body"]
    assert (await messages.by_key("orders", "C0A8000B30393764D8BE2A139A000007")).messages == ()


async def test_a_compressed_body_is_shown_as_it_was_sent(two: TwoBrokers) -> None:
    messages = Messages(two.connection)
    body = compress(b"long " * 500, CompressionKind.ZSTD)
    await two.send_record("broker-a", body, sys_flag=CompressionKind.ZSTD.sys_flag, KEYS="k")
    (message,) = (await messages.by_key("orders", "k")).messages
    assert message.body == b"long " * 500
    assert (await messages.by_id(message.offset_message_id)).body == b"long " * 500


async def test_an_id_leads_to_the_broker_that_has_the_message(two: TwoBrokers) -> None:
    """Both logs hold a message at the same offset; the id says whose is meant."""
    messages = Messages(two.connection)
    for name in NAMES:
        await two.send_record(name, name.encode(), KEYS=name)
    for name in NAMES:
        (message,) = (await messages.by_key("orders", name)).messages
        assert message.record.physical_offset == 0
        found = await messages.by_id(message.offset_message_id)
        assert (found.body, found.queue.broker_name) == (name.encode(), name)
        assert (await messages.by_offset(name, 0)).body == name.encode()


async def test_an_id_that_nobody_has_says_who_was_asked(two: TwoBrokers) -> None:
    messages = Messages(two.connection)
    await two.send_record("broker-a", b"body", KEYS="k")
    for host, offset in (("10.1.1.1:10911", 0), (two.brokers["broker-a"].address, 1 << 40)):
        message_id = offset_message_id(HostAddress.parse(host), offset)
        with pytest.raises(errors.MessageNotFound) as failure:
            await messages.by_id(message_id)
        assert f"no broker has message {message_id} (asked: broker-a, broker-b)" in str(
            failure.value
        )
        assert f"byte {offset} in the log of the broker that was at {host}" in str(failure.value)
    with pytest.raises(errors.MessageIllegal):
        await messages.by_id("no id")
    with pytest.raises(errors.MessageNotFound, match="inside a message or between"):
        await messages.by_offset("broker-a", 7)
    with pytest.raises(errors.NoBrokerAvailable, match=r"there are: broker-a, broker-b"):
        await messages.by_offset("broker-c", 0)


async def test_a_broker_that_is_down_is_not_taken_for_one_that_has_nothing(
    two: TwoBrokers,
) -> None:
    messages = Messages(two.connection, timeout_ms=3_000)
    for name in NAMES:
        await two.send_record(name, name.encode(), KEYS="k")
    ids = {
        message.queue.broker_name: message.offset_message_id
        for message in (await messages.by_key("orders", "k")).messages
    }
    await two.brokers["broker-b"].stop()
    found = await messages.by_key("orders", "k")
    assert bodies(found.messages) == [b"broker-a"]
    assert found.unanswered == ("broker-b",)
    assert (await messages.by_id(ids["broker-a"])).body == b"broker-a"
    with pytest.raises(errors.Unreachable, match="broker-b did not answer"):
        await messages.by_id(ids["broker-b"])
    with pytest.raises(errors.NoBrokerAvailable, match=r"no broker of topic bills answers"):
        await messages.by_key("bills", "k")
    assert MessageId.parse(ids["broker-b"]).store_host == two.brokers["broker-b"].address


async def test_a_topic_or_key_that_cannot_be_is_refused(two: TwoBrokers) -> None:
    messages = Messages(two.connection)
    with pytest.raises(errors.TopicNotFound):
        await messages.by_key("unknown", "k")
    with pytest.raises(errors.InvalidArgument, match="the key is empty"):
        await messages.by_key("orders", "")
    with pytest.raises(errors.InvalidArgument, match="is later than the end"):
        await messages.by_key("orders", "k", begin_ms=2, end_ms=1)
