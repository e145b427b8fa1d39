"""A record once more: what was the application's stays, for hosts of both families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.properties import decode_properties, replace_properties
from aerobee.store.format.property_crc import has_property_crc, reserve_property_crc
from aerobee.store.format.record import Record, RecordIllegal
from aerobee.store.format.record_rewrite import rewrite_batch, rewrite_record
from aerobee.store.format.tags import TagsCodes

LIMITS = BatchLimits(body_bytes_min=0)


@given(st.data(), st.booleans(), st.sampled_from([None, 0, 17]))
def test_a_rewritten_record_is_the_one_that_would_have_been_sent(
    messages: st.SearchStrategy[Any],
    reference: Callable[..., bytes],
    data: st.DataObject,
    store_host_ipv6: bool,
    times: int | None,
) -> None:
    message = data.draw(messages)
    topic = data.draw(st.sampled_from([b"Other", b"%RETRY%" + b"g" * 140]))
    stored = reference(message, queue_id=3, queue_offset=9, physical_offset=77, store_timestamp=5)
    rewritten = rewrite_record(
        Record(b"before" + stored, 6),
        topic=topic,
        properties=b"a\x01b\x02",
        store_host_ipv6=store_host_ipv6,
        reconsume_times=times,
    )
    wanted = replace(
        message,
        topic=topic,
        properties=b"a\x01b\x02",
        sys_flag=message.sys_flag & ~0xC,
        store_host_ipv6=store_host_ipv6,
        reconsume_times=message.reconsume_times if times is None else times,
    )
    view = Record(rewritten)
    again = reference(
        wanted,
        queue_id=view.queue_id,
        queue_offset=view.queue_offset,
        physical_offset=view.physical_offset,
        store_timestamp=view.store_timestamp_ms,
        store_host=view.store_host,
    )
    assert rewritten == again
    checked = check_batch(
        rewritten,
        [len(rewritten)],
        topic=topic.decode(),
        limits=LIMITS,
        store_host_ipv6=store_host_ipv6,
        tags=TagsCodes(),
    )
    assert checked.count == 1


@given(
    st.data(),
    st.booleans(),
    st.sampled_from([1, 3, 40]),
    st.sampled_from([0, 0x8]),
    st.sampled_from([b"T", b"%RETRY%" + b"g" * 140]),
)
def test_a_batch_is_rewritten_as_each_of_its_records(
    messages: st.SearchStrategy[Any],
    reference: Callable[..., bytes],
    data: st.DataObject,
    store_host_ipv6: bool,
    count: int,
    transaction: int,
    topic: bytes,
) -> None:
    drawn = data.draw(st.lists(messages, min_size=1, max_size=3))
    sent = [
        replace(
            drawn[number % len(drawn)],
            topic=topic,
            properties=b"",
            sys_flag=transaction if number == count - 1 else 0,
            store_host_ipv6=store_host_ipv6,
        )
        for number in range(count)
    ]
    records = [reference(message) for message in sent]
    properties = [b"a\x01%d\x02" % number for number in range(count)]
    batch = check_batch(
        b"".join(records),
        [len(record) for record in records],
        topic=topic.decode(),
        limits=LIMITS,
        store_host_ipv6=store_host_ipv6,
        tags=TagsCodes(),
    )
    before = bytes(batch.buffer)
    rewritten, sizes = rewrite_batch(batch, topic=b"Other", properties=properties)
    wanted = [
        rewrite_record(
            Record(record), topic=b"Other", properties=text, store_host_ipv6=store_host_ipv6
        )
        for record, text in zip(records, properties, strict=True)
    ]
    assert rewritten == b"".join(wanted)
    assert sizes == [len(record) for record in wanted]
    assert bytes(batch.buffer) == before


def test_a_damaged_body_is_found_when_the_new_record_is_checked(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    stored = bytearray(reference(message_type(body=b"x" * 100)))
    stored[120] ^= 1
    rewritten = rewrite_record(Record(stored), topic=b"T", properties=b"", store_host_ipv6=False)
    with pytest.raises(ValueError, match="CRC"):
        Record(rewritten).check_body_crc()


def test_a_record_with_a_checksum_of_its_own_gets_room_for_a_new_one(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    properties = reserve_property_crc(b"TAGS\x01a\x02")
    stored = reference(message_type(properties=properties))
    rewritten = rewrite_record(
        Record(stored),
        topic=b"T",
        properties=replace_properties(properties, {b"DELAY": b"3"}),
        store_host_ipv6=False,
    )
    view = Record(rewritten)
    assert view.property_value("DELAY") == "3"
    assert view.properties_bytes.count(b"__CRC32#") == 1
    at = len(rewritten) - len(view.properties_bytes)
    assert has_property_crc(rewritten, at, len(rewritten))


def test_properties_that_do_not_fit_are_refused(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    with pytest.raises(RecordIllegal, match="32768 bytes"):
        rewrite_record(
            Record(reference(message_type())),
            topic=b"T",
            properties=b"x" * 32_768,
            store_host_ipv6=False,
        )


@given(st.data())
def test_replacing_properties_is_what_a_dictionary_does(
    property_bytes: st.SearchStrategy[bytes], data: st.DataObject
) -> None:
    before = data.draw(property_bytes)
    names = st.sampled_from([b"TAGS", b"DELAY", b"UNIQ_KEY", b"KEY", b"new"])
    changes = data.draw(st.dictionaries(names, st.none() | st.just(b"v")))
    after = replace_properties(before, changes)
    wanted = decode_properties(before)
    for name, value in changes.items():
        wanted.pop(name.decode(), None)
        if value is not None:
            wanted[name.decode()] = value.decode()
    assert decode_properties(after) == wanted
    if not changes and before.endswith(b"\x02"):
        assert after == before
