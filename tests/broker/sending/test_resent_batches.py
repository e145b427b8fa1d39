"""Numbered batches that come again are stored once, whatever came between."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.counters import Counters
from aerobee.broker.sending.acknowledged import AcknowledgedBatches
from aerobee.broker.sending.append import Appender
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.ingest import Ingest
from aerobee.broker.timers.record_rows import HandedTimers
from aerobee.broker.transactions.known import KnownHalves
from aerobee.broker.transactions.pending import PendingHalves
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import Busy
from aerobee.store.engine.statistics import Appended
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.format.batch import BatchLimits
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.delayed_records import TIMER_TOPIC, DelayRules, timer_due_ms
from aerobee.store.format.producer_number import PRODUCER_ID_END, SEQUENCE_END, producer_number
from aerobee.store.format.record import encode_record, iterate_records
from aerobee.store.format.tags import SCHEDULE_TOPIC, TagsCodes
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.property_runs import examples
from tests.support.stores import BORN_HOST, append, log_records, open_store

MakeBatch = Callable[..., broker_pb2.RecordBatch]
OK = common_pb2.OK


def numbered(
    batch: broker_pb2.RecordBatch, producer_id: int, sequence: int
) -> broker_pb2.RecordBatch:
    batch.producer_id = producer_id
    batch.producer_sequence = sequence
    return batch


async def bodies(broker: Any, queue_id: int = 0) -> list[bytes]:
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=queue_id, offset=0))
    return [record.body for record in iterate_records(result.records)]


def place(ack: broker_pb2.SendAck) -> tuple[int, int, int, int]:
    return ack.code, ack.base_queue_offset, ack.base_physical_offset, ack.store_timestamp_ms


async def test_what_comes_again_is_answered_as_the_first_time(
    broker: Any, make_batch: MakeBatch
) -> None:
    def frame(sequence: int) -> broker_pb2.SendFrame:
        return broker_pb2.SendFrame(
            batches=[
                numbered(make_batch("t", 0, b"a", b"b", sequence=sequence), 7, 0),
                numbered(make_batch("t", 0, b"c", sequence=sequence + 1), 7, 2),
                numbered(make_batch("t", 1, b"d", sequence=sequence + 2), 7, 0),
                numbered(make_batch("t", 0, b"e", sequence=sequence + 3), 8, 0),
            ]
        )

    first = await broker.exchange(frame(0))
    again = await broker.exchange(frame(10), frame(20))
    assert [place(ack) for ack in again] == [place(ack) for ack in first] * 2
    assert [ack.sequence for ack in again] == [10, 11, 12, 13, 20, 21, 22, 23]
    assert await bodies(broker) == [b"a", b"b", b"c", b"e"]
    assert await bodies(broker, 1) == [b"d"]


async def test_a_batch_and_its_repetition_in_one_frame_are_stored_once(
    broker: Any, make_batch: MakeBatch
) -> None:
    def one(sequence: int) -> broker_pb2.RecordBatch:
        return numbered(make_batch("t", 0, b"a", b"b", sequence=sequence), 7, 0)

    acks = await broker.exchange(
        broker_pb2.SendFrame(
            batches=[
                one(0),
                numbered(make_batch("t", 0, b"c", sequence=1), 7, 2),
                one(2),
                numbered(make_batch("t", 0, b"d", sequence=3), 7, 3),
                one(4),
            ]
        )
    )
    assert place(acks[0]) == place(acks[2]) == place(acks[4])
    assert [ack.base_queue_offset for ack in acks] == [0, 2, 0, 3, 0]
    assert await bodies(broker) == [b"a", b"b", b"c", b"d"]


async def test_what_cannot_be_placed_is_refused_and_spoils_nothing(
    broker: Any, make_batch: MakeBatch
) -> None:
    await broker.exchange(
        broker_pb2.SendFrame(batches=[numbered(make_batch("t", 0, b"a", b"b"), 7, 10)])
    )
    half = encode_record(
        topic=b"t",
        body=b"half",
        properties=b"",
        born_timestamp_ms=1,
        born_host=BORN_HOST,
        sys_flag=4,
        prepared_transaction_offset=99,
    )
    acks = await broker.exchange(
        broker_pb2.SendFrame(
            batches=[
                numbered(make_batch("t", 0, b"x", b"y", sequence=0), 7, 9),
                numbered(make_batch("t", 0, b"x", sequence=1), PRODUCER_ID_END, 0),
                numbered(make_batch("t", 0, b"x", b"y", sequence=2), 9, SEQUENCE_END - 1),
                numbered(
                    broker_pb2.RecordBatch(
                        sequence=3, topic="t", records=half, record_sizes=[len(half)]
                    ),
                    9,
                    0,
                ),
                numbered(make_batch("t", 0, b"good", sequence=4), 9, 0),
            ]
        )
    )
    assert [ack.code for ack in acks] == [
        common_pb2.OUT_OF_SEQUENCE,
        common_pb2.INVALID_ARGUMENT,
        common_pb2.INVALID_ARGUMENT,
        common_pb2.MESSAGE_ILLEGAL,
        OK,
    ]
    assert await bodies(broker) == [b"a", b"b", b"good"]


async def test_under_synchronous_flush_a_repetition_waits_like_the_first(
    start_broker: Any, sync_flush: Any, make_batch: MakeBatch
) -> None:
    broker = await start_broker(store=sync_flush)
    frame = broker_pb2.SendFrame(batches=[numbered(make_batch("t", 0, b"a"), 7, 0)])
    acks = await broker.exchange(frame, frame, frame)
    assert len({place(ack) for ack in acks}) == 1
    assert {ack.durability for ack in acks} == {broker_pb2.FSYNCED}
    assert await bodies(broker) == [b"a"]


# ---------------------------------------------------------------------------------- ingest alone


class JumpingClock(SystemClock):
    """Ahead of real time, as the test wants."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Taking:
    """Ingest over a small store, and a producer's view of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.busy = False
        self.clock = JumpingClock()
        self.store = open_store(root)
        self.ingest = self._ingest()

    def _ingest(self) -> Ingest:
        topics = TopicTable()
        topics.put(TopicConfig(name="t", read_queue_count=3, write_queue_count=3))
        guard, counters = Guard(topics, broker_name="a"), Counters()
        appender = Appender(
            guard,
            _Refusing(self),
            AcknowledgedBatches(),
            counters,
            on_appended=lambda: None,
            on_store_failed=_no_failure,
        )
        return Ingest(
            guard,
            appender,
            self.store.producers,
            counters,
            self.clock,
            delays=DelayRules(),
            halves=KnownHalves(PendingHalves(), PendingHalves(), pending_max=100),
            timers=HandedTimers(),
            limits=BatchLimits(batch_bytes_max=3_000),
            store_host_ipv6=False,
            tags=TagsCodes(),
            waits=True,
        )

    def restart(self) -> None:
        self.store.confirm(self.store.appended_end)
        self.store.close()
        self.store = open_store(self.root)
        self.ingest = self._ingest()


class _Refusing:
    """The store, when it has no room for now."""

    def __init__(self, taking: Taking) -> None:
        self._taking = taking

    def append(self, batch: CheckedBatch, **place: Any) -> Appended:
        if self._taking.busy:
            raise Busy("the test says so")
        return self._taking.store.append(batch, **place)


def _no_failure(error: Exception) -> None:
    raise AssertionError(error)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 1 << 32), loss=st.floats(0, 0.8), busy=st.floats(0, 0.5))
def test_every_message_is_stored_once_however_often_it_is_sent(
    seed: int, loss: float, busy: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Producers send frames of batches until each has an answer that was not lost on its way."""
    chance = random.Random(seed)
    taking = Taking(tmp_path_factory.mktemp("taking"))
    waiting: list[broker_pb2.RecordBatch] = []
    expected: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    ends: dict[tuple[int, tuple[str, int]], int] = {}
    for number in range(chance.randrange(1, 60)):
        producer_id, queue_id = chance.randrange(1, 4), chance.randrange(3)
        count = chance.randrange(1, 17 if chance.random() < 0.2 else 4)
        properties, place = chance.choice(
            [
                (b"", ("t", queue_id)),
                (b"", ("t", queue_id)),
                (b"DELAY\x013\x02", (SCHEDULE_TOPIC, 2)),
                (b"TIMER_DELIVER_MS\x01%d\x02" % (taking.clock.now_ms() + 1_000), (TIMER_TOPIC, 0)),
            ]
        )
        first = ends.get((producer_id, place), 0)
        ends[producer_id, place] = first + count
        texts = [
            b"%d-%s-%d-%d" % (producer_id, place[0].encode(), place[1], first + at)
            for at in range(count)
        ]
        waiting.append(_batch(number, producer_id, first, queue_id, texts, properties))
        expected[place] += texts
    answers: dict[int, set[tuple[int, int]]] = defaultdict(set)
    while waiting:
        chance.shuffle(waiting)
        frame = [chance.choice(waiting) for _ in range(chance.randrange(1, 9))]
        taking.busy = chance.random() < busy
        receipts = taking.ingest.accept(frame)
        for batch, receipt in zip(frame, receipts, strict=True):
            if isinstance(receipt.error, Busy):
                continue
            assert receipt.error is None
            assert receipt.wait_end > receipt.base_physical_offset
            answers[batch.sequence].add((receipt.base_queue_offset, receipt.base_physical_offset))
            if chance.random() >= loss and batch in waiting:
                waiting.remove(batch)
        if chance.random() < 0.1:
            taking.restart()
        if chance.random() < 0.1:
            taking.clock.ahead_ms += 700
    assert all(len(places) == 1 for places in answers.values())
    found: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for record in log_records(taking.store):
        place = record.topic, record.queue_id
        assert record.queue_offset == len(found[place])
        found[place].append(record.body)
    assert {place: sorted(texts) for place, texts in found.items()} == {
        place: sorted(texts) for place, texts in expected.items()
    }
    taking.store.close()


