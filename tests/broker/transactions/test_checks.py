"""A producer that is there is asked how a transaction ends, at its time and no more often than
that; what nobody ends is set aside, where an operator ends it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.broker.config import TransactionsConfig
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.checks import CheckRules, Verdict, verdict
from aerobee.broker.transactions.feature import Transactions
from aerobee.broker.transactions.known import KnownHalves
from aerobee.broker.transactions.listing import Wanted
from aerobee.broker.transactions.pending import TransactionName
from aerobee.rocketmq_api.times import duration
from aerobee.rpc.grpc_config import Engine, GrpcConfig
from aerobee.runtime.errors import Busy, InvalidArgument, MessageNotFound, NotWritable
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    OP_TOPIC,
    TRANSACTIONS_GROUP,
    HalfMessage,
    Outcome,
    op_of,
    op_properties,
)
from aerobee.v1 import broker_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.transactions import (
    ORDERS,
    Asked,
    end,
    end_request,
    half_message,
    seen,
    stored,
    transactional,
)
from tests.support.v2_calls import V2, codes
from tests.support.waiting import until

TOPICS = {ORDERS: transactional()}
SOON = TransactionsConfig(timeout_ms=1, check_interval_ms=100, checks_max=1_000)
NEVER = TransactionsConfig(timeout_ms=3_600_000)
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"

Connect = Callable[..., Awaitable[Asked]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens the stream of a client."""
    async with AsyncExitStack() as stack:

        async def connect(
            broker: RunningBroker, name: str, *topics: str, kind: type[Asked] = Asked
        ) -> Asked:
            asked = await kind(V2(broker.channel, {"x-mq-client-id": name}), *topics).open()
            stack.push_async_callback(asked.close)
            return asked

        yield connect


async def begin(client: V2, *ids: str, **system: Any) -> None:
    for each in ids:
        answer = await client.send(half_message(each, each.encode(), **system))
        assert codes(answer.entries) == [v2.OK]


async def status(client: V2, transaction_id: str, resolution: v2.TransactionResolution) -> str:
    found = await end(client, transaction_id, resolution)
    assert found.code == v2.OK
    return found.message


async def decide(broker: RunningBroker, transaction_id: str, outcome: Outcome) -> Outcome:
    """As an operator does it; how it has ended."""
    request = broker_pb2.EndTransactionRequest(
        topic=ORDERS,
        transaction_id=transaction_id,
        outcome=outcome.name,
        timeout_ms=30_000,
        by_operator=True,
    )
    answer = await broker.transactions.EndTransaction(request)
    name = broker_pb2.TransactionOutcome.Name(answer.outcome)
    return Outcome.__members__.get(name, Outcome.UNKNOWN)


def listed(broker: RunningBroker) -> tuple[list[str], list[str]]:
    """Open, and set aside."""
    listing = broker.feature(Transactions).listing
    return (
        [half.transaction_id for half in listing.open().halves],
        [half.transaction_id for half in listing.aside().halves],
    )


# ------------------------------------------------------------------------------------ when


RULES = CheckRules(timeout_ms=6_000, interval_ms=30_000, checks_max=15, reserved_ms=72 * 3_600_000)


