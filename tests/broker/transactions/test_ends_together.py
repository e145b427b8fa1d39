"""Ends that come in one turn of the loop share an intent and an op message, and each transaction
still ends once: wherever the log ends, and whichever of their messages is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.end_turns import TOGETHER_MAX
from aerobee.broker.transactions.feature import Transactions
from aerobee.broker.transactions.intents import (
    TRANSACTION_JOURNAL_TOPIC,
    Commit,
    CommitIntent,
)
from aerobee.broker.transactions.pending import TransactionName
from aerobee.runtime.errors import AerobeeError, MessageTooLarge, NotWritable
from aerobee.store.format.batch import BatchFault, BatchIllegal
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.record import Record
from aerobee.store.format.transaction_records import OP_TOPIC, Outcome, is_commit_of, op_of
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.transactions import ORDERS, QUEUES, half_message, seen, stored, transactional
from tests.support.v2_calls import V2, codes
from tests.support.waiting import until

COMMITTED, ROLLED_BACK = Outcome.COMMITTED, Outcome.ROLLED_BACK
IDS = [f"T-{number:02}" for number in range(12)]
AS_BODIES = [each.encode() for each in IDS]


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    return await start_broker(topics={ORDERS: transactional()})


async def begin(broker: RunningBroker, ids: Sequence[str]) -> None:
    client = V2(broker.channel)
    for each in ids:
        assert codes((await client.send(half_message(each, each.encode()))).entries) == [v2.OK]
    await ready(broker)
    await until(lambda: len(broker.feature(Transactions).pending) == len(ids))


async def ready(broker: RunningBroker) -> None:
    await until(lambda: broker.feature(Transactions).ends.is_ready)


async def end_all(
    broker: RunningBroker, ids: Sequence[str], outcome: Outcome = COMMITTED
) -> list[Outcome | BaseException]:
    """In one turn of the loop."""
    ends = broker.feature(Transactions).ends
    return await asyncio.gather(
        *(ends.end(TransactionName(ORDERS, each), outcome, 10_000) for each in ids),
        return_exceptions=True,
    )


async def ops(broker: RunningBroker) -> list[tuple[list[int], Outcome]]:
    return [
        (list(offsets), outcome)
        for offsets, outcome in map(op_of, await stored(broker, OP_TOPIC, 1))
    ]


async def check_places(broker: RunningBroker) -> None:
    """Each visible message is where the newest intent that names its half message says."""
    place_of: dict[int, tuple[int, int]] = {}
    for record in await stored(broker, TRANSACTION_JOURNAL_TOPIC, 1):
        intent = CommitIntent.decode(bytes(record.body))
        assert intent is not None
        for each in intent.commits:
            place_of[each.half_position] = each.queue_id, each.offset
    found = await stored(broker, ORDERS)
    for record in found:
        place = place_of.pop(record.prepared_transaction_offset)
        assert place == (record.queue_id, record.queue_offset)


Writes = Callable[..., Any]


def refuse(
    monkeypatch: pytest.MonkeyPatch, name: str, why: Callable[..., Exception | None]
) -> None:
    """`OwnWrites.<name>` raises what `why` returns for its arguments."""
    write: Writes = getattr(OwnWrites, name)

    def refusing(self: OwnWrites, *args: Any, **changes: Any) -> Any:
        if (error := why(*args)) is not None:
            raise error
        return write(self, *args, **changes)

    monkeypatch.setattr(OwnWrites, name, refusing)


def no_ops(topic: str, *_: object) -> Exception | None:
    return NotWritable("the disk is full") if topic == OP_TOPIC else None


# ------------------------------------------------------------------------------------ together


async def test_ends_of_one_turn_share_their_records(broker: RunningBroker) -> None:
    await begin(broker, IDS)
    committed, rolled_back = IDS[:8], IDS[8:]
    first_answers, second_answers = await asyncio.gather(
        end_all(broker, committed), end_all(broker, rolled_back, ROLLED_BACK)
    )
    assert first_answers == [COMMITTED] * 8
    assert second_answers == [ROLLED_BACK] * 4
    assert await seen(broker) == AS_BODIES[:8]
    (first, how), (second, how_else) = await ops(broker)
    assert (how, how_else) == (COMMITTED, ROLLED_BACK)
    assert sorted(first) == list(range(8))
    assert second == list(range(8, 12))
    (record,) = await stored(broker, TRANSACTION_JOURNAL_TOPIC, 1)
    intent = CommitIntent.decode(bytes(record.body))
    assert intent is not None
    assert len(intent.commits) == 8
    await check_places(broker)


async def test_contradicting_ends_of_one_turn_are_one(broker: RunningBroker) -> None:
    await begin(broker, IDS)
    answers = await asyncio.gather(
        *(end_all(broker, IDS, each) for each in (ROLLED_BACK, COMMITTED, COMMITTED))
    )
    assert answers == [[ROLLED_BACK] * len(IDS)] * 3
    assert await ops(broker) == [(list(range(len(IDS))), ROLLED_BACK)]
    assert await seen(broker) == []


async def test_more_than_are_carried_out_together_all_end(broker: RunningBroker) -> None:
    ids = [f"T-{number:03}" for number in range(TOGETHER_MAX + 5)]
    await begin(broker, ids)
    assert await end_all(broker, ids) == [COMMITTED] * len(ids)
    assert sorted(len(offsets) for offsets, _ in await ops(broker)) == [5, TOGETHER_MAX]
    assert await seen(broker) == [each.encode() for each in ids]


# ------------------------------------------------------------------------------------ deaths


async def test_a_log_that_ends_before_their_op_message_has_ended_all_of_them_once(
    broker: RunningBroker, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(broker, IDS)
    refuse(monkeypatch, "append", no_ops)
    assert await end_all(broker, IDS) == [COMMITTED] * len(IDS)
    await broker.stop()
    monkeypatch.undo()

    again = await start_broker()
    await ready(again)
    assert await end_all(again, IDS, ROLLED_BACK) == [COMMITTED] * len(IDS)
    assert await seen(again) == AS_BODIES
    ((offsets, outcome),) = await ops(again)
    assert (sorted(offsets), outcome) == (list(range(len(IDS))), COMMITTED)


async def test_a_log_that_ends_among_their_messages_has_ended_those_that_are_there(
    broker: RunningBroker, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(broker, IDS)
    refuse(monkeypatch, "append", no_ops)
    refuse(
        monkeypatch,
        "append_copies",
        lambda topic, queue_id, *_: NotWritable("the disk is full") if queue_id > 1 else None,
    )
    answers = await end_all(broker, IDS)
    committed = [each for each, answer in zip(IDS, answers, strict=True) if answer is COMMITTED]
    assert 0 < len(committed) < len(IDS)
    await broker.stop()
    monkeypatch.undo()

    again = await start_broker()
    await ready(again)
    assert await seen(again) == [each.encode() for each in committed]
    open_ones = [each for each in IDS if each not in committed]
    assert await end_all(again, open_ones, ROLLED_BACK) == [ROLLED_BACK] * len(open_ones)
    assert await end_all(again, committed, ROLLED_BACK) == [COMMITTED] * len(committed)
    assert await seen(again) == [each.encode() for each in committed]


# ------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "error",
    [BatchIllegal(BatchFault.BODY_CRC, 0, "it is damaged"), MessageTooLarge("no segment holds it")],
    ids=["damaged", "too large"],
)
async def test_one_message_that_cannot_be_stored_does_not_hold_up_the_others(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await begin(broker, IDS)
    bad = b"T-05"

    def why(topic: str, queue_id: int, records: Sequence[bytes], *_: object) -> Exception | None:
        return error if any(bytes(Record(each).body) == bad for each in records) else None

    refuse(monkeypatch, "append_copies", why)
    answers = await end_all(broker, IDS)
    (refusal,) = (each for each in answers if each is not COMMITTED)
    assert isinstance(refusal, AerobeeError)
    assert "cannot be delivered" in str(refusal)
    others = [each for each in AS_BODIES if each != bad]
    assert await seen(broker) == others
    await check_places(broker)
    monkeypatch.undo()
    assert await end_all(broker, [bad.decode()]) == [COMMITTED]
    assert await seen(broker) == AS_BODIES
    assert sorted(o for offsets, _ in await ops(broker) for o in offsets) == list(range(len(IDS)))


async def test_no_commit_begins_before_the_last_ones_have_their_op_message(
    broker: RunningBroker, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(broker, IDS)
    refuse(monkeypatch, "append", no_ops)
    assert await end_all(broker, IDS[:6]) == [COMMITTED] * 6
    refused = await end_all(broker, IDS[6:])
    assert all(isinstance(each, NotWritable) for each in refused)
    assert len(await stored(broker, TRANSACTION_JOURNAL_TOPIC, 1)) == 1
    await broker.stop()
    monkeypatch.undo()

    again = await start_broker()
    await ready(again)
    assert await end_all(again, IDS) == [COMMITTED] * len(IDS)
    assert await seen(again) == AS_BODIES


async def test_each_half_message_is_committed_as_it_was_stored(broker: RunningBroker) -> None:
    await begin(broker, IDS)
    halves = {bytes(each.body): each for each in await stored(broker, HALF_TOPIC, 1)}
    await end_all(broker, IDS)
    for record in await stored(broker, ORDERS, QUEUES):
        assert is_commit_of(record, halves[bytes(record.body)].physical_offset)


# ------------------------------------------------------------------------------------ intents


def test_an_intent_of_one_commit_is_written_as_by_0_1_0() -> None:
    intent = CommitIntent((Commit(7, 4711, "orders", 2, 19, (3,)),))
    data = intent.encode()
    assert data == (
        b'{"kind":"commit","half":[7,4711],"alsoDone":[3],"queue":["orders",2,19],"isAside":false}'
    )
    assert CommitIntent.decode(data) == intent


def test_an_intent_of_many_reads_for_0_1_0_as_the_last_one_with_all_that_is_done_then() -> None:
    first, last = Commit(7, 4711, "orders", 2, 19, (3,)), Commit(8, 5000, "orders", 3, 1, (4,))
    intent = CommitIntent((first, last), is_aside=True)
    data = intent.encode()
    assert data.startswith(
        b'{"kind":"commit","half":[8,5000],"alsoDone":[3,7,4],"queue":["orders",3,1],'
        b'"isAside":true,'
    )
    assert CommitIntent.decode(data) == intent


@pytest.mark.parametrize("before", ["[[1,2]]", "[7]", "7", '[[1,2,"t",0,0,["x"]]]'])
def test_a_damaged_intent_is_said_to_be_damaged(before: str) -> None:
    text = f'{{"kind":"commit","half":[7,1],"alsoDone":[],"queue":["t",0,0],"before":{before}}}'
    with pytest.raises(ValueError, match="damaged"):
        CommitIntent.decode(text.encode())


# ------------------------------------------------------------------------------------ one call


async def test_one_call_ends_what_needs_no_waiting(broker: RunningBroker) -> None:
    await begin(broker, IDS)
    ends = broker.feature(Transactions).ends
    asked = [(each, COMMITTED) for each in IDS[:7]] + [(each, ROLLED_BACK) for each in IDS[6:]]
    wanted = [(TransactionName(ORDERS, each), outcome) for each, outcome in asked]
    unknown = TransactionName(ORDERS, "nobody's"), COMMITTED

    answers = await ends.end_together([*wanted, unknown], 10_000)

    # IDS[6] is asked for twice: `end` will say that it ended as the first says.
    assert answers == [*[COMMITTED] * 7, None, *[ROLLED_BACK] * 5, None]
    assert await seen(broker) == AS_BODIES[:7]
    assert [how for _, how in await ops(broker)] == [COMMITTED, ROLLED_BACK]
    await check_places(broker)


async def test_one_call_is_not_answered_with_what_was_refused(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(broker, IDS)
    refuse(monkeypatch, "append", lambda topic, *_: _full(topic))
    wanted = [(TransactionName(ORDERS, each), COMMITTED) for each in IDS]

    answers = await broker.feature(Transactions).ends.end_together(wanted, 10_000)

    assert answers == [None] * len(IDS)
    assert await seen(broker) == []


def _full(topic: str) -> Exception | None:
    return NotWritable("the disk is full") if topic == TRANSACTION_JOURNAL_TOPIC else None
