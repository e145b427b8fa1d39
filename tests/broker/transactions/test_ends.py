"""A message of a transaction is visible once it is committed, once and as it was sent; rolled back
it is visible never."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from aerobee.broker.reading.confirmed_records import ConfirmedReader
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.feature import Transactions
from aerobee.rocketmq_api.times import duration
from aerobee.runtime.errors import NotWritable
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.record import SYSFLAG_TRANSACTION_COMMIT
from aerobee.store.format.transaction_records import OP_TOPIC, TRANSACTIONS_GROUP, Outcome, op_of
from aerobee.v1 import broker_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.transactions import (
    ORDERS,
    end,
    half_message,
    seen,
    stored,
    transactional,
)
from tests.support.v2_calls import V2, codes, sent_message
from tests.support.waiting import until

TOPICS = {
    topic.name: topic
    for topic in (
        transactional(),
        transactional("mixed", "MIXED"),
        transactional("plain", "NORMAL"),
        transactional("fifo", "FIFO"),
    )
}
DONE = (v2.OK, "OK")


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    return await start_broker(topics=TOPICS)


@pytest.fixture
def client(broker: RunningBroker) -> V2:
    return V2(broker.channel)


async def begin(client: V2, *ids: str) -> None:
    for each in ids:
        answer = await client.send(half_message(each, each.encode()))
        assert codes(answer.entries) == [v2.OK]
        assert answer.entries[0].transaction_id == each


async def committed(client: V2, transaction_id: str) -> tuple[int, str]:
    status = await end(client, transaction_id, v2.COMMIT)
    return status.code, status.message


async def rolled_back(client: V2, transaction_id: str) -> tuple[int, str]:
    status = await end(client, transaction_id, v2.ROLLBACK)
    return status.code, status.message


# ------------------------------------------------------------------------------------ one end


async def test_a_committed_message_is_visible_once_with_all_that_was_sent(
    broker: RunningBroker, client: V2
) -> None:
    born = Timestamp(seconds=1_700_000_000)
    message = half_message("T-1", b"paid", tag="pay", keys=["order-7", "customer-3"])
    message.system_properties.born_timestamp.CopyFrom(born)
    message.user_properties["note"] = "订单"
    await client.send(message)
    assert await seen(broker) == []

    assert await committed(client, "T-1") == DONE
    (record,) = await stored(broker, ORDERS)
    assert bytes(record.body) == b"paid"
    assert (record.tag, record.keys) == ("pay", ("order-7", "customer-3"))
    assert record.born_timestamp_ms == 1_700_000_000_000
    assert record.transaction_type == SYSFLAG_TRANSACTION_COMMIT
    assert record.properties["note"] == "订单"
    assert record.properties["__transactionId__"] == record.unique_key == "T-1"
    assert not {"TRAN_MSG", "REAL_TOPIC", "REAL_QID"} & record.properties.keys()
    (half,) = await stored(broker, HALF_TOPIC, 1)
    assert record.prepared_transaction_offset == half.physical_offset
    assert half.transaction_type == 0
    assert half.properties["TRAN_MSG"] == "true"
    assert (half.properties["REAL_TOPIC"], half.properties["PGROUP"]) == (ORDERS, ORDERS)
    assert int(half.properties["REAL_QID"]) == record.queue_id


async def test_official_consumers_get_it_with_its_transaction(
    broker: RunningBroker, client: V2
) -> None:
    await begin(client, "T-1")
    await committed(client, "T-1")
    received = await client.receive(ORDERS, "billing")
    assert received.ids == ["T-1"]
    assert received.messages[0].user_properties["__transactionId__"] == "T-1"
    assert await client.acknowledge("billing", *received.messages) == [v2.OK]


async def test_a_rolled_back_message_is_never_visible(broker: RunningBroker, client: V2) -> None:
    await begin(client, "T-1", "T-2")
    assert await rolled_back(client, "T-1") == DONE
    assert await committed(client, "T-2") == DONE
    assert await seen(broker) == [b"T-2"]


async def test_ends_are_written_as_apaches_brokers_read_them(
    broker: RunningBroker, client: V2
) -> None:
    await begin(client, "T-1", "T-2", "T-3")
    await rolled_back(client, "T-2")
    await committed(client, "T-1")
    ops = await stored(broker, OP_TOPIC, 1)
    assert [(op.tag, bytes(op.body)) for op in ops] == [("d", b"1,"), ("d", b"0,")]
    assert [op_of(op) for op in ops] == [([1], Outcome.ROLLED_BACK), ([0], Outcome.COMMITTED)]


async def test_an_end_that_does_not_know_changes_nothing(broker: RunningBroker, client: V2) -> None:
    await begin(client, "T-1")
    status = await end(client, "T-1", v2.TRANSACTION_RESOLUTION_UNSPECIFIED)
    assert status.code == v2.OK
    assert await seen(broker) == []
    assert await committed(client, "T-1") == DONE


@pytest.mark.parametrize("transaction_id", ["", "  ", "unknown"])
async def test_what_was_never_begun_cannot_end(
    broker: RunningBroker, client: V2, transaction_id: str
) -> None:
    status = await end(client, transaction_id, v2.COMMIT)
    assert status.code == v2.INVALID_TRANSACTION_ID
    await begin(client, "T-1")
    status = await end(client, "T-1", v2.COMMIT, topic="mixed")
    assert status.code == v2.INVALID_TRANSACTION_ID
    assert await seen(broker) == []


# ------------------------------------------------------------------------------------ repetitions


async def test_an_end_that_comes_again_is_answered_as_the_first_time(
    broker: RunningBroker, client: V2
) -> None:
    await begin(client, "T-1")
    other = V2(broker.channel, {"x-mq-client-id": "another"})
    for caller in (client, client, other):
        assert await committed(caller, "T-1") == DONE
    assert await seen(broker) == [b"T-1"]
    assert len(await stored(broker, OP_TOPIC, 1)) == 1


async def test_an_end_that_contradicts_the_first_changes_nothing_and_says_so(
    broker: RunningBroker, client: V2
) -> None:
    await begin(client, "T-1", "T-2")
    await committed(client, "T-1")
    await rolled_back(client, "T-2")
    assert await rolled_back(client, "T-1") == (v2.OK, "the transaction was committed before")
    assert await committed(client, "T-2") == (v2.OK, "the transaction was rolled back before")
    assert await seen(broker) == [b"T-1"]


async def test_ends_that_come_at_once_are_one(broker: RunningBroker, client: V2) -> None:
    ids = [f"T-{number}" for number in range(20)]
    await begin(client, *ids)
    ends = [
        end(client, each, resolution)
        for each in ids
        for resolution in (v2.COMMIT, v2.ROLLBACK, v2.COMMIT)
    ]
    answers = await asyncio.gather(*ends)
    assert {status.code for status in answers} == {v2.OK}
    undone = {each for number, each in enumerate(ids) if answers[3 * number].message != "OK"}
    assert await seen(broker) == sorted(each.encode() for each in ids if each not in undone)
    assert len(await stored(broker, OP_TOPIC, 1)) == len(ids)


async def test_a_half_message_that_is_sent_again_is_stored_once(
    broker: RunningBroker, client: V2
) -> None:
    first = (await client.send(half_message("T-1"))).entries[0]
    again = (await client.send(half_message("T-1"))).entries[0]
    assert again == first
    await committed(client, "T-1")
    late = (await client.send(half_message("T-1"))).entries[0]
    assert late == first
    assert await committed(client, "T-1") == DONE
    assert len(await seen(broker)) == 1


# ------------------------------------------------------------------------------------ what is taken


async def test_only_topics_of_their_type_take_them(broker: RunningBroker, client: V2) -> None:
    found = {}
    for topic in TOPICS:
        message = sent_message(topic, message_id=topic, message_type=v2.TRANSACTION)
        found[topic] = (await client.send(message)).status.code
    assert found == {
        ORDERS: v2.OK,
        "mixed": v2.OK,
        "plain": v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "fifo": v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    }
    refused = await client.send(sent_message(ORDERS))
    assert refused.status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_they_are_not_ordered_and_not_delayed(broker: RunningBroker, client: V2) -> None:
    later = Timestamp()
    later.GetCurrentTime()
    for more in ({"message_group": "g"}, {"delivery_timestamp": later}):
        answer = await client.send(half_message("T-1", **more))
        assert answer.status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert await stored(broker, HALF_TOPIC, 1) == []


async def test_many_in_one_request_each_have_a_transaction(
    broker: RunningBroker, client: V2
) -> None:
    answer = await client.send(*(half_message(f"T-{each}", b"%d" % each) for each in range(3)))
    assert codes(answer.entries) == [v2.OK] * 3
    assert [entry.offset for entry in answer.entries] == [0, 1, 2]
    await committed(client, "T-2")
    await rolled_back(client, "T-0")
    assert await seen(broker) == [b"2"]


async def test_how_long_to_leave_them_alone_is_kept(broker: RunningBroker, client: V2) -> None:
    await client.send(half_message("T-1", orphaned_transaction_recovery_duration=duration(90_000)))
    (half,) = broker.feature(Transactions).pending
    assert half.immunity_ms == 90_000


# ------------------------------------------------------------------------------------ restarts


async def test_what_waits_ends_after_a_restart(
    broker: RunningBroker, client: V2, start_broker: StartBroker
) -> None:
    await begin(client, *(f"T-{each}" for each in range(5)))
    await committed(client, "T-1")
    await rolled_back(client, "T-3")
    await broker.stop()
    again = await start_broker()
    client = V2(again.channel)
    assert await rolled_back(client, "T-1") == (v2.OK, "the transaction was committed before")
    assert await committed(client, "T-0") == DONE
    assert await rolled_back(client, "T-2") == DONE
    assert await committed(client, "T-4") == DONE
    await again.stop()
    assert again.opened.offsets.query(TRANSACTIONS_GROUP, HALF_TOPIC, 0) == 5

    last = await start_broker()
    client = V2(last.channel)
    # This run has read none of it: the index tells.
    assert await rolled_back(client, "T-0") == (v2.OK, "the transaction had ended before")
    assert (await end(client, "T-9", v2.COMMIT)).code == v2.INVALID_TRANSACTION_ID
    assert await seen(last) == [b"T-0", b"T-1", b"T-4"]


async def refused(broker: RunningBroker) -> int:
    """How many batches it has refused."""
    stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
    return int(stats.refused)


async def test_a_master_that_still_reads_which_are_open_stores_none_a_second_time(
    broker: RunningBroker,
    client: V2,
    start_broker: StartBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client has had no answer, and sends its half message again to the next master."""
    await begin(client, "T-1")
    await broker.stop()
    read, may_read = ConfirmedReader.read, asyncio.Event()

    async def waits(self: ConfirmedReader, topic: str, *place: Any, **limits: Any) -> Any:
        if topic == HALF_TOPIC:
            await may_read.wait()
        return await read(self, topic, *place, **limits)

    monkeypatch.setattr(ConfirmedReader, "read", waits)
    again = await start_broker()
    client = V2(again.channel)
    sending = asyncio.create_task(client.send(half_message("T-1", b"T-1")))
    await until(lambda: refused(again))
    may_read.set()
    assert codes((await sending).entries) == [v2.OK]
    assert len(await stored(again, HALF_TOPIC, 1)) == 1