@pytest.mark.parametrize(
    ("age_ms", "more", "expected"),
    [
        (5_999, {}, Verdict.LEAVE),
        (6_000, {}, Verdict.CHECK),
        (6_000, {"immunity_ms": 90_000}, Verdict.LEAVE),
        (90_000, {"immunity_ms": 90_000}, Verdict.CHECK),
        (1_000, {"immunity_ms": 1_000}, Verdict.CHECK),
        (5_000, {"checks": 1}, Verdict.LEAVE),  # another master's scan has just asked
        (29_000, {"checks": 1}, Verdict.CHECK),
        (29_000, {"checks": 14}, Verdict.CHECK),
        (29_000, {"checks": 15}, Verdict.SET_ASIDE),
        (5_000, {"checks": 15}, Verdict.LEAVE),  # the last answer may be on its way
        (72 * 3_600_000, {"immunity_ms": 1 << 40}, Verdict.LEAVE),
        (72 * 3_600_000 + 1, {"immunity_ms": 1 << 40}, Verdict.SET_ASIDE),
        (-3_600_000, {}, Verdict.CHECK),  # the clock was set back
    ],
)
def test_a_scan_asks_by_age_and_count(age_ms: int, more: dict[str, int], expected: Verdict) -> None:
    now_ms = 1_700_000_000_000
    half = HalfMessage(0, 0, 100, "T-1", "p", ORDERS, 0, 1, now_ms - age_ms)
    assert verdict(half._replace(**more), now_ms, RULES) is expected  # type: ignore[arg-type]


async def test_nobody_is_asked_before_the_time(start_broker: StartBroker, connect: Connect) -> None:
    settings = TransactionsConfig(timeout_ms=3_600_000, check_interval_ms=20)
    broker = await start_broker(topics=TOPICS, transactions=settings)
    producer = await connect(broker, "p", ORDERS)
    await begin(producer.client, "T-1")
    await begin(producer.client, "T-2", orphaned_transaction_recovery_duration=duration(3_000_000))
    await begin(producer.client, "T-3", orphaned_transaction_recovery_duration=duration(1_000))
    await until(lambda: len(producer.ids) >= 3)
    assert set(producer.ids) == {"T-3"}


# ------------------------------------------------------------------------------------ who


class Commits(Asked):
    """Answers as official clients do."""

    async def answer(self, transaction_id: str) -> None:
        await end(self.client, transaction_id, v2.COMMIT)


class LaterCommits(Asked):
    """Answers when it is asked the second time."""

    async def answer(self, transaction_id: str) -> None:
        if len(self.asked) > 1:
            await end(self.client, transaction_id, v2.COMMIT)