def _batch(
    sequence: int,
    producer_id: int,
    first: int,
    queue_id: int,
    texts: list[bytes],
    properties: bytes = b"",
) -> broker_pb2.RecordBatch:
    records = [
        encode_record(
            topic=b"t", body=text, properties=properties, born_timestamp_ms=1, born_host=BORN_HOST
        )
        for text in texts
    ]
    return broker_pb2.RecordBatch(
        sequence=sequence,
        topic="t",
        queue_id=queue_id,
        records=b"".join(records),
        record_sizes=[len(record) for record in records],
        producer_id=producer_id,
        producer_sequence=first,
    )


def test_a_delayed_batch_that_comes_again_when_its_time_is_past_is_found_where_it_waits(
    tmp_path: Path,
) -> None:
    taking = Taking(tmp_path)
    soon = b"TIMER_DELIVER_MS\x01%d\x02" % (taking.clock.now_ms() + 60_000)
    batch = _batch(0, 7, 0, 1, [b"a", b"b"], soon)
    (first,) = taking.ingest.accept([batch])
    taking.clock.ahead_ms = 120_000
    for again in taking.ingest.accept([batch, batch]):
        assert again.error is None
        assert again.base_physical_offset == first.base_physical_offset
    # A lost one that comes for the first time then waits as well, due at once.
    (late,) = taking.ingest.accept([_batch(1, 7, 2, 1, [b"c"], soon)])
    assert (late.error, late.base_queue_offset) == (None, 2)
    records = log_records(taking.store)
    assert [(record.topic, record.body) for record in records] == [
        (TIMER_TOPIC, b"a"),
        (TIMER_TOPIC, b"b"),
        (TIMER_TOPIC, b"c"),
    ]
    assert timer_due_ms(records[-1]) == late.deliver_ms > taking.clock.now_ms() - 60_000
    # Without a number it goes to its topic at once.
    (receipt,) = taking.ingest.accept([_batch(2, 0, 0, 1, [b"d"], soon)])
    assert (receipt.error, receipt.deliver_ms) == (None, 0)
    assert log_records(taking.store)[-1].topic == "t"
    taking.store.close()