async def test_a_commit_between_whose_two_records_the_log_ended_is_finished_by_the_next_master(
    broker: RunningBroker,
    client: V2,
    start_broker: StartBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await begin(client, "T-1", "T-2")
    append = OwnWrites.append

    def refuses_ops(self: OwnWrites, topic: str, *args: object, **changes: object) -> object:
        if topic == OP_TOPIC:
            raise NotWritable("the disk is full")
        return append(self, topic, *args, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(OwnWrites, "append", refuses_ops)
    assert await committed(client, "T-1") == DONE
    # Nothing else is begun before, or two commits could be open at once.
    assert (await end(client, "T-2", v2.COMMIT)).code != v2.OK
    assert await committed(client, "T-1") == DONE
    await broker.stop()
    monkeypatch.undo()

    again = await start_broker()
    client = V2(again.channel)
    assert await rolled_back(client, "T-1") == (v2.OK, "the transaction was committed before")
    assert await rolled_back(client, "T-2") == DONE
    assert await seen(again) == [b"T-1"]


async def test_an_intent_whose_message_is_not_there_leaves_the_transaction_open(
    broker: RunningBroker,
    client: V2,
    start_broker: StartBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await begin(client, "T-1", "T-2")

    def refuses(self: OwnWrites, *args: object, **changes: object) -> object:
        raise NotWritable("the disk is full")

    monkeypatch.setattr(OwnWrites, "append_copies", refuses)
    assert (await end(client, "T-1", v2.COMMIT)).code != v2.OK
    monkeypatch.undo()
    # The place that the intent names is another's now.
    for number in range(8):
        await client.send(sent_message("mixed", message_id=f"M-{number}"))
    await broker.stop()

    again = await start_broker()
    client = V2(again.channel)
    await committed(client, "T-2")
    assert await committed(client, "T-1") == DONE
    assert await seen(again) == [b"T-1", b"T-2"]


async def test_an_op_message_that_could_not_be_written_follows(
    broker: RunningBroker, client: V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(client, "T-1")
    append, refusals = OwnWrites.append, [NotWritable("full")] * 2

    def refuses_twice(self: OwnWrites, topic: str, *args: object, **changes: object) -> object:
        if topic == OP_TOPIC and refusals:
            raise refusals.pop()
        return append(self, topic, *args, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(OwnWrites, "append", refuses_twice)
    assert await committed(client, "T-1") == DONE
    await until(lambda: not broker.feature(Transactions).ends.owes)
    await until(lambda: not len(broker.feature(Transactions).pending))
    assert await committed(client, "T-1") == DONE
    assert await seen(broker) == [b"T-1"]
