"""Which messages of a client's batch arrive later, and where they wait until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.sending.delays import (
    BatchPart,
    may_ask_for_delay,
    part_numbers,
    split_delayed,
)
from aerobee.store_format.batch import BatchFault, BatchIllegal, BatchLimits, check_batch
from aerobee.store_format.checked_batch import CheckedBatch
from aerobee.store_format.consume_queue_entry import unpack_entries
from aerobee.store_format.delayed_records import TIMER_TOPIC, DelayRules, due_record
from aerobee.store_format.producer_number import ProducerRun, producer_numbers
from aerobee.store_format.properties import encode_properties
from aerobee.store_format.record import HostAddress, Record, iterate_records
from aerobee.store_format.tags import SCHEDULE_TOPIC, TagsCodes
from tests.support.stores import batch_with

NOW = 1_700_000_000_500
STORED = NOW + 3
RULES = DelayRules()
STORE_HOST = HostAddress.parse("192.0.2.17:10911")

LEVEL_3 = {"DELAY": "3", "TAGS": "a"}
SOON = {"TIMER_DELAY_MS": "700", "TAGS": "a"}
LATER = {"TIMER_DELIVER_MS": str(NOW + 60_000)}
PAST = {"TIMER_DELIVER_MS": "5", "TAGS": "a"}
PLAIN = {"TAGS": "a", "KEYS": "DELETED k"}


def batch(*properties: Mapping[str, str], sys_flag: int = 0) -> CheckedBatch:
    encoded = [encode_properties(each) for each in properties]
    return batch_with("t", encoded, sys_flag=sys_flag)


def split(checked: CheckedBatch) -> list[BatchPart]:
    return split_delayed(checked, 5, now_ms=NOW, rules=RULES)


def records_of(checked: CheckedBatch) -> list[bytes]:
    return [record.raw for record in iterate_records(checked.buffer)]


def checked_again(part: BatchPart) -> CheckedBatch:
    """As it goes into the log."""
    return check_batch(
        b"".join(part.records),
        [len(record) for record in part.records],
        topic=part.topic,
        limits=BatchLimits(),
        store_host_ipv6=False,
        tags=TagsCodes(),
    )


def stored(part: BatchPart) -> tuple[list[Record], list[int]]:
    """The records as they lie in the log, and the tags codes of their queue's entries."""
    checked = checked_again(part)
    checked.stamp(
        queue_id=part.queue_id,
        base_queue_offset=0,
        base_physical_offset=0,
        store_timestamp_ms=STORED,
        store_host=STORE_HOST,
    )
    codes = unpack_entries(checked.dispatch_entries(0))[2].tolist()
    return list(iterate_records(bytes(checked.buffer))), codes


@pytest.mark.parametrize("times", [1, 40])
@pytest.mark.parametrize("properties", [PLAIN, PAST, {"DELAY": "0"}])
def test_a_batch_that_asks_for_nothing_is_left_alone(
    properties: Mapping[str, str], times: int
) -> None:
    assert split(batch(*[properties] * times)) == []


def test_names_that_only_look_alike_do_not_matter() -> None:
    assert not may_ask_for_delay([b"TAGS\x01DE\x02", b"L\x01AY\x02"])
    assert may_ask_for_delay([b"TAGS\x01DELAY\x02"])
    assert split(batch({"TAGS": "DELAY"}, {"MY_DELAY": "3"})) == []


def test_a_level_waits_in_its_queue_whose_entries_hold_the_time_of_delivery() -> None:
    (part,) = split(batch(LEVEL_3, LEVEL_3))
    assert (part.topic, part.queue_id, part.level) == (SCHEDULE_TOPIC, 2, 3)
    assert (part.indexes, part.deliver_ms) == ([0, 1], [])
    records, codes = stored(part)
    assert codes == [STORED + RULES.levels.delay_ms(3)] * 2
    assert [record.property_value("REAL_TOPIC") for record in records] == ["t", "t"]
    assert [record.property_value("REAL_QID") for record in records] == ["5", "5"]


def test_a_time_waits_in_the_timer_topic_under_its_own_tag() -> None:
    (part,) = split(batch(SOON, LATER))
    assert (part.topic, part.queue_id, part.level) == (TIMER_TOPIC, 0, 0)
    assert part.deliver_ms == [NOW + 700, NOW + 60_000]
    records, codes = stored(part)
    assert codes == [TagsCodes().code_of(b"a"), 0]
    assert [record.property_value("TIMER_OUT_MS") for record in records] == [
        "1700000001000",
        "1700000060000",
    ]