def test_where_a_batch_waits_its_numbers_are_apart_from_those_of_its_queue(tmp_path: Path) -> None:
    taking = Taking(tmp_path)
    level = b"DELAY\x013\x02"
    frame = [
        _batch(0, 7, 0, 1, [b"plain"]),
        _batch(1, 7, 0, 1, [b"later"], level),
        _batch(2, 7, 0, 1, [b"much later"], b"DELAY\x0118\x02"),
        _batch(3, 7, 1, 1, [b"plain too"]),
        _batch(4, 7, 1, 2, [b"later too"], level),
    ]
    first = taking.ingest.accept(frame)
    again = taking.ingest.accept(list(reversed(frame)))
    assert [receipt.error for receipt in first] == [None] * 5
    assert [receipt.base_physical_offset for receipt in reversed(again)] == [
        receipt.base_physical_offset for receipt in first
    ]
    bodies = sorted(record.body for record in log_records(taking.store))
    assert bodies == [b"later", b"later too", b"much later", b"plain", b"plain too"]
    taking.store.close()


@pytest.mark.parametrize("others_behind", [False, True])
def test_what_a_crash_left_of_a_batch_is_told_and_the_rest_is_stored_once(
    tmp_path: Path, others_behind: bool
) -> None:
    """A promoted slave may have the first records of a batch only, and others after them."""
    taking = Taking(tmp_path)
    texts = [b"%d" % number for number in range(8)]
    (left,) = taking.ingest.accept([_batch(0, 7, 5, 1, texts[:3])])
    left_end = taking.store.appended_end
    if others_behind:
        taking.ingest.accept([_batch(1, 8, 0, 1, [b"other"])])
    taking.restart()
    whole = _batch(2, 7, 5, 1, texts)
    whole.skip_wait = True
    for receipt in taking.ingest.accept([whole, whole]):
        assert (receipt.error, receipt.stored_count) == (None, 3)
        assert receipt.base_queue_offset == left.base_queue_offset
        assert receipt.base_physical_offset == left.base_physical_offset
        assert receipt.wait_end == left_end, "it is told only once it is confirmed"
    rest = _batch(3, 7, 13, 1, texts[3:])
    first, again = taking.ingest.accept([rest, rest])
    assert first.error is again.error is None
    assert first.stored_count == again.stored_count == 0
    assert first.base_queue_offset == again.base_queue_offset == 3 + others_behind
    stored = [record.body for record in log_records(taking.store)]
    assert stored == texts[:3] + [b"other"] * others_behind + texts[3:]
    taking.store.close()


