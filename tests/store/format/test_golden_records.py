"""Commit logs that Apache's broker wrote: every record, field by field, as its manifest says."""

from __future__ import annotations

import hashlib
from typing import Any

from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.compression import decompress
from aerobee.store.format.consume_queue_entry import pack_entries
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.record import (
    SYSFLAG_COMPRESSED,
    Record,
    encode_record,
    iterate_records,
)
from aerobee.store.format.scan import ScanEnd, ScanResult, scan_records
from aerobee.store.format.tags import TagsCodes


def scans(golden_log: Any) -> list[tuple[int, bytes, ScanResult]]:
    """Base offset, bytes and scan of each segment, up to the first that does not end in a blank."""
    found = []
    for base, content in sorted(golden_log.segments.items()):
        result = scan_records(content, check_crc=True, tags=TagsCodes())
        found.append((base, content, result))
        if result.end is not ScanEnd.BLANK:
            break
    return found


def described(record: Record, tags_code: int) -> dict[str, Any]:
    """As a manifest lists a message."""
    message: dict[str, Any] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "version": record.version,
        "tagsCode": tags_code,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": str(record.born_host),
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": str(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCrc": record.body_crc,
        "bodyLength": record.body_size,
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
        "tags": record.tag,
        "keys": record.property_value("KEYS"),
        "uniqKey": record.unique_key,
        "offsetMsgId": offset_message_id(record.store_host, record.physical_offset),
        "properties": record.properties,
    }
    if record.sys_flag & SYSFLAG_COMPRESSED:
        plain = decompress(record.body, record.sys_flag)
        message["plainBodyLength"] = len(plain)
        message["plainBodySha256"] = hashlib.sha256(plain).hexdigest()
    return message


def test_every_message_is_decoded_as_the_manifest_lists_it(golden_log: Any) -> None:
    assert golden_log.manifest["listedEvery"] == 1
    expected = golden_log.messages()
    for message in expected.values():
        message.pop("bodyText", None)
    seen = set()
    for base, content, result in scans(golden_log):
        spans = zip(result.positions, result.sizes, result.tags_codes, strict=True)
        for position, size, tags_code in spans:
            record = Record(content, int(position), int(position + size))
            assert record.physical_offset == base + position
            if record.physical_offset in expected:
                seen.add(record.physical_offset)
                assert described(record, int(tags_code)) == expected[record.physical_offset]
    assert seen == set(expected)


def test_scans_end_where_the_manifest_says(golden_log: Any) -> None:
    digest = hashlib.sha256()
    count = 0
    end = 0
    for base, content, result in scans(golden_log):
        digest.update(content[: result.valid_end])
        count += result.count
        end = base + result.valid_end
        assert result.physical_offsets.tolist() == (result.positions + base).tolist()
        if result.end is ScanEnd.BLANK:
            assert result.end_size == len(content) - result.valid_end
    commit_log = golden_log.manifest["commitLog"]
    assert count == commit_log["records"]
    assert digest.hexdigest() == commit_log["recordsSha256"]
    assert end == commit_log["maxOffset"]


def test_queue_entries_made_from_the_log_are_apaches(golden_log: Any) -> None:
    columns: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for base, _, result in scans(golden_log):
        rows = zip(result.positions, result.sizes, result.tags_codes, strict=True)
        for topic, queue_id, (position, size, tags_code) in zip(
            result.topics, result.queue_ids.tolist(), rows, strict=True
        ):
            row = (base + int(position), int(size), int(tags_code))
            columns.setdefault((topic, queue_id), []).append(row)
    for topic, queues in golden_log.manifest["topics"].items():
        for queue_id, queue in queues.items():
            rows_of_queue = columns.get((topic, int(queue_id)), [])
            # Entries below the minimum may be gone together with their queue file.
            kept = rows_of_queue[len(rows_of_queue) - (queue["maxOffset"] - queue["minOffset"]) :]
            data = pack_entries(*zip(*kept, strict=True)) if kept else b""
            assert hashlib.sha256(data).hexdigest() == queue["entriesSha256"]


def test_apaches_records_are_what_our_encoder_writes(golden_log: Any) -> None:
    for _, content, result in scans(golden_log):
        for record in iterate_records(content[: result.valid_end]):
            ours = encode_record(
                topic=record.topic_bytes,
                body=record.body,
                properties=record.properties_bytes,
                born_timestamp_ms=record.born_timestamp_ms,
                born_host=record.born_host,
                flag=record.flag,
                sys_flag=record.sys_flag,
                store_host_ipv6=record.store_host.is_ipv6,
                reconsume_times=record.reconsume_times,
                prepared_transaction_offset=record.prepared_transaction_offset,
            )
            checked = check_batch(
                ours,
                [len(ours)],
                topic=record.topic,
                limits=BatchLimits(),
                store_host_ipv6=record.store_host.is_ipv6,
                tags=TagsCodes(),
            )
            checked.stamp(
                queue_id=record.queue_id,
                base_queue_offset=record.queue_offset,
                base_physical_offset=record.physical_offset,
                store_timestamp_ms=record.store_timestamp_ms,
                store_host=record.store_host,
            )
            assert bytes(checked.buffer) == record.raw
