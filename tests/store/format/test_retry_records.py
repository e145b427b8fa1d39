"""Failed messages: copies as Apache's broker makes them, dead letters that tell why, resends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.dead_letter_fields import (
    Death,
    GroupNameTooLong,
    Origin,
    Resend,
    dead_letter_topic,
    origin_of,
    read_dead_letter,
    resends_of,
    retry_topic,
)
from aerobee.store.format.delayed_records import (
    TIMER_TOPIC,
    Delay,
    Moved,
    due_record,
    rolled_record,
    timer_due_ms,
)
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.properties import decode_properties, encode_properties
from aerobee.store.format.record import (
    HostAddress,
    Record,
    RecordIllegal,
    encode_record,
)
from aerobee.store.format.retry_records import (
    REASON_BYTES_MAX,
    REASON_CLASS_BYTES_MAX,
    RESENDS_KEPT_MAX,
    ResendCircle,
    dead_letter_record,
    resent_record,
    retry_level,
    retry_record,
)
from aerobee.store.format.tags import SCHEDULE_TOPIC, TagsCodes

NOW = 1_700_000_000_500
HOST = HostAddress.parse("192.0.2.1:10911")
KEY = "C0A8000B30393764D8BE2A139A000007"
OWN_NAMES = ("ORIGIN_QUEUE_ID", "ORIGIN_QUEUE_OFFSET")
DEATH = Death("orders", 3, NOW, "ValueError", "no such customer", "consumer-7")


def record_of(topic: str = "t", properties: Mapping[str, str] | None = None, **f: Any) -> Record:
    chosen = {"UNIQ_KEY": KEY, "KEYS": "a b", "TAGS": "x"} if properties is None else properties
    return as_stored(
        Moved(
            topic,
            3,
            encode_record(
                topic=topic.encode(),
                body=b"hello",
                properties=encode_properties(chosen),
                born_timestamp_ms=NOW - 7,
                born_host=HOST,
                **f,
            ),
        )
    )


def as_stored(moved: Moved, *, queue_offset: int = 40, at: int = 4_000) -> Record:
    """The record as it lies in the log."""
    batch = check_batch(
        moved.record,
        [len(moved.record)],
        topic=moved.topic,
        limits=BatchLimits(),
        store_host_ipv6=False,
        tags=TagsCodes(),
    )
    batch.stamp(
        queue_id=moved.queue_id,
        base_queue_offset=queue_offset,
        base_physical_offset=at,
        store_timestamp_ms=NOW,
        store_host=HOST,
    )
    return Record(bytes(batch.buffer))


def retried(record: Record, level: int = 3) -> Record:
    """The copy as the group gets it, after its back-off."""
    waits = as_stored(
        retry_record(record, Delay(level=level), group="orders", store_host_ipv6=False)
    )
    return as_stored(due_record(waits, now_ms=NOW, store_host_ipv6=False))


def died(record: Record, death: Death = DEATH) -> Record:
    return as_stored(dead_letter_record(record, death, store_host_ipv6=False))


# ------------------------------------------------------------------------------------- decisions


@pytest.mark.parametrize(
    ("times", "asked", "level"),
    [(0, 0, 3), (1, 0, 4), (15, 0, 18), (16, 0, None), (99, 0, None), (0, 7, 7), (3, -1, None)],
)
def test_each_failure_waits_a_level_longer_until_the_last(
    times: int, asked: int, level: int | None
) -> None:
    assert retry_level(times, asked_level=asked) == level


def test_a_group_says_how_often() -> None:
    assert retry_level(1, retries_max=2) == 4
    assert retry_level(2, retries_max=2) is None
    assert retry_level(0, retries_max=0) is None


def test_names_that_are_too_long_are_refused_with_the_limit() -> None:
    assert retry_topic("g" * 248) == "%RETRY%" + "g" * 248
    assert dead_letter_topic("g" * 122) == "%DLQ%" + "g" * 122
    with pytest.raises(GroupNameTooLong, match="at most 248 are possible"):
        retry_topic("g" * 249)
    with pytest.raises(GroupNameTooLong, match="at most 122 are possible"):
        dead_letter_topic("g" * 123)


# ------------------------------------------------------------------------------------- golden


def properties_without(record: Record, *names: str) -> dict[str, str]:
    properties = decode_properties(record.properties_bytes)
    for name in names:
        properties.pop(name, None)
    return properties


def test_copies_are_as_apache_made_them(golden_log: Any) -> None:
    records = golden_log.records()
    failed = {
        (record.unique_key, record.reconsume_times): record
        for record in records
        if record.topic not in (SCHEDULE_TOPIC, TIMER_TOPIC)
    }
    compared = 0
    for known in records:
        source = failed.get((known.unique_key, known.reconsume_times - 1))
        if known.topic != SCHEDULE_TOPIC or source is None or known.reconsume_times == 0:
            continue
        target = known.property_value("REAL_TOPIC") or ""
        level = int(known.property_value("DELAY") or 0)
        moved = retry_record(
            source,
            Delay(level=level),
            group=target.removeprefix("%RETRY%"),
            store_host_ipv6=source.store_host.is_ipv6,
        )
        ours = Record(moved.record)
        assert moved[:2] == (known.topic, known.queue_id)
        assert properties_without(ours, *OWN_NAMES) == properties_without(known)
        for name in ("body", "flag", "born_timestamp_ms", "born_host", "reconsume_times"):
            assert getattr(ours, name) == getattr(known, name), name
        compared += 1
    assert compared >= 6


def test_dead_letters_have_what_apaches_have(golden_log: Any) -> None:
    records = golden_log.records()
    letters = [record for record in records if record.topic.startswith("%DLQ%")]
    assert len(letters) >= 2 or golden_log.name == "ipv6-v2"
    for known in letters:
        (source,) = [
            record
            for record in records
            if record.unique_key == known.unique_key
            and record.topic.startswith("%RETRY%")
            and record.reconsume_times == known.reconsume_times - 1
        ]
        group = known.topic.removeprefix("%DLQ%")
        ours = Record(
            dead_letter_record(source, Death(group, 2, NOW), store_host_ipv6=False).record
        )
        assert ours.topic == known.topic
        told = [name for name in decode_properties(ours.properties_bytes) if name[:4] == "DLQ_"]
        marks = ("DELAY", "REAL_TOPIC", "REAL_QID")
        assert properties_without(ours, *told) == properties_without(known, *marks)
        for name in ("body", "flag", "born_timestamp_ms", "born_host", "reconsume_times"):
            assert getattr(ours, name) == getattr(known, name), name

        letter = read_dead_letter(known)
        assert letter.origin == Origin(
            *("AuditTrail", -1, -1), known.property_value("ORIGIN_MESSAGE_ID") or ""
        )
        assert letter.death == Death(group, 2, known.store_timestamp_ms)


# ------------------------------------------------------------------------------------- retry


def test_a_message_keeps_its_id_keys_and_origin_through_all_its_attempts() -> None:
    original = record_of()
    origin = Origin("t", 3, 40, offset_message_id(HOST, 4_000))
    assert origin_of(original) == origin
    record = original
    for attempt in range(1, 17):
        record = retried(record, min(2 + attempt, 18))
        assert (record.topic, record.queue_id) == ("%RETRY%orders", 0)
        assert record.reconsume_times == attempt
        assert origin_of(record) == origin
        assert (record.unique_key, record.keys, record.tag) == (KEY, ("a", "b"), "x")
        assert (record.body, record.born_timestamp_ms) == (b"hello", original.born_timestamp_ms)
    assert len(record.properties_bytes) < 500, "nothing is there twice"


def test_a_back_off_may_be_any_time() -> None:
    waits = as_stored(
        retry_record(
            record_of(properties={"DELAY": "4", "TIMER_DELAY_SEC": "9"}),
            Delay(deliver_ms=NOW + 1_234),
            group="orders",
            store_host_ipv6=False,
        )
    )
    assert waits.topic == TIMER_TOPIC
    assert timer_due_ms(waits) == NOW + 1_234
    assert waits.property_value("DELAY") is None
    back = as_stored(due_record(waits, now_ms=NOW, store_host_ipv6=False))
    assert (back.topic, back.reconsume_times) == ("%RETRY%orders", 1)


def test_the_retry_topic_may_be_one_for_group_and_topic() -> None:
    moved = retry_record(
        *(record_of(), Delay(level=1)),
        group="orders",
        topic="%RETRY%orders_t",
        store_host_ipv6=False,
    )
    assert Record(moved.record).property_value("REAL_TOPIC") == "%RETRY%orders_t"


@pytest.mark.parametrize("delay", [Delay(level=1), Delay(deliver_ms=NOW + 1_234)])
def test_what_can_wait_can_also_move_on_and_be_delivered(delay: Delay) -> None:
    """As often as it is retried: what it had to carry before makes room."""
    size = 32_750
    while True:
        message = record_of(properties={"big": "x" * size})
        try:
            waits = as_stored(retry_record(message, delay, group="orders", store_host_ipv6=False))
            break
        except RecordIllegal:
            size -= 1
    for _ in range(3):
        for _ in range(3):
            waits = as_stored(
                rolled_record(waits, due_ms=NOW + 1_234, now_ms=NOW, store_host_ipv6=False)
            )
        due = as_stored(due_record(waits, now_ms=NOW + 1_234, store_host_ipv6=False))
        assert due.topic == "%RETRY%orders"
        waits = as_stored(retry_record(due, delay, group="orders", store_host_ipv6=False))


def test_a_message_without_room_for_a_copy_is_a_dead_letter() -> None:
    full = record_of(properties={"big": "x" * 32_760})
    with pytest.raises(RecordIllegal, match="32511"):
        retry_record(full, Delay(level=1), group="orders", store_host_ipv6=False)
    letter = died(full)
    assert letter.topic == "%DLQ%orders"
    assert decode_properties(letter.properties_bytes) == {"big": "x" * 32_760}


# ------------------------------------------------------------------------------------- letters


def test_a_dead_letter_tells_where_it_was_and_why_it_died() -> None:
    letter = died(retried(retried(record_of())))
    assert (letter.topic, letter.queue_id, letter.reconsume_times) == ("%DLQ%orders", 0, 3)
    told = read_dead_letter(letter)
    assert told.death == DEATH
    assert told.origin == Origin("t", 3, 40, offset_message_id(HOST, 4_000))
    assert told.resends == ()
    assert letter.property_value("DLQ_ORIGIN_TOPIC") == "t"
    assert letter.property_value("DLQ_ORIGIN_MESSAGE_ID") == KEY
    assert (letter.unique_key, letter.keys, letter.tag) == (KEY, ("a", "b"), "x")
    assert letter.property_value("DELAY") is None, "a tool that sends it again would delay it"


def test_a_message_that_was_never_copied_dies_with_its_own_place_as_origin() -> None:
    told = read_dead_letter(died(record_of()))
    assert told.origin == Origin("t", 3, 40, offset_message_id(HOST, 4_000))


@given(st.text(), st.text(), st.text())
def test_any_reason_becomes_a_short_line(reason_class: str, reason: str, member: str) -> None:
    letter = died(record_of(), Death("orders", 1, NOW, reason_class, reason, member))
    told = read_dead_letter(letter).death
    for text in (told.reason_class, told.reason, told.member):
        assert text.isprintable()
    assert len(told.reason.encode()) <= REASON_BYTES_MAX
    assert len(told.reason_class.encode()) <= REASON_CLASS_BYTES_MAX
    assert read_dead_letter(letter).death.attempts == 1


def test_a_long_reason_is_cut_and_says_so() -> None:
    reason = "line one\n\tline  two\x01\x02" + "ü" * 5_000_000
    told = read_dead_letter(died(record_of(), Death("orders", 1, NOW, "E" * 500, reason))).death
    assert told.reason.startswith("line one line two??üü")
    assert told.reason.endswith("ü…")
    assert REASON_BYTES_MAX - 2 <= len(told.reason.encode()) <= REASON_BYTES_MAX
    assert told.reason_class == "E" * 125 + "…"


@given(st.integers(32_000, 32_763))
def test_what_is_told_gives_way_to_the_messages_own_properties(size: int) -> None:
    own = {"big": "x" * (size - 5)}
    long = Death("orders", 1, NOW, "c" * 100, "r" * 1_000, "m" * 200)
    letter = died(record_of(properties=own), long)
    properties = decode_properties(letter.properties_bytes)
    assert properties["big"] == own["big"]
    if size < 32_300:
        assert properties["RETRY_TOPIC"] == "t", "the origin is the last to go"
    assert "DLQ_REASON" not in properties, "the longest text is the first to go"


@pytest.mark.parametrize("before", ["", "x"])
def test_a_character_is_cut_off_as_a_whole(before: str) -> None:
    letter = died(record_of(), Death("orders", 1, NOW, reason=before + "ü" * 1_000))
    assert set(read_dead_letter(letter).death.reason) == {*before, "ü", "…"}


def test_a_group_with_too_long_a_name_has_no_dead_letters() -> None:
    with pytest.raises(GroupNameTooLong):
        died(record_of(), Death("g" * 123, 1, NOW))


# ------------------------------------------------------------------------------------- resend


def resent(letter: Record, topic: str = "t", now_ms: int = NOW, **options: Any) -> Record:
    return as_stored(
        resent_record(
            letter, topic=topic, queue_id=1, now_ms=now_ms, store_host_ipv6=False, **options
        )
    )


def test_a_resent_letter_is_an_ordinary_message_that_remembers() -> None:
    again = resent(died(retried(record_of())))
    assert (again.topic, again.queue_id, again.reconsume_times) == ("t", 1, 0)
    assert properties_without(again) == {
        **{"UNIQ_KEY": KEY, "KEYS": "a b", "TAGS": "x"},
        "DLQ_RESENDS": f"{NOW}:%DLQ%orders>t",
    }
    assert resends_of(again) == (Resend(NOW, "%DLQ%orders", "t"),)
    assert origin_of(again).topic == "t"


def test_a_circle_is_seen_and_stopped() -> None:
    record = record_of()
    for turn in range(3):
        record = resent(died(retried(record)), now_ms=NOW + turn)
    letter = died(retried(record))
    assert [resend.time_ms for resend in read_dead_letter(letter).resends] == [
        *(NOW, NOW + 1, NOW + 2)
    ]
    with pytest.raises(ResendCircle, match=f"{KEY} was resent from %DLQ%orders to t 3 times"):
        resent(letter)
    assert resent(letter, topic="elsewhere").topic == "elsewhere", "another way is no circle"
    assert resent(letter, resends_max=4).topic == "t"


def test_only_the_newest_resends_are_kept() -> None:
    record = record_of()
    for turn in range(RESENDS_KEPT_MAX + 2):
        record = resent(died(record), topic=f"t{turn}", now_ms=turn)
    kept = resends_of(record)
    assert [resend.time_ms for resend in kept] == list(range(2, RESENDS_KEPT_MAX + 2))


@pytest.mark.parametrize("text", ["", ",", "x:a>b", "5:ab", ":a>b", "٣:a>b", "9" * 20 + ":a>b"])
def test_a_history_that_cannot_be_read_is_none(text: str) -> None:
    assert resends_of(record_of(properties={"DLQ_RESENDS": text, "a": "b"})) == ()
