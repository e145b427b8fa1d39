"""Which messages of a client's batch arrive later, and where they wait until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from aerobee.broker.sending.delays import WaitingBatch, may_ask_for_delay, waiting_batch
from aerobee.store.format.batch import BatchFault, BatchIllegal, BatchLimits, check_batch
from aerobee.store.format.batch_properties import BatchProperties
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.consume_queue_entry import unpack_entries
from aerobee.store.format.delayed_records import TIMER_TOPIC, DelayRules, due_record
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, Record, iterate_records
from aerobee.store.format.tags import SCHEDULE_TOPIC, TagsCodes
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


def waiting(checked: CheckedBatch, *, waits_if_past: bool = False) -> WaitingBatch | None:
    return waiting_batch(checked, 5, now_ms=NOW, rules=RULES, waits_if_past=waits_if_past)


def found(checked: CheckedBatch, *, waits_if_past: bool = False) -> WaitingBatch:
    waits = waiting(checked, waits_if_past=waits_if_past)
    assert waits is not None
    return waits


def checked_again(part: WaitingBatch) -> CheckedBatch:
    """As it goes into the log."""
    return check_batch(
        part.records,
        part.sizes,
        topic=part.topic,
        limits=BatchLimits(),
        store_host_ipv6=False,
        tags=TagsCodes(),
    )


def stored(part: WaitingBatch) -> tuple[list[Record], list[int]]:
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
    assert waiting(batch(*[properties] * times)) is None


def joined(*properties: bytes) -> bytes:
    return BatchProperties.of(list(properties)).joined


def test_names_that_only_look_alike_do_not_matter() -> None:
    assert not may_ask_for_delay(joined(b"TAGS\x01DE\x02", b"L\x01AY\x02"))
    assert not may_ask_for_delay(joined(b"TAGS\x01DELAY\x02MODEL\x01x\x02"))
    assert may_ask_for_delay(joined(b"TAGS\x01a\x02", b"DELAY\x013"))
    assert waiting(batch({"TAGS": "DELAY"}, {"MY_DELAY": "3"})) is None


def test_a_level_waits_in_its_queue_whose_entries_hold_the_time_of_delivery() -> None:
    part = found(batch(LEVEL_3, LEVEL_3))
    assert (part.topic, part.queue_id) == (SCHEDULE_TOPIC, 2)
    assert (len(part.sizes), part.deliver_ms) == (2, [])
    records, codes = stored(part)
    assert codes == [STORED + RULES.levels.delay_ms(3)] * 2
    assert [record.property_value("REAL_TOPIC") for record in records] == ["t", "t"]
    assert [record.property_value("REAL_QID") for record in records] == ["5", "5"]


def test_a_time_waits_in_the_timer_topic_under_its_own_tag() -> None:
    part = found(batch(SOON, LATER))
    assert (part.topic, part.queue_id) == (TIMER_TOPIC, 0)
    assert part.deliver_ms == [NOW + 700, NOW + 60_000]
    records, codes = stored(part)
    assert codes == [TagsCodes().code_of(b"a"), 0]
    assert [record.property_value("TIMER_OUT_MS") for record in records] == [
        "1700000001000",
        "1700000060000",
    ]


@pytest.mark.parametrize("other", [PLAIN, SOON, {"DELAY": "1"}])
@pytest.mark.parametrize("waits_if_past", [True, False])
def test_messages_that_would_wait_in_different_queues_are_no_batch(
    other: Mapping[str, str], waits_if_past: bool
) -> None:
    for mixed in ((LEVEL_3, LEVEL_3, other), (LEVEL_3, other, LEVEL_3)):
        with pytest.raises(BatchIllegal, match="in batches of their own") as refused:
            waiting(batch(*mixed), waits_if_past=waits_if_past)
        assert refused.value.kind is BatchFault.DELAY


def test_levels_that_are_too_high_are_the_highest() -> None:
    part = found(batch({"DELAY": "18"}, {"DELAY": "99"}))
    assert (part.topic, part.queue_id) == (SCHEDULE_TOPIC, 17)


def test_a_time_that_is_past_waits_beside_others_or_if_it_may_come_again() -> None:
    assert waiting(batch(PAST, PAST)) is None
    assert found(batch(PAST, SOON)).deliver_ms == [NOW, NOW + 700]
    numbered = found(batch(PAST, PAST), waits_if_past=True)
    assert (numbered.topic, numbered.deliver_ms) == (TIMER_TOPIC, [NOW, NOW])
    assert waiting(batch(PLAIN), waits_if_past=True) is None


@pytest.mark.parametrize("asked", [LEVEL_3, SOON])
def test_what_waits_is_delivered_to_the_clients_queue_with_its_body(
    asked: Mapping[str, str],
) -> None:
    original = batch(asked, asked)
    bodies = [record.body for record in iterate_records(original.buffer)]
    delivered = []
    for record in stored(found(original))[0]:
        moved = due_record(record, now_ms=NOW, store_host_ipv6=False)
        assert moved[:2] == ("t", 5)
        delivered.append(Record(moved.record).body)
    assert delivered == bodies


def test_committed_messages_wait_and_unseen_parts_of_transactions_do_not() -> None:
    assert waiting(batch(LEVEL_3, sys_flag=0x4)) is None
    assert waiting(batch(LEVEL_3, sys_flag=0xC)) is None
    assert len(found(batch(LEVEL_3, sys_flag=0x8)).sizes) == 1


@pytest.mark.parametrize(
    ("wrong", "kind", "reason"),
    [
        ({"DELAY": "x"}, BatchFault.DELAY, "record 1: .* whole number"),
        ({"TIMER_DELAY_SEC": "9" * 12}, BatchFault.DELAY, "record 1: .* earlier time"),
        ({"DELAY": "1", "TRAN_MSG": "true"}, BatchFault.DELAY, "record 1: .* transaction"),
        (
            {"DELAY": "3", "big": "x" * 32_740},
            BatchFault.PROPERTIES_TOO_LARGE,
            "record 1: with the properties that it needs to wait, .* exceed the limit of 32511",
        ),
    ],
)
def test_a_record_that_cannot_wait_refuses_the_batch_and_is_named(
    wrong: Mapping[str, str], kind: BatchFault, reason: str
) -> None:
    properties: Sequence[Mapping[str, str]] = [LEVEL_3, wrong, LEVEL_3]
    with pytest.raises(BatchIllegal, match=reason) as refused:
        waiting(batch(*properties))
    assert refused.value.kind is kind