async def test_a_producer_is_asked_with_the_whole_message_and_its_answer_counts(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(topics=TOPICS, transactions=SOON)
    message = half_message("T-1", b"paid", tag="pay", keys=["order-7"])
    message.user_properties["note"] = "订单"
    await V2(broker.channel, {"x-mq-client-id": "dead"}).send(message)
    producer = await connect(broker, "p", ORDERS, kind=LaterCommits)
    await until(lambda: len(producer.asked) > 1)
    asked, system = producer.asked[0], producer.asked[0].system_properties
    assert (asked.topic.name, asked.body) == (ORDERS, b"paid")
    assert asked.user_properties["note"] == "订单"
    assert (system.tag, list(system.keys)) == ("pay", ["order-7"])
    assert system.message_type == v2.TRANSACTION
    assert system.body_digest.checksum
    assert not system.receipt_handle

    async def is_visible() -> bool:
        return await seen(broker) == [b"paid"]

    await until(is_visible)
    (record,) = await stored(broker, ORDERS)
    assert record.queue_id == system.queue_id
    # Nothing tells of the checks, which who sends it on could not set.
    assert not {CHECK_TIMES, "TRAN_MSG", "REAL_TOPIC", "REAL_QID"} & record.properties.keys()
    assert {each for asked in producer.asked for each in asked.user_properties} == {
        "note",
        "__transactionId__",
    }
    await until(lambda: not len(broker.feature(Transactions).pending))


async def test_all_that_name_the_topic_are_asked_in_turn(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(topics=TOPICS, transactions=SOON)
    shy = await connect(broker, "shy")
    other = await connect(broker, "other", "another-topic")
    producers = [await connect(broker, f"p-{each}", ORDERS) for each in range(3)]
    await begin(shy.client, *(f"T-{each}" for each in range(30)))
    await until(lambda: sum(len(each.asked) for each in producers) >= 60)
    counts = [len(each.asked) for each in producers]
    assert max(counts) - min(counts) <= 1
    assert not shy.asked
    assert not other.asked


async def test_where_nobody_names_the_topic_the_sender_is_asked_and_else_another_sender(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(topics=TOPICS, transactions=NEVER)
    first, second = await connect(broker, "first"), await connect(broker, "second")
    await begin(first.client, "T-1")
    await begin(second.client, "T-2")
    checks = broker.feature(Transactions).checks
    checks.rules = checks.rules._replace(timeout_ms=0, interval_ms=0)
    pending = broker.feature(Transactions).pending
    for number in range(1, 6):
        await checks.scan()
        await until(lambda asked=number: [each.checks for each in pending] == [asked, asked])
    await until(lambda: len(first.ids) + len(second.ids) == 10)
    assert (set(first.ids), set(second.ids)) == ({"T-1"}, {"T-2"})
    await first.close()

    async def is_asked() -> bool:
        """Once the broker knows that the other one has gone."""
        await checks.scan()
        return "T-1" in second.ids

    await until(is_asked)


async def test_a_check_that_reaches_nobody_does_not_count(
    start_broker: StartBroker, connect: Connect
) -> None:
    settings = TransactionsConfig(timeout_ms=1, check_interval_ms=20, checks_max=2)
    broker = await start_broker(topics=TOPICS, transactions=settings)
    client = V2(broker.channel)
    await begin(client, "T-1")
    checks = broker.feature(Transactions).checks
    await until(lambda: checks.unasked > 5)
    assert len(await stored(broker, HALF_TOPIC, 1)) == 1
    assert listed(broker) == (["T-1"], [])
    producer = await connect(broker, "p", ORDERS)
    await until(lambda: len(producer.asked) == 2)
    await until(lambda: listed(broker) == ([], ["T-1"]))


# ------------------------------------------------------------------------------------ how often


async def test_after_the_last_check_the_message_is_set_aside_in_apaches_format(
    start_broker: StartBroker, connect: Connect
) -> None:
    settings = TransactionsConfig(timeout_ms=1, check_interval_ms=50, checks_max=3)
    broker = await start_broker(topics=TOPICS, transactions=settings)
    producer = await connect(broker, "p", ORDERS)
    await begin(producer.client, "T-1")
    transactions = broker.feature(Transactions)
    await until(lambda: len(transactions.aside) and not len(transactions.pending))
    assert producer.ids == ["T-1"] * 3
    halves = await stored(broker, HALF_TOPIC, 1)
    assert [half.properties.get(CHECK_TIMES) for half in halves] == [None, "1", "2", "3"]
    assert {half.unique_key for half in halves} == {"T-1"}
    ops = [op_of(op) for op in await stored(broker, OP_TOPIC, 1)]
    assert ops == [
        ([0], Outcome.CHECKED),
        ([1], Outcome.CHECKED),
        ([2], Outcome.CHECKED),
        ([3], Outcome.SET_ASIDE),
    ]
    (aside,) = await stored(broker, ASIDE_TOPIC, 1)
    assert {**aside.properties} == {**halves[-1].properties}
    assert aside.body == halves[-1].body
    assert aside.properties["REAL_TOPIC"] == ORDERS

    # Its producers cannot end it any more, and are told so.
    words = "the transaction was set aside before: an operator decides"
    assert await status(producer.client, "T-1", v2.COMMIT) == words
    # Nor begin it anew.
    await begin(producer.client, "T-1")
    assert listed(broker) == ([], ["T-1"])
    assert await seen(broker) == []


async def test_an_operator_has_a_producer_asked_before_the_next_scan(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(
        topics=TOPICS, transactions=TransactionsConfig(timeout_ms=1, check_interval_ms=3_600_000)
    )
    client = V2(broker.channel, {"x-mq-client-id": "sender"})
    await begin(client, "T-1")
    request = broker_pb2.CheckTransactionRequest(topic=ORDERS, transaction_id="T-1")
    await until(lambda: listed(broker)[0] == ["T-1"], "the transaction")
    assert not (await broker.transactions.CheckTransaction(request)).asked, "nobody is there"
    producer = await connect(broker, "producer", ORDERS)
    assert (await broker.transactions.CheckTransaction(request)).asked
    await until(lambda: len(producer.asked) == 1, "the question")
    await end(client, "T-1", v2.COMMIT)
    await until(lambda: listed(broker)[0] == [], "its end")
    with pytest.raises(MessageNotFound, match="T-2"):
        await broker.feature(Transactions).checks.check_now(TransactionName(ORDERS, "T-2"))


async def test_a_transaction_that_has_just_begun_is_not_asked_about(
    start_broker: StartBroker, connect: Connect
) -> None:
    """Its producer would not find what it is still writing, and roll back."""
    broker = await start_broker(topics=TOPICS, transactions=NEVER)
    producer = await connect(broker, "producer", ORDERS)
    await begin(V2(broker.channel, {"x-mq-client-id": "sender"}), "T-1")
    await until(lambda: listed(broker)[0] == ["T-1"], "the transaction")
    with pytest.raises(InvalidArgument, match="just begun"):
        await broker.feature(Transactions).checks.check_now(TransactionName(ORDERS, "T-1"))
    assert producer.asked == []


async def test_ends_that_race_with_checks_end_each_transaction_once(
    start_broker: StartBroker, connect: Connect
) -> None:
    settings = TransactionsConfig(timeout_ms=1, check_interval_ms=1, checks_max=100_000)
    broker = await start_broker(topics=TOPICS, transactions=settings)
    producer = await connect(broker, "p", ORDERS, kind=Commits)
    ids = [f"T-{each:03}" for each in range(150)]

    async def work(mine: list[str]) -> None:
        for each in mine:
            await begin(producer.client, each)
            await asyncio.gather(
                *(end(producer.client, each, v2.COMMIT) for _ in range(2)),
                end(producer.client, each, v2.ROLLBACK),
            )

    await asyncio.gather(*(work(ids[each::10]) for each in range(10)))
    outcomes = Counter([await status(producer.client, each, v2.COMMIT) for each in ids])
    await until(lambda: not len(broker.feature(Transactions).pending))
    found = await seen(broker)
    assert len(found) == len(set(found)) == outcomes["OK"] > 0
    assert set(outcomes) <= {"OK", "the transaction was rolled back before"}


async def test_a_late_end_of_a_message_that_asked_to_be_left_alone_is_carried_out(
    start_broker: StartBroker,
) -> None:
    """Apache's broker drops it, and answers OK: its check may be under way. Here an end counts
    once, whoever else ends it."""
    broker = await start_broker(topics=TOPICS, transactions=SOON)
    client = V2(broker.channel)
    await begin(client, "T-1", orphaned_transaction_recovery_duration=duration(1_000))
    await until(lambda: broker.feature(Transactions).checks.unasked)
    assert await status(client, "T-1", v2.COMMIT) == "OK"
    assert await seen(broker) == [b"T-1"]


# ------------------------------------------------------------------------------------ deaths


def refuse(monkeypatch: pytest.MonkeyPatch, topic: str, outcome: Outcome | None = None) -> None:
    """The broker's own records of a topic, as if it died before them; `outcome`: op messages that
    say so."""
    append = OwnWrites.append

    def refuses(self: OwnWrites, name: str, *args: Any, **changes: Any) -> Any:
        if name == topic and (outcome is None or changes["properties"] == op_properties(outcome)):
            raise NotWritable("the disk is full")
        return append(self, name, *args, **changes)

    monkeypatch.setattr(OwnWrites, "append", refuses)


def known_at_begin(monkeypatch: pytest.MonkeyPatch) -> list[list[TransactionName]]:
    """What a master believes to be set aside when it begins to end transactions."""
    begin, known = KnownHalves.begin, []

    def begins(halves: KnownHalves) -> None:
        known.append(list(halves.aside.names))
        begin(halves)

    monkeypatch.setattr(KnownHalves, "begin", begins)
    return known


async def test_a_death_between_the_copy_and_its_op_message_leaves_one_transaction(
    start_broker: StartBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(topics=TOPICS, transactions=SOON)
    refuse(monkeypatch, OP_TOPIC)
    producer = await connect(broker, "p", ORDERS)
    await begin(producer.client, "T-1")
    await until(lambda: producer.asked)
    await producer.close()
    await broker.stop()
    monkeypatch.undo()

    again = await start_broker(transactions=NEVER)
    halves = await stored(again, HALF_TOPIC, 1)
    assert [half.properties.get(CHECK_TIMES) for half in halves] == [None, "1"]
    assert await stored(again, OP_TOPIC, 1) == []
    client = V2(again.channel)
    assert await status(client, "T-1", v2.COMMIT) == "OK"
    assert await status(client, "T-1", v2.ROLLBACK) == "the transaction was committed before"
    assert await seen(again) == [b"T-1"]
    # Both are done, so that Apache's broker would not ask about the first one either.
    (op,) = await stored(again, OP_TOPIC, 1)
    assert op_of(op) == ([0, 1], Outcome.COMMITTED)
    await until(lambda: not len(again.feature(Transactions).pending))


async def test_after_a_death_while_a_message_is_set_aside_its_producers_may_still_end_it(
    start_broker: StartBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = TransactionsConfig(timeout_ms=1, check_interval_ms=50, checks_max=1)
    refuse(monkeypatch, OP_TOPIC, Outcome.SET_ASIDE)
    broker = await start_broker(topics=TOPICS, transactions=settings)
    producer = await connect(broker, "p", ORDERS)
    await begin(producer.client, "T-1")
    await begin(producer.client, "T-2")
    await until(lambda: len(broker.feature(Transactions).aside))
    # As far as this broker knows it is done; nothing else happens before the log says so too.
    assert broker.feature(Transactions).ends.owes
    await producer.close()
    await broker.stop()
    monkeypatch.undo()

    known = known_at_begin(monkeypatch)
    again = await start_broker(transactions=NEVER)
    await until(lambda: again.feature(Transactions).ends.is_ready)
    assert known == [[]], "an operator would end it a second time"
    assert [sorted(each) for each in listed(again)] == [["T-1", "T-2"], []]
    client = V2(again.channel)
    assert await status(client, "T-1", v2.COMMIT) == "OK"
    assert await decide(again, "T-1", Outcome.COMMITTED) is Outcome.COMMITTED
    assert await seen(again) == [b"T-1"]
    await again.stop()

    # Once more, and whole this time.
    last = await start_broker(transactions=settings)
    producer = await connect(last, "p", ORDERS)
    await until(lambda: listed(last) == ([], ["T-2"]))
    assert await decide(last, "T-1", Outcome.COMMITTED) is not Outcome.ROLLED_BACK
    assert await decide(last, "T-2", Outcome.COMMITTED) is Outcome.COMMITTED
    assert await seen(last) == [b"T-1", b"T-2"]


# ------------------------------------------------------------------------------------ operators


async def aside(start_broker: StartBroker, connect: Connect, *ids: str) -> RunningBroker:
    """A broker that has set these aside."""
    settings = TransactionsConfig(timeout_ms=1, check_interval_ms=20, checks_max=1)
    broker = await start_broker(topics=TOPICS, transactions=settings)
    producer = await connect(broker, "p", ORDERS)
    await begin(producer.client, *ids)
    await until(lambda: len(broker.feature(Transactions).aside) == len(ids))
    await until(lambda: not len(broker.feature(Transactions).pending))
    return broker


async def test_an_operator_ends_what_was_set_aside_once(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await aside(start_broker, connect, "T-1", "T-2", "T-3", "T-4")
    outcomes = await asyncio.gather(
        *(decide(broker, "T-1", Outcome.COMMITTED) for _ in range(3)),
        decide(broker, "T-2", Outcome.ROLLED_BACK),
    )
    assert set(outcomes) == {Outcome.COMMITTED, Outcome.ROLLED_BACK}
    assert await decide(broker, "T-1", Outcome.ROLLED_BACK) is Outcome.COMMITTED
    assert await decide(broker, "T-2", Outcome.COMMITTED) is Outcome.ROLLED_BACK
    await until(lambda: listed(broker) == ([], ["T-3", "T-4"]))
    client = V2(broker.channel)
    assert await status(client, "T-1", v2.COMMIT) == "OK"
    await broker.stop()
    assert broker.opened.offsets.query(TRANSACTIONS_GROUP, ASIDE_TOPIC, 0) == 2

    again = await start_broker(transactions=NEVER)
    await until(lambda: listed(again) == ([], ["T-3", "T-4"]))
    await until(lambda: again.feature(Transactions).ends.is_ready)
    assert await decide(again, "T-3", Outcome.COMMITTED) is Outcome.COMMITTED
    assert await decide(again, "T-1", Outcome.ROLLED_BACK) is not Outcome.ROLLED_BACK
    assert await seen(again) == [b"T-1", b"T-3"]
    (record,) = [each for each in await stored(again, ORDERS) if each.body == b"T-3"]
    assert record.properties["__transactionId__"] == "T-3"
    assert not {"TRAN_MSG", "REAL_TOPIC", "REAL_QID"} & record.properties.keys()


async def test_a_commit_by_an_operator_that_a_death_cut_off_is_finished(
    start_broker: StartBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await aside(start_broker, connect, "T-1")
    refuse(monkeypatch, ASIDE_TOPIC)
    assert await decide(broker, "T-1", Outcome.COMMITTED) is Outcome.COMMITTED
    await broker.stop()
    monkeypatch.undo()

    known = known_at_begin(monkeypatch)
    again = await start_broker(transactions=NEVER)
    assert await decide(again, "T-1", Outcome.ROLLED_BACK) is Outcome.COMMITTED
    assert known == [[]], "nothing ends before it is known to be finished"
    assert listed(again) == ([], [])
    assert await seen(again) == [b"T-1"]


async def test_lists_come_page_by_page(start_broker: StartBroker, connect: Connect) -> None:
    ids = [f"T-{each}" for each in range(5)]
    broker = await aside(start_broker, connect, *ids)
    listing = broker.feature(Transactions).listing
    found: list[str] = []
    offset: int | None = 0
    pages = 0
    while offset is not None:
        page = listing.aside(from_offset=offset, limit=2)
        found += [half.transaction_id for half in page.halves]
        offset, pages = page.next_offset, pages + 1
    assert (found, pages) == (ids, 3)
    assert not listing.aside(Wanted("another")).halves
    assert not listing.open().halves


async def test_what_is_measured(start_broker: StartBroker, connect: Connect) -> None:
    broker = await aside(start_broker, connect, "T-1", "T-2", "T-3")

    async def said(name: str, *labels: str) -> Any:
        return (await broker.figures(Transactions))[name].get(labels)

    assert await said("aerobee_transactions_set_aside") == 3
    assert await said("aerobee_transaction_checks_total") == 3
    await decide(broker, "T-1", Outcome.COMMITTED)
    await decide(broker, "T-2", Outcome.ROLLED_BACK)
    checks = broker.feature(Transactions).checks
    checks.rules = checks.rules._replace(timeout_ms=3_600_000)
    client = V2(broker.channel)
    await begin(client, "T-4")
    await begin(client, "T-5")
    assert await status(client, "T-5", v2.COMMIT) == "OK"

    async def is_one_open() -> bool:
        return bool(await said("rocketmq_half_messages", ORDERS) == 1)

    async def is_old() -> bool:
        return bool(await said("aerobee_open_transaction_age_seconds") > 0.1)

    async def is_none_old() -> bool:
        return bool(await said("aerobee_open_transaction_age_seconds") == 0)

    await until(is_one_open)
    assert await said("rocketmq_commit_messages_total", ORDERS) == 2
    assert await said("rocketmq_rollback_messages_total", ORDERS) == 1
    assert sum((await said("rocketmq_finish_message_latency")).counts) == 2
    await until(is_old)
    await client.call("EndTransaction", end_request("T-4", v2.ROLLBACK))
    await until(is_none_old)


@pytest.mark.parametrize("is_cut_off", [False, True])
async def test_a_hand_over_that_is_called_off_goes_on_asking(
    start_broker: StartBroker,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    is_cut_off: bool,
) -> None:
    """`is_cut_off`: while it still writes down what is done."""
    broker = await start_broker(topics=TOPICS, transactions=SOON)
    is_leaving = asyncio.Event()
    leaving: asyncio.Task[None] | None = None

    def never_ends(*some: object, **how: object) -> asyncio.Future[None]:
        """What it writes down of its progress; before, it is refused."""
        if asyncio.current_task() is not leaving:
            raise Busy("not yet")
        is_leaving.set()
        return asyncio.get_running_loop().create_future()

    if is_cut_off:
        monkeypatch.setattr(ConsumerOffsets, "commit", never_ends)
    producer = await connect(broker, "p", ORDERS)
    await begin(producer.client, "T-1")
    await until(lambda: len(producer.asked) > 2)
    transactions = broker.feature(Transactions)
    if is_cut_off:
        leaving = asyncio.create_task(transactions.leave())
        await is_leaving.wait()
        monkeypatch.undo()
        leaving.cancel()
        await asyncio.wait((leaving,))
    else:
        await transactions.leave()
    assert not transactions.ends.is_ready
    transactions.resume()
    count = len(producer.asked)
    await until(lambda: len(producer.asked) > count + 1)
    assert await status(producer.client, "T-1", v2.COMMIT) == "OK"
    assert await seen(broker) == [b"T-1"]


@pytest.mark.thorough
@pytest.mark.parametrize("engine", Engine)
async def test_streams_that_break_while_they_are_asked_harm_nobody(
    start_broker: StartBroker, connect: Connect, caplog: pytest.LogCaptureFixture, engine: Engine
) -> None:
    settings = TransactionsConfig(timeout_ms=1, check_interval_ms=1, checks_max=100_000)
    grpc = GrpcConfig(engine=engine)
    broker = await start_broker(topics=TOPICS, transactions=settings, grpc=grpc)
    stays = await connect(broker, "stays", ORDERS)
    await begin(stays.client, *(f"T-{each}" for each in range(20)))
    for number in range(10):
        goes = await connect(broker, f"goes-{number}", ORDERS)
        await until(lambda goes=goes: len(goes.asked) > 2)
        await goes.close()
    questions = broker.wiring.rocketmq.service.questions
    await until(lambda: questions.clients.clients == {"stays"})
    count = len(stays.asked)
    await until(lambda: len(stays.asked) > count + 40)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_what_was_set_aside_keeps_the_log_until_it_is_decided(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await aside(start_broker, connect, "T-1")
    (hold,), store = broker.feature(Transactions).holds, broker.store
    (record,) = await stored(broker, ASIDE_TOPIC, 1)

    async def need() -> Any:
        candidate: Any = SimpleNamespace(base=0, end=store.appended_end)
        return await hold.need(candidate, None)  # type: ignore[arg-type]

    found = await need()
    assert (found.position, found.is_unread) == (record.physical_offset, True)
    assert "transaction T-1 of topic orders was set aside" in found.reason
    assert [each.topic for each in hold.losing()] == [ASIDE_TOPIC]
    await decide(broker, "T-1", Outcome.ROLLED_BACK)
    await until(lambda: listed(broker) == ([], []))
    assert await need() is None
