"""Records of Apache's broker as messages: every field as the manifest of its store says."""

from __future__ import annotations

import hashlib
from typing import Any

from aerobee.rocketmq_api.receiving.messages import digest
from aerobee.rocketmq_api.rules.reserved import HIDDEN
from aerobee.rocketmq_api.times import milliseconds
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.support.golden_log import GoldenLog
from tests.support.v2_messages import Delivery, message_of

# By the properties that decide, in the order in which they do.
KINDS = (
    (("TRAN_MSG",), v2.TRANSACTION),
    (("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"), v2.DELAY),
    (("__SHARDINGKEY",), v2.FIFO),
)


def kind_of(properties: dict[str, str]) -> v2.MessageType:
    for names, kind in KINDS:
        if kind == v2.DELAY and "RETRY_TOPIC" in properties:
            continue
        if any(name in properties for name in names):
            return kind
    return v2.NORMAL


def test_every_message_is_delivered_as_the_manifest_lists_it(golden_log: GoldenLog) -> None:
    listed = golden_log.messages()
    seen = set()
    for record in golden_log.records():
        expected: dict[str, Any] | None = listed.get(record.physical_offset)
        if expected is None:
            continue
        seen.add(record.physical_offset)
        topic = v2.Resource(name=expected["topic"])
        message = message_of(record, Delivery(topic=topic, attempt=1))
        system = message.system_properties
        properties: dict[str, str] = expected["properties"]

        assert message.topic == topic
        assert dict(message.user_properties) == {
            name: value for name, value in properties.items() if name not in HIDDEN
        }
        body_digest = hashlib.sha256(message.body).hexdigest()
        assert body_digest == expected.get("plainBodySha256", expected["bodySha256"])
        assert len(message.body) == expected.get("plainBodyLength", expected["bodyLength"])
        assert system.body_encoding == v2.IDENTITY
        assert system.body_digest == v2.Digest(type=v2.MD5, checksum=digest(message.body))
        assert system.tag == (expected["tags"] or "")
        assert list(system.keys) == (expected["keys"] or "").split()
        origin_id = properties.get("ORIGIN_MESSAGE_ID", expected["offsetMsgId"])
        assert system.message_id == (expected["uniqKey"] or origin_id)
        assert system.message_type == kind_of(properties)
        assert milliseconds(system.born_timestamp) == expected["bornTimestamp"]
        assert milliseconds(system.store_timestamp) == expected["storeTimestamp"]
        assert system.store_host == expected["storeHost"]
        assert system.born_host == expected["bornHost"].rpartition(":")[0].strip("[]")
        assert system.queue_id == expected["queueId"]
        assert system.queue_offset == expected["queueOffset"]
        assert system.message_group == properties.get("__SHARDINGKEY", "")
        if system.HasField("delivery_timestamp"):
            due_ms = milliseconds(system.delivery_timestamp)
            assert str(due_ms) == properties["TIMER_DELIVER_MS"]
        letter = system.dead_letter_queue
        assert letter.topic == properties.get("DLQ_ORIGIN_TOPIC", "")
        assert letter.message_id == properties.get("DLQ_ORIGIN_MESSAGE_ID", "")
    assert seen == set(listed)
