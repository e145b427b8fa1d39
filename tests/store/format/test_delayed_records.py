"""How messages wait and what is delivered: as Apache's broker did it in the golden stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.delay_levels import DELAY_MAX_MS, DelayLevels
from aerobee.store.format.delayed_records import (
    HALF_TOPIC,
    TIMER_TOPIC,
    WAITING_MARKS,
    Delay,
    DelayIllegal,
    DelayRules,
    NotDelayed,
    destination,
    due_record,
    may_wait,
    only_times,
    recall_record,
    recalls,
    requested_delay,
    rolled_record,
    timed_properties,
    timer_due_ms,
    timer_facts,
    timer_slot_ms,
    waiting_properties,
    waiting_record,
)
from aerobee.store.format.properties import (
    decode_properties,
    encode_properties,
    replace_properties,
)
from aerobee.store.format.record import HostAddress, Record, encode_record
from aerobee.store.format.tags import SCHEDULE_TOPIC

NOW = 1_700_000_000_500
RULES = DelayRules()
HOST = HostAddress.parse("192.0.2.1:10911")
BY_BROKER = ("REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS")


def ask(properties: Mapping[str, str], rules: DelayRules = RULES) -> Delay | None:
    return requested_delay(encode_properties(properties), NOW, rules)


def record_of(topic: str, properties: Mapping[str, str], **fields: Any) -> Record:
    return Record(
        encode_record(
            topic=topic.encode(),
            body=b"hello",
            properties=encode_properties(properties),
            born_timestamp_ms=NOW - 7,
            born_host=HOST,
            **fields,
        )
    )


# ------------------------------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("properties", "delay"),
    [
        ({}, None),
        ({"DELAYED": "3", "MY_DELAY": "3"}, None),
        ({"DELAY": "0"}, None),
        ({"DELAY": "-1"}, None),
        ({"DELAY": "1"}, Delay(level=1)),
        ({"DELAY": "18"}, Delay(level=18)),
        ({"DELAY": "19"}, Delay(level=18)),
        ({"DELAY": "999999999"}, Delay(level=18)),
        ({"DELAY": "2", "TIMER_DELAY_SEC": "x"}, Delay(level=2)),
        ({"DELAY": "0", "TIMER_DELAY_MS": "5"}, Delay(deliver_ms=NOW + 5)),
        ({"TIMER_DELAY_SEC": "2"}, Delay(deliver_ms=NOW + 2_000)),
        ({"TIMER_DELAY_MS": "2"}, Delay(deliver_ms=NOW + 2)),
        ({"TIMER_DELIVER_MS": str(NOW + 1)}, Delay(deliver_ms=NOW + 1)),
        ({"TIMER_DELIVER_MS": str(NOW)}, Delay(deliver_ms=NOW)),
        ({"TIMER_DELIVER_MS": "0"}, Delay(deliver_ms=0)),
        ({"TIMER_DELAY_SEC": "-5"}, Delay(deliver_ms=NOW - 5_000)),
        ({"TIMER_DELAY_SEC": "0", "TIMER_DELIVER_MS": str(NOW + 9)}, Delay(deliver_ms=NOW)),
        (
            {"TIMER_DELIVER_MS": str(NOW + 9), "TIMER_DELAY_MS": "7", "TIMER_DELAY_SEC": "1"},
            Delay(deliver_ms=NOW + 1_000),
        ),
        ({"TIMER_DELIVER_MS": str(NOW + 9), "TIMER_DELAY_MS": "7"}, Delay(deliver_ms=NOW + 7)),
        ({"TIMER_DELIVER_MS": str(NOW + 9), "TIMER_OUT_MS": str(NOW)}, None),
        ({"TIMER_DELAY_MS": str(DELAY_MAX_MS)}, Delay(deliver_ms=NOW + DELAY_MAX_MS)),
    ],
)
def test_what_a_message_asks_for(properties: dict[str, str], delay: Delay | None) -> None:
    assert ask(properties) == delay


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"DELAY": "soon"}, "DELAY is no whole number"),
        ({"TIMER_DELAY_MS": "1.5"}, "TIMER_DELAY_MS is no whole number"),
        ({"TIMER_DELIVER_MS": "9" * 19}, "TIMER_DELIVER_MS is no whole number"),
        ({"TIMER_DELAY_MS": str(DELAY_MAX_MS + 1)}, "choose an earlier time"),
        ({"DELAY": "1", "TRAN_MSG": "true"}, "transaction"),
        ({"TIMER_DELAY_MS": "1", "TRAN_MSG": "true"}, "transaction"),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "t+k"}, "time is past"),
    ],
)
def test_what_cannot_be_is_refused(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(DelayIllegal, match=reason):
        ask(properties)


def test_the_rules_are_the_brokers() -> None:
    rules = DelayRules(levels=DelayLevels.parse("1s 2s"), delay_ms_max=1_000)
    assert ask({"DELAY": "3"}, rules) == Delay(level=2)
    assert ask({"TIMER_DELAY_MS": "1000"}, rules) == Delay(deliver_ms=NOW + 1_000)
    with pytest.raises(DelayIllegal, match="at most 1000"):
        ask({"TIMER_DELAY_MS": "1001"}, rules)


def test_parts_of_a_transaction_that_nobody_may_see_do_not_wait() -> None:
    assert [may_wait(sys_flag) for sys_flag in (0x0, 0x4, 0x8, 0xC)] == [True, False, True, False]


# ------------------------------------------------------------------------------------- waiting


@given(st.integers(1, 1 << 42))
def test_a_slot_is_over_when_its_message_is_due_and_not_a_second_before(deliver_ms: int) -> None:
    slot_ms = timer_slot_ms(deliver_ms)
    assert slot_ms % 1_000 == 0
    assert slot_ms < deliver_ms <= slot_ms + 1_000


@pytest.mark.parametrize(
    ("asked", "due"), [(1, 1), (1_000, 1_000), (1_500, 1_500), (1_501, 1_501), (2_500, 2_500)]
)
def test_a_timer_message_is_due_at_the_time_asked_for(asked: int, due: int) -> None:
    original = record_of("t", {"TIMER_DELAY_MS": str(asked)})
    delay = requested_delay(original.properties_bytes, NOW, RULES)
    assert delay is not None
    moved = waiting_record(original, delay, topic="t", queue_id=2, store_host_ipv6=False)
    assert moved[:2] == (TIMER_TOPIC, 0)
    assert timer_due_ms(Record(moved.record)) == NOW + due


def test_without_a_time_in_its_slot_a_message_is_due_when_the_slot_is_over() -> None:
    for deliver in ({}, {"TIMER_DELIVER_MS": "5000"}, {"TIMER_DELIVER_MS": "7001"}):
        assert timer_due_ms(record_of(TIMER_TOPIC, {"TIMER_OUT_MS": "6000", **deliver})) == 7_000
    with pytest.raises(NotDelayed, match="no TIMER_OUT_MS"):
        timer_due_ms(record_of(TIMER_TOPIC, {"TIMER_DELIVER_MS": "5000"}))
    with pytest.raises(NotDelayed, match="whole number"):
        timer_due_ms(record_of(TIMER_TOPIC, {"TIMER_OUT_MS": "x"}))


def test_a_level_takes_requests_for_a_time_out() -> None:
    original = record_of("t", {"DELAY": "77", "TIMER_DELAY_SEC": "5", "TAGS": "a"})
    moved = waiting_record(original, Delay(level=18), topic="t", queue_id=2, store_host_ipv6=False)
    assert moved[:2] == (SCHEDULE_TOPIC, 17)
    assert decode_properties(Record(moved.record).properties_bytes) == {
        **{"TAGS": "a", "REAL_TOPIC": "t", "REAL_QID": "2", "DELAY": "18"}
    }


def test_a_recalling_record_looks_like_apaches(golden_log: Any) -> None:
    _, deletes = timers_of(golden_log)
    assert len(deletes) == 1
    known = deletes[0]
    topic, _, key = (recalls(known) or "").partition("+")
    moved = recall_record(
        topic=topic,
        unique_key=key,
        deliver_ms=timer_due_ms(known),
        now_ms=known.born_timestamp_ms,
        host=HOST,
    )
    ours = Record(moved.record)
    assert moved[:2] == (TIMER_TOPIC, known.queue_id)
    assert ours.body == known.body
    properties = decode_properties(known.properties_bytes)
    for only_apaches in ("BORN_TIMESTAMP", "TRACE_CONTEXT", "PGROUP"):
        properties.pop(only_apaches, None)
    assert decode_properties(ours.properties_bytes) == properties
    assert timer_due_ms(ours) == timer_due_ms(known)


# ------------------------------------------------------------------------------------- golden


def timers_of(golden_log: Any) -> tuple[list[Record], list[Record]]:
    """The messages and the recalling records of the timer topic."""
    waiting = [record for record in golden_log.records() if record.topic == TIMER_TOPIC]
    deletes = [record for record in waiting if recalls(record) is not None]
    return [record for record in waiting if recalls(record) is None], deletes


def same_message(ours: Record, known: Record) -> None:
    assert ours.topic == known.topic
    assert decode_properties(ours.properties_bytes) == decode_properties(known.properties_bytes)
    for name in ("body", "body_crc", "flag", "born_timestamp_ms", "born_host", "reconsume_times"):
        assert getattr(ours, name) == getattr(known, name), name
    assert ours.sys_flag == known.sys_flag


def as_sent(waiting: Record) -> Record:
    """What the client sent, as far as it can be told."""
    changes = dict.fromkeys(name.encode() for name in BY_BROKER)
    return Record(
        encode_record(
            topic=(waiting.property_value("REAL_TOPIC") or "").encode(),
            body=waiting.body,
            properties=replace_properties(waiting.properties_bytes, changes),
            born_timestamp_ms=waiting.born_timestamp_ms,
            born_host=waiting.born_host,
            flag=waiting.flag,
            sys_flag=waiting.sys_flag,
            reconsume_times=waiting.reconsume_times,
            store_host_ipv6=waiting.store_host.is_ipv6,
        )
    )


def test_messages_wait_as_apache_had_them_wait(golden_log: Any) -> None:
    waiting = [
        record for record in golden_log.records() if record.topic in (TIMER_TOPIC, SCHEDULE_TOPIC)
    ]
    assert len(waiting) > 50 or golden_log.name == "crashed-torn"
    for known in waiting:
        sent = as_sent(known)
        delay = requested_delay(sent.properties_bytes, known.store_timestamp_ms, RULES)
        assert delay is not None
        topic, queue_id = destination(known)
        moved = waiting_record(
            sent,
            delay,
            topic=topic,
            queue_id=queue_id,
            store_host_ipv6=known.store_host.is_ipv6,
        )
        assert moved[:2] == (known.topic, known.queue_id)
        same_message(Record(moved.record), known)


def test_messages_are_delivered_as_apache_delivered_them(golden_log: Any) -> None:
    records = golden_log.records()
    waiting = {
        (record.topic, record.unique_key, record.reconsume_times): record
        for record in records
        if record.topic in (TIMER_TOPIC, SCHEDULE_TOPIC) and recalls(record) is None
    }
    delivered = 0
    for known in records:
        was_timer = known.property_value("TIMER_DEQUEUE_MS") is not None
        at = TIMER_TOPIC if was_timer else SCHEDULE_TOPIC
        source = waiting.get((at, known.unique_key, known.reconsume_times))
        real_topic = known.property_value("REAL_TOPIC")
        if source is None or known.topic != real_topic:
            continue
        now_ms = int(known.property_value("TIMER_DEQUEUE_MS") or 0)
        moved = due_record(source, now_ms=now_ms, store_host_ipv6=source.store_host.is_ipv6)
        assert moved[:2] == (known.topic, known.queue_id)
        same_message(Record(moved.record), known)
        if was_timer:
            assert timer_due_ms(source) <= known.store_timestamp_ms, "Apache is never early"
        delivered += 1
    assert delivered >= 8 or golden_log.name == "crashed-torn"


def test_timers_are_due_when_their_senders_said(golden_log: Any) -> None:
    messages, deletes = timers_of(golden_log)
    for record in messages:
        assert timer_due_ms(record) == int(record.property_value("TIMER_DELIVER_MS") or 0)
    for record in deletes:
        assert timer_due_ms(record) == int(record.property_value("TIMER_DELIVER_MS") or 0)


# ------------------------------------------------------------------------------------- moves


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": "t"},
        {"REAL_QID": "1"},
        {"REAL_TOPIC": "t", "REAL_QID": "-1"},
        {"REAL_TOPIC": "t", "REAL_QID": "x"},
        {"REAL_TOPIC": "../t", "REAL_QID": "1"},
        {"REAL_TOPIC": HALF_TOPIC, "REAL_QID": "0"},
        {"REAL_TOPIC": SCHEDULE_TOPIC, "REAL_QID": "0"},
    ],
)
def test_what_names_no_destination_is_not_delivered(properties: dict[str, str]) -> None:
    record = record_of(SCHEDULE_TOPIC, {"DELAY": "1", **properties})
    with pytest.raises(NotDelayed, match="at 0"):
        due_record(record, now_ms=NOW, store_host_ipv6=False)


def test_a_message_is_delivered_with_what_its_sender_gave_it() -> None:
    original = record_of(
        *("t", {"UNIQ_KEY": "K", "KEYS": "a b", "TAGS": "x", "own": "v", "DELAY": "2"}),
        flag=5,
        sys_flag=0x101,
        reconsume_times=2,
    )
    wait = waiting_record(original, Delay(level=2), topic="t", queue_id=3, store_host_ipv6=True)
    moved = due_record(Record(wait.record), now_ms=NOW, store_host_ipv6=False)
    assert moved[:2] == ("t", 3)
    view = Record(moved.record)
    same_message(
        view,
        record_of(
            *("t", {**original.properties, "REAL_TOPIC": "t", "REAL_QID": "3"}),
            flag=5,
            sys_flag=0x101,
            reconsume_times=2,
        ),
    )


def test_a_committed_message_waits_and_is_delivered_as_an_ordinary_one() -> None:
    original = record_of("t", {"DELAY": "2"}, sys_flag=0x8)
    wait = waiting_record(original, Delay(level=2), topic="t", queue_id=0, store_host_ipv6=False)
    assert Record(wait.record).transaction_type == 0, "so that it can carry a number"


def test_a_rolled_timer_counts_its_rolls_and_keeps_its_time(golden_log: Any) -> None:
    messages, _ = timers_of(golden_log)
    for known in messages:
        rolled = known
        for times in ("1", "2"):
            moved = rolled_record(
                rolled, due_ms=timer_due_ms(rolled), now_ms=NOW, store_host_ipv6=False
            )
            assert moved[:2] == (TIMER_TOPIC, 0)
            rolled = Record(moved.record)
            assert rolled.property_value("TIMER_ROLL_TIMES") == times
            assert timer_due_ms(rolled) == timer_due_ms(known)
            assert destination(rolled) == destination(known)
            assert rolled.body == known.body


def test_a_message_with_a_level_is_rolled_into_the_timer_topic_and_keeps_its_time() -> None:
    original = record_of("t", {"DELAY": "18"})
    wait = waiting_record(original, Delay(level=18), topic="t", queue_id=1, store_host_ipv6=False)
    moved = rolled_record(Record(wait.record), due_ms=NOW + 1, now_ms=NOW, store_host_ipv6=False)
    rolled = Record(moved.record)
    assert moved[:2] == (TIMER_TOPIC, 0)
    assert timer_due_ms(rolled) == NOW + 1
    assert destination(rolled) == ("t", 1)
    assert rolled.property_value("DELAY") is None, "Apache's timer would delay it again"


def test_the_marks_of_waiting_can_be_taken_out(golden_log: Any) -> None:
    for record in timers_of(golden_log)[0]:
        left = decode_properties(replace_properties(record.properties_bytes, WAITING_MARKS))
        assert not [name for name in left if name.startswith(("TIMER_", "REAL_", "DELAY"))]


# ------------------------------------------------------------------------------------ batches

_TEXTS = st.sampled_from(
    ("", "a", "DEL", "DELAY", "TIMER_DELIVER_MS", "REAL_TOPIC", "TRAN_MSG", "\x01", "5", "007")
)
_SEGMENTS = st.one_of(
    st.integers(NOW + 1, NOW + 5_000_000).map(lambda ms: f"TIMER_DELIVER_MS\x01{ms}\x02"),
    st.builds(
        "{}\x01{}\x02".format,
        st.sampled_from(
            (
                *("UNIQ_KEY", "TAGS", "DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG"),
                *("XTIMER_DELIVER_MS", "TIMER_OUT_MS", "REAL_QID", "TIMER_DEL_UNIQKEY", "__CRC32#"),
            )
        ),
        _TEXTS,
    ),
)
_PROPERTIES = st.builds(
    lambda segments, cut: "".join(segments).encode()[: -1 if cut else None],
    st.lists(_SEGMENTS, max_size=4),
    st.booleans(),
)
_USUAL = st.builds(
    "UNIQ_KEY\x01{}\x02TIMER_DELIVER_MS\x01{}\x02TAGS\x01{}".format,
    st.integers(),
    st.integers(NOW + 1, NOW + 5_000_000),
    st.sampled_from(("a\x02", "a", "\x02")),
).map(str.encode)


@given(st.lists(st.one_of(_USUAL, _PROPERTIES), min_size=1, max_size=4))
def test_a_batch_with_times_waits_as_each_of_its_messages(properties: list[bytes]) -> None:
    times = only_times(properties)
    if times is None:
        return
    delays = [requested_delay(each, NOW, RULES) for each in properties]
    assert delays == [Delay(deliver_ms=each) for each in times]
    assert timed_properties(properties, times, topic="tölle", queue_id=7) == [
        waiting_properties(each, Delay(deliver_ms=ms), topic="tölle", queue_id=7)
        for each, ms in zip(properties, times, strict=True)
    ]


def test_the_usual_batch_has_only_times() -> None:
    usual = [b"UNIQ_KEY\x01%d\x02TIMER_DELIVER_MS\x01%d\x02" % (n, NOW + n) for n in (1, 2_000)]
    assert only_times(usual) == [NOW + 1, NOW + 2_000]
    assert timed_properties(usual, [NOW + 1, NOW + 2_000], topic="t", queue_id=3) == [
        each + b"REAL_TOPIC\x01t\x02REAL_QID\x013\x02TIMER_OUT_MS\x01%d\x02" % timer_slot_ms(ms)
        for each, ms in zip(usual, (NOW + 1, NOW + 2_000), strict=True)
    ]


def test_a_message_that_may_have_no_room_to_be_moved_is_looked_at_by_itself() -> None:
    long = b"TIMER_DELIVER_MS\x01%d\x02KEYS\x01%b\x02" % (NOW + 1, b"k" * 32_600)
    assert only_times([long]) == [NOW + 1]
    assert timed_properties([long], [NOW + 1], topic="t", queue_id=3) is None


@given(st.lists(_SEGMENTS, max_size=5))
def test_what_a_timer_record_says_is_what_its_properties_say_one_by_one(
    segments: list[str],
) -> None:
    record = Record(
        encode_record(
            topic=TIMER_TOPIC.encode(),
            body=b"",
            properties="".join((*segments, "TIMER_OUT_MS\x015000\x02REAL_TOPIC\x01t\x02")).encode(),
            born_timestamp_ms=NOW,
            born_host=HOST,
        )
    )
    try:
        facts = timer_facts(record)
    except NotDelayed:
        deliver = record.property_value("TIMER_DELIVER_MS") or ""
        assert not deliver.isdecimal()
        return
    assert facts.due_ms == 6_000
    assert facts.recalls == record.property_value("TIMER_DEL_UNIQKEY")
    assert (facts.topic, facts.unique_key) == ("t", record.unique_key or "")
