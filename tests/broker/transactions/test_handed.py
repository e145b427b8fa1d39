"""A master hands what it appends to its follower: the same as a replica reads in its log, once it
is confirmed, and in the queue's order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.reading.handed import Handed
from aerobee.broker.sending.halves import half_batch
from aerobee.broker.transactions.known import KnownHalves
from aerobee.broker.transactions.pending import PendingHalves
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import iterate_records
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.tags import TagsCodes
from aerobee.store.format.transaction_records import half_of
from tests.support.property_runs import examples

HOST = HostAddress.parse("127.0.0.1:10911")
LIMITS = BatchLimits(body_bytes_max=1 << 20, record_bytes_max=1 << 20, batch_bytes_max=1 << 22)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9)
MESSAGES = st.fixed_dictionaries(
    {"UNIQ_KEY": WORDS},
    optional={
        "PGROUP": WORDS,
        "TAGS": WORDS,
        "KEYS": WORDS,
        "CHECK_IMMUNITY_TIME_IN_SECONDS": st.sampled_from(["5", "many", "0"]),
        "TRANSACTION_CHECK_TIMES": st.sampled_from(["2", "x"]),
        "TRAN_PREPARED_QUEUE_OFFSET": WORDS,
        "__transactionId__": WORDS,
        "colour": WORDS,
    },
)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(MESSAGES, st.binary(max_size=20)), min_size=1, max_size=4))
def test_a_half_message_is_handed_as_it_is_read(
    messages: list[tuple[dict[str, str], bytes]],
) -> None:
    records = [
        encode_record(
            topic=b"orders",
            body=body,
            properties=encode_properties(properties),
            born_timestamp_ms=7 + number,
            born_host=HOST,
            store_host_ipv6=False,
        )
        for number, (properties, body) in enumerate(messages)
    ]
    tags = TagsCodes()

    def checked(topic: str, data: bytes, sizes: list[int]):  # type: ignore[no-untyped-def]
        return check_batch(
            data, sizes, topic=topic, limits=LIMITS, store_host_ipv6=False, tags=tags
        )

    client = checked("orders", b"".join(records), [len(each) for each in records])
    half = half_batch(client, list(range(len(records))))
    stored = checked(half.batch.topic, half.batch.records, half.batch.sizes)
    stored.stamp(
        queue_id=0,
        base_queue_offset=40,
        base_physical_offset=1_000,
        store_timestamp_ms=99,
        store_host=HOST,
    )
    known = KnownHalves(PendingHalves(), PendingHalves(), pending_max=10)
    position = 1_000
    for offset, (size, (_, message)) in enumerate(
        zip(half.batch.sizes, half.messages, strict=True), 40
    ):
        known.stored(message, Appended(offset, position, position + size, 99))
        position += size

    for record in iterate_records(bytes(stored.buffer)):
        assert known.handed.take(record.queue_offset, position) == half_of(record)
    assert len(known.handed) == 0


def test_nothing_is_taken_before_it_is_confirmed_or_past_what_is_missing() -> None:
    handed: Handed[str] = Handed()
    handed.append(3, 100, "three")
    handed.append(5, 300, "five")

    assert handed.take(2, 1_000) is None
    assert handed.take(3, 99) is None
    assert handed.take(3, 100) == "three"
    assert handed.take(4, 1_000) is None
    assert handed.take(5, 300) == "five"


def test_what_was_read_is_not_taken_again() -> None:
    handed: Handed[str] = Handed()
    for offset in range(3):
        handed.append(offset, 10, str(offset))

    assert handed.take(2, 10) == "2"
    assert len(handed) == 0
    handed.append(3, 20, "3")
    handed.clear()
    assert handed.take(3, 20) is None