@pytest.mark.parametrize("times", [1, 20])
def test_a_mixed_batch_falls_into_parts_in_the_order_of_their_first_records(times: int) -> None:
    mixed = batch(*[PLAIN, LEVEL_3, SOON, PAST, LEVEL_3, {"DELAY": "1"}, LATER] * times)
    parts = split(mixed)
    assert [(part.topic, part.queue_id) for part in parts] == [
        ("t", 5),
        (SCHEDULE_TOPIC, 2),
        (TIMER_TOPIC, 0),
        (SCHEDULE_TOPIC, 0),
    ]
    assert [part.indexes[:2] for part in parts] == [[0, 3], [1, 4], [2, 6], [5, 12][:times]]
    assert sorted(index for part in parts for index in part.indexes) == list(range(7 * times))
    raw = records_of(mixed)
    assert parts[0].records == [raw[index] for index in parts[0].indexes], "stored as they came"
    for part in parts:
        assert checked_again(part).count == len(part.indexes)


def test_what_waits_is_delivered_to_the_clients_queue_with_its_body() -> None:
    mixed = batch(LEVEL_3, SOON)
    bodies = [record.body for record in iterate_records(mixed.buffer)]
    delivered = []
    for part in split(mixed):
        for record in stored(part)[0]:
            moved = due_record(record, now_ms=NOW, store_host_ipv6=False)
            assert moved[:2] == ("t", 5)
            delivered.append(Record(moved.record).body)
    assert delivered == bodies


def test_committed_messages_wait_and_unseen_parts_of_transactions_do_not() -> None:
    assert split(batch(LEVEL_3, sys_flag=0x4)) == []
    assert split(batch(LEVEL_3, sys_flag=0xC)) == []
    assert len(split(batch(LEVEL_3, sys_flag=0x8))) == 1


@pytest.mark.parametrize(
    ("wrong", "kind", "reason"),
    [
        ({"DELAY": "x"}, BatchFault.DELAY, "record 1: .* whole number"),
        ({"TIMER_DELAY_SEC": "9" * 12}, BatchFault.DELAY, "record 1: .* earlier time"),
        ({"DELAY": "1", "TRAN_MSG": "true"}, BatchFault.DELAY, "record 1: .* transaction"),
        (
            {"DELAY": "1", "big": "x" * 32_740},
            BatchFault.PROPERTIES_TOO_LARGE,
            "record 1: with what it needs to wait, .* exceed the limit of 32767",
        ),
    ],
)
def test_a_record_that_cannot_wait_refuses_the_batch_and_is_named(
    wrong: Mapping[str, str], kind: BatchFault, reason: str
) -> None:
    properties: Sequence[Mapping[str, str]] = [PLAIN, wrong, PLAIN]
    with pytest.raises(BatchIllegal, match=reason) as refused:
        split(batch(*properties))
    assert refused.value.kind is kind


RUNS = st.lists(
    st.builds(ProducerRun, st.sampled_from([0, 7, 8]), st.integers(0, 1_000), st.integers(1, 5)),
    min_size=1,
    max_size=6,
)


@given(RUNS, st.data())
def test_each_part_keeps_the_numbers_of_its_records(
    runs: list[ProducerRun], data: st.DataObject
) -> None:
    numbers = producer_numbers(runs)
    indexes = sorted(data.draw(st.sets(st.sampled_from(range(len(numbers))), min_size=1)))
    part = part_numbers(indexes, runs)
    assert producer_numbers(part).tolist() == numbers[indexes].tolist()


def test_numbers_that_follow_each_other_are_one_run() -> None:
    runs = [ProducerRun(7, 10, 4), ProducerRun(7, 14, 2), ProducerRun(8, 0, 1)]
    assert part_numbers([1, 2, 4, 6], runs) == [
        ProducerRun(7, 11, 2),
        ProducerRun(7, 14, 1),
        ProducerRun(8, 0, 1),
    ]
    assert part_numbers(range(7), runs) == [ProducerRun(7, 10, 6), ProducerRun(8, 0, 1)]