async def test_a_client_is_told_how_much_of_a_batch_is_stored(
    broker: Any, make_batch: MakeBatch
) -> None:
    def frame(*bodies: bytes) -> broker_pb2.SendFrame:
        return broker_pb2.SendFrame(batches=[numbered(make_batch("t", 0, *bodies), 7, 0)])

    (first,) = await broker.exchange(frame(b"a", b"b"))
    (again,) = await broker.exchange(frame(b"a", b"b", b"c"))
    assert place(again) == place(first)
    assert (first.stored_count, again.stored_count) == (0, 2)
    assert await bodies(broker) == [b"a", b"b"]


def test_numbers_come_from_the_batch_alone(tmp_path: Path) -> None:
    """What a client left in the field does not count, and old stores have none."""
    taking = Taking(tmp_path)
    record = encode_record(
        topic=b"t",
        body=b"x",
        properties=b"",
        born_timestamp_ms=1,
        born_host=BORN_HOST,
        prepared_transaction_offset=producer_number(7, 0),
    )
    forged = broker_pb2.RecordBatch(topic="t", records=record, record_sizes=[len(record)])
    assert [each.error for each in taking.ingest.accept([forged, forged])] == [None, None]
    append(taking.store, "t", 0, b"y")
    taking.restart()
    assert len(taking.store.producers.windows) == 0
    assert {record.prepared_transaction_offset for record in log_records(taking.store)} == {0}
    taking.store.close()
