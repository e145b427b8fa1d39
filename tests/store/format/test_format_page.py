"""docs/internals/store-format.md: its examples are what the codecs read and write."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from aerobee.broker.groups.run_record import RunRecord
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.index.index_files import IndexMark, decode_mark
from aerobee.store.engine.producers.windows_file import decode_windows, encode_block
from aerobee.store.engine.queues.queue_ends import decode_queue_ends
from aerobee.store.engine.tables.config_tables import (
    ConsumerOffsetTable,
    SubscriptionGroupTable,
    TopicTable,
)
from aerobee.store.format.batch_consume_queue_entry import BatchEntry, scan_batch_entries
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.consume_queue_entry import PRE_BLANK_ENTRY, unpack_entry
from aerobee.store.format.consume_queue_ext import decode_ext_unit, ext_position, is_ext_address
from aerobee.store.format.dead_letter_fields import Death
from aerobee.store.format.epoch_file import decode_epochs, encode_epochs
from aerobee.store.format.index_file import (
    INDEX_ENTRY_DTYPE,
    IndexGeometry,
    IndexHeader,
    IndexKeys,
    insert,
)
from aerobee.store.format.java_hash import index_key_hash, java_string_hash
from aerobee.store.format.message_id import offset_message_id, parse_offset_message_id
from aerobee.store.format.pop_records import PollKey, PopAcks, PopCheckpoint, pop_record_of
from aerobee.store.format.properties import decode_properties, encode_properties
from aerobee.store.format.property_crc import has_property_crc, write_property_crc
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.store.format.record import HostAddress, Record, blank_record, encode_record
from aerobee.store.format.retry_records import (
    REASON_BYTES_MAX,
    REASON_CLASS_BYTES_MAX,
    RESENDS_KEPT_MAX,
    dead_letter_record,
)
from aerobee.store.format.timer_log import decode_timer_record
from aerobee.store.format.timer_wheel import SLOTS_PER_WHEEL, TimerSlot, encode_slot

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "internals" / "store-format.md").read_text(
    "utf-8"
)
BLOCKS = dict(re.findall(r"(?ms)^```(?:hex|json|text) ([\w-]+)\n(.*?)\n```$", PAGE))
STORE_HOST = HostAddress.parse("192.0.2.17:10911")
STORED_MS = 1_700_000_000_500


def example(name: str) -> bytes:
    return bytes.fromhex(BLOCKS[name])


def test_the_page_has_all_its_examples() -> None:
    assert len(BLOCKS) == 25
    assert "{" not in re.sub(r"(?s)```.*?```|`[^`]*`", "", PAGE), "a placeholder was left"


def test_the_epochs_are_what_the_page_says() -> None:
    data = f"{BLOCKS['epochs']}\n".encode()
    assert decode_epochs(data) == [(1, 0), (2, 1073742848), (5, 1073750000)]
    assert encode_epochs(decode_epochs(data)) == data


def test_the_first_record_is_what_the_page_says() -> None:
    data = example("record-v1")
    record = Record(data, 0, len(data))
    record.check()
    assert (record.size, record.version, record.body) == (136, 1, b"hello")
    assert (record.topic, record.keys, record.tag) == ("orders", ("order-7", "customer-2"), "paid")
    assert (record.queue_id, record.queue_offset, record.physical_offset) == (1, 7, 4096)
    assert (record.born_timestamp_ms, record.store_timestamp_ms) == (1_700_000_000_000, STORED_MS)
    assert (str(record.born_host), record.store_host) == ("192.0.2.10:50000", STORE_HOST)
    message_id = offset_message_id(record.store_host, record.physical_offset)
    assert f"`{message_id}`" in PAGE
    assert parse_offset_message_id(message_id) == (STORE_HOST, 4096)


def test_the_record_of_version_2_has_a_long_topic_and_an_ipv6_host() -> None:
    data = example("record-v2")
    record = Record(data, 0, len(data))
    record.check()
    assert (record.size, record.version, record.topic) == (239, 2, "%RETRY%" + "g" * 123)
    assert str(record.born_host) == "[2001:db8::1]:50000"
    assert record.properties == {}


def test_the_record_with_a_crc_follows_the_first_one() -> None:
    data = bytearray(example("record-with-crc"))
    record = Record(bytes(data), 0, len(data))
    record.check()
    assert (record.size, record.physical_offset) == (132, 4096 + 136)
    start = len(data) - len(record.properties_bytes)
    assert has_property_crc(data, start, len(data))
    again = bytearray(data)
    write_property_crc(again, 0, len(again))
    assert again == data


def test_the_blank_record_is_that_of_96_bytes() -> None:
    assert example("blank") == blank_record(96)


def test_queue_entries_lead_to_the_first_record() -> None:
    assert unpack_entry(example("queue-entry")) == (4096, 136, java_string_hash("paid"))
    assert example("pre-blank") == PRE_BLANK_ENTRY
    unit = decode_ext_unit(example("ext-unit"))
    assert (unit.tags_code, unit.store_timestamp_ms) == (java_string_hash("paid"), STORED_MS)
    position, size, address = unpack_entry(example("ext-entry"))
    assert (position, size, ext_position(address)) == (4096, 136, 28)
    assert is_ext_address(address)
    assert scan_batch_entries(example("batch-entry")) == [
        BatchEntry(4096, 400, 0, STORED_MS, 30, 3)
    ]


def test_the_index_is_what_three_keys_make() -> None:
    hashes = [index_key_hash(f"orders#{key}") for key in ("order-7", "customer-2", "order-7")]
    keys = IndexKeys(
        np.array(hashes, np.int32),
        np.array([4096, 4096, 4232]),
        np.array([STORED_MS, STORED_MS, STORED_MS + 3_200]),
    )
    made = insert(IndexHeader(), np.zeros(1_000, np.int32), keys)
    assert made.header == IndexHeader.decode(example("index-header"))
    assert made.header.encode() == example("index-header")
    assert made.entries.tobytes() == example("index-entries")
    assert len(made.entries) * INDEX_ENTRY_DTYPE.itemsize == len(example("index-entries"))
    assert dict(zip(made.slots.tolist(), made.slot_values.tolist(), strict=True)) == {
        674: 3,
        353: 2,
    }


def test_the_checkpoint_knows_both_records() -> None:
    checkpoint = Checkpoint.decode(example("checkpoint"))
    assert checkpoint.encode()[:40] == example("checkpoint")
    assert checkpoint.physic_msg_timestamp == STORED_MS + 3_200
    assert checkpoint.confirm_physical_offset == 4232 + 132


def test_aerobees_own_files_count_beside_that_checkpoint() -> None:
    checkpoint = Checkpoint.decode(example("checkpoint"))
    ends = decode_queue_ends(example("queue-ends"), checkpoint)
    assert ends.counts
    (end,) = ends.queues.values()
    assert (end.topic, end.queue_id, end.end, end.physical_end) == ("orders", 1, 9, 4364)
    saved = decode_windows(example("producer-windows"))
    assert saved is not None
    (row,) = saved.rows
    assert (saved.position, row.name) == (4364, ("orders", 1, 0x0123456789))
    assert encode_block(saved.position, saved.rows) == example("producer-windows")
    assert np.frombuffer(row.intervals, np.int64).tolist() == [0, 7, 0, 7, 9, 8]
    mark = decode_mark(f"{BLOCKS['index-end']}\n".encode().ljust(128, b"\0"))
    assert mark == IndexMark(4364, "20231114221320500", 4, 4232)
    assert RunRecord.decode(BLOCKS["leases"].encode()).run_number == 2


def test_a_timer_its_slot_and_its_handle_are_what_the_page_says() -> None:
    record = decode_timer_record(example("timer-record"))
    assert record.encode() == example("timer-record")
    assert record.slot_time_ms == 1_700_000_100_000
    assert record.topic_hash == java_string_hash("TopicTest")
    slot = TimerSlot(record.slot_time_ms, first_position=0, last_position=0, count=1)
    assert encode_slot(slot) == example("timer-slot")
    assert f"{SLOTS_PER_WHEEL:,} slots" in PAGE
    handle = RecallHandle.decode(BLOCKS["recall-handle"])
    assert handle.deliver_ms == record.slot_time_ms + 1
    assert handle.encode() == BLOCKS["recall-handle"]


def test_the_properties_of_failed_messages_are_on_the_page() -> None:
    section = PAGE.partition("## Messages that failed")[2].partition("\n## ")[0]
    names = set(re.findall("`([A-Z_]+)`", section)) - {"RETRY", "DLQ"}
    record = encode_record(
        topic=b"t", body=b"x", properties=b"", born_timestamp_ms=1, born_host=STORE_HOST
    )
    letter = dead_letter_record(
        Record(record), Death("g", 1, 2, "E", "text", "member"), store_host_ipv6=False
    )
    written = set(decode_properties(Record(letter.record).properties_bytes))
    assert names == written | {"DLQ_RESENDS"}
    assert f"{REASON_CLASS_BYTES_MAX:,} and {REASON_BYTES_MAX:,} bytes" in section
    assert f"newest {RESENDS_KEPT_MAX} times" in section


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("topics", TopicTable),
        ("groups", SubscriptionGroupTable),
        ("offsets", ConsumerOffsetTable),
    ],
)
def test_a_table_is_written_as_it_is_shown(
    name: str, kind: type[TopicTable | SubscriptionGroupTable | ConsumerOffsetTable]
) -> None:
    shown = BLOCKS[name].encode()
    assert kind.load(shown).snapshot_bytes(1_700_000_000_000) == shown


def test_sizes_are_the_defaults() -> None:
    config = StoreConfig()
    geometry = IndexGeometry(config.index_slots_max, config.index_entries_max)
    for size in (config.segment_bytes, config.consume_queue_file_bytes, geometry.file_bytes):
        assert f"{size:,}" in PAGE
    assert java_string_hash("paid") == 3_433_164


def test_what_apache_notes_of_pop() -> None:
    key = PollKey("billing", "orders", 2, 100, 1_700_000_000_000)
    for name, tag, expected in (
        ("pop-checkpoint", "ck", PopCheckpoint(key, 1_700_000_060_000, (100, 101, 103))),
        ("pop-acks", "bAck", PopAcks(key, (100, 101))),
    ):
        record = encode_record(
            topic=b"rmq_sys_REVIVE_LOG_DefaultCluster",
            body=BLOCKS[name].encode(),
            properties=encode_properties({"TAGS": tag}),
            born_timestamp_ms=STORED_MS,
            born_host=STORE_HOST,
        )
        assert pop_record_of(Record(record)) == expected
