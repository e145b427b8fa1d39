"""One stored message as a JSON object: every field of the record, and digests of its body."""

from __future__ import annotations

import hashlib
from typing import Any

from aerobee.store_format.compression import decompress
from aerobee.store_format.message_id import offset_message_id
from aerobee.store_format.property_crc import property_crc_matches
from aerobee.store_format.record import SYSFLAG_COMPRESSED, Record

PROPERTY_CRC = "__CRC32#"
BODY_TEXT_BYTES_MAX = 96
"""Longer bodies are shown by length and digest only."""


def describe_message(record: Record, tags_code: int) -> dict[str, Any]:
    """The record's fields. Text that is not UTF-8 is shown with U+FFFD; the digests are exact."""
    properties = record.properties
    body = record.body
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
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }
    if record.sys_flag & SYSFLAG_COMPRESSED:
        message.update(_plain_body(body, record.sys_flag))
    elif 0 < len(body) <= BODY_TEXT_BYTES_MAX:
        message.update(_body_text(body))
    message["tags"] = properties.get("TAGS")
    message["keys"] = properties.get("KEYS")
    message["uniqKey"] = properties.get("UNIQ_KEY")
    message["offsetMsgId"] = offset_message_id(record.store_host, record.physical_offset)
    message["properties"] = {name: properties[name] for name in sorted(properties)}
    if not _property_crc_is_sound(record):
        message["propertyCrcProblem"] = "the record is not the one that was written"
    return message


def _property_crc_is_sound(record: Record) -> bool:
    """Whether the CRC over the whole record, if it carries one, is that of its bytes."""
    if PROPERTY_CRC not in record.properties:
        return True
    data = record.raw
    properties_start = len(data) - len(record.properties_bytes)
    return property_crc_matches(data, 0, properties_start, len(data)) is not False


def _plain_body(body: bytes, sys_flag: int) -> dict[str, Any]:
    try:
        plain = decompress(body, sys_flag)
    except ValueError as error:
        return {"plainBodyProblem": str(error)}
    return {
        "plainBodyLength": len(plain),
        "plainBodySha256": hashlib.sha256(plain).hexdigest(),
    }


def _body_text(body: bytes) -> dict[str, str]:
    try:
        return {"bodyText": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {}
