"""A master hands the rows of delayed messages to its index: the same as are read from the log."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.sending.delays import waiting_batch
from aerobee.broker.timers.record_rows import HandedTimers, rows_of
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.delayed_records import TIMER_TOPIC, DelayRules
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import iterate_records
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.tags import TagsCodes
from tests.support.property_runs import examples

HOST = HostAddress.parse("127.0.0.1:10911")
NOW_MS = 1_700_000_000_000
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9)
TIMES = st.one_of(
    st.integers(-5_000, 5_000).map(lambda ms: {"TIMER_DELIVER_MS": str(NOW_MS + ms)}),
    st.integers(1, 9_999).map(lambda ms: {"TIMER_DELAY_MS": str(ms)}),
    st.integers(1, 99).map(lambda s: {"TIMER_DELAY_SEC": str(s)}),
)
OTHERS = st.fixed_dictionaries(
    {}, optional={"UNIQ_KEY": WORDS, "KEYS": WORDS, "TAGS": WORDS, "a DELAY": WORDS}
)


def checked(topic: str, data: bytes, sizes: Sequence[int]) -> CheckedBatch:
    return check_batch(
        data, sizes, topic=topic, limits=BatchLimits(), store_host_ipv6=False, tags=TagsCodes()
    )


def delayed(messages: Sequence[dict[str, str]], topic: str) -> tuple[CheckedBatch, list[int]]:
    """As they wait, and when they are due."""
    records = [
        encode_record(
            topic=topic.encode(),
            body=b"body",
            properties=encode_properties(properties),
            born_timestamp_ms=7,
            born_host=HOST,
            store_host_ipv6=False,
        )
        for properties in messages
    ]
    waiting = waiting_batch(
        checked(topic, b"".join(records), [len(each) for each in records]),
        3,
        now_ms=NOW_MS,
        rules=DelayRules(DelayLevels((1_000,))),
        waits_if_past=True,
    )
    assert waiting is not None
    assert waiting.topic == TIMER_TOPIC
    return checked(TIMER_TOPIC, waiting.records, waiting.sizes), waiting.deliver_ms


def appended(batch: CheckedBatch, offset: int, position: int) -> Appended:
    batch.stamp(
        queue_id=0,
        base_queue_offset=offset,
        base_physical_offset=position,
        store_timestamp_ms=NOW_MS,
        store_host=HOST,
    )
    return Appended(offset, position, position + batch.size, NOW_MS)


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(TIMES, OTHERS).map(lambda both: {**both[1], **both[0]}), min_size=1),
    st.sampled_from(["orders", "Bestellungen_ä"]),
)
def test_rows_are_handed_as_they_are_read(messages: list[dict[str, str]], topic: str) -> None:
    batch, due_ms = delayed(messages, topic)
    handed = HandedTimers()
    placed = appended(batch, 40, 1_000)
    handed.stored(topic, batch, due_ms, placed)

    rows, refused = rows_of(iterate_records(bytes(batch.buffer)))

    assert not refused
    assert handed.begins_after(38) == 2
    assert handed.take(40, placed.end - 1) is None, "not before it is confirmed"
    taken = handed.take(40, placed.end)
    assert taken is not None
    assert taken.tobytes() == rows.tobytes()


def test_only_so_many_rows_are_kept() -> None:
    handed = HandedTimers(rows_max=3)
    for offset in (0, 2, 4):
        batch, due_ms = delayed([{"TIMER_DELAY_SEC": "5"}] * 2, "orders")
        handed.stored("orders", batch, due_ms, appended(batch, offset, 1_000 * offset))

    assert handed.begins_after(0) == 0
    assert handed.begins_after(2) is None, "the others are read"
    assert handed.take(2, 99_999) is None
    batch, due_ms = delayed([{"TIMER_DELAY_SEC": "5"}] * 2, "orders")
    handed.stored("orders", batch, due_ms, appended(batch, 6, 9_000))
    assert handed.begins_after(6) == 0
    handed.clear()
    assert handed.begins_after(6) is None
