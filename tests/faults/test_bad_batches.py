"""Wrong batches of messages: each has its typed error, says what to do, and stores nothing."""

from __future__ import annotations

import pytest

from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.store.format.record import HostAddress
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import SYS_FLAG_AT
from aerobee.v1 import broker_pb2, common_pb2
from tests.faults.refused import Refused
from tests.faults.serving import MIB, Client, batch_of

Batch = broker_pb2.RecordBatch


def sized(batch: Batch, *sizes: int) -> Batch:
    batch.ClearField("record_sizes")
    batch.record_sizes.extend(sizes)
    return batch


def changed(batch: Batch, at: int, value: bytes) -> Batch:
    batch.records = batch.records[:at] + value + batch.records[at + len(value) :]
    return batch


def named(batch: Batch, topic: str) -> Batch:
    batch.topic = topic
    return batch


def with_properties(size: int, *, count: int = 1) -> Batch:
    """Records whose lengths all agree, with properties of a size that the format cannot hold."""
    whole = batch_of("t", 0, b"x")
    record = bytearray(whole.records) + b"a\x01" + b"v" * (size - 3) + b"\x02"
    record[:4] = len(record).to_bytes(4, "big")
    at = len(whole.records) - 2
    record[at : at + 2] = size.to_bytes(2, "big")
    return Batch(topic="t", records=bytes(record) * count, record_sizes=[len(record)] * count)


def carrying(properties: bytes) -> Batch:
    record = encode_record(
        topic=b"t",
        body=b"x\x02DELAY\x013\x02",
        properties=properties,
        born_timestamp_ms=1,
        born_host=HostAddress(bytes(4), 1),
    )
    return Batch(topic="t", records=record, record_sizes=[len(record)])


def for_an_ipv6_broker() -> Batch:
    record = encode_record(
        topic=b"t",
        body=b"x",
        properties=b"",
        born_timestamp_ms=1,
        born_host=HostAddress(bytes(4), 1),
        store_host_ipv6=True,
    )
    return Batch(topic="t", records=record, record_sizes=[len(record)])


def joined(*batches: Batch) -> Batch:
    return Batch(
        topic="t",
        records=b"".join(batch.records for batch in batches),
        record_sizes=[size for batch in batches for size in batch.record_sizes],
    )


def flagged(batch: Batch, sys_flag: int, *, number: int | None = None) -> Batch:
    """The batch's first record with a system flag, which no checksum covers; `number`: of a
    producer of its own."""
    if number is not None:
        batch.producer_id, batch.producer_sequence = 7, number
    return changed(batch, SYS_FLAG_AT, sys_flag.to_bytes(4, "big"))


MANY = [b"body %d" % number for number in range(100)]
"""So many that the batch is checked with arrays."""

BATCHES = [
    Refused(
        "unknown topic",
        lambda: batch_of("nowhere", 0, b"x"),
        errors.TopicNotFound,
        ("nowhere", "create it", "ask the route"),
    ),
    Refused("no topic", lambda: named(batch_of("t", 0, b"x"), ""), errors.IllegalName, ("1 to",)),
    Refused(
        "topic that leaves its folder",
        lambda: named(batch_of("t", 0, b"x"), "../../etc"),
        errors.IllegalName,
        ("../../etc", "use letters, digits"),
    ),
    Refused(
        "topic with a zero byte",
        lambda: named(batch_of("t", 0, b"x"), "a\0b"),
        errors.IllegalName,
        ("use letters, digits",),
    ),
    Refused(
        "topic of 128 characters",
        lambda: batch_of("t" * 128, 0, b"x"),
        errors.IllegalName,
        ("128 characters", "at most 127"),
    ),
    Refused(
        "topic of the broker itself",
        lambda: batch_of("SCHEDULE_TOPIC_XXXX", 0, b"x"),
        errors.NotWritableTopic,
        ("SCHEDULE_TOPIC_XXXX", "choose another one"),
    ),
    Refused(
        "topic for reading only",
        lambda: batch_of("frozen", 0, b"x"),
        errors.NotWritableTopic,
        ("perm 4", "update the topic"),
    ),
    Refused(
        "queue id beyond the last",
        lambda: batch_of("t", 4, b"x"),
        errors.QueueNotFound,
        ("queue 4", "queues 0 to 3"),
    ),
    Refused(
        "queue id below 0",
        lambda: batch_of("t", -1, b"x"),
        errors.QueueNotFound,
        ("queue -1", "queues 0 to 3"),
    ),
    Refused(
        "largest queue id",
        lambda: batch_of("t", 2**31 - 1, b"x"),
        errors.QueueNotFound,
        ("queues 0 to 3",),
    ),
    Refused("no records", lambda: Batch(topic="t"), errors.MessageIllegal, ("at least one",)),
    Refused(
        "empty body",
        lambda: batch_of("t", 0, b""),
        errors.MessageIllegal,
        ("no body", "at least one byte"),
    ),
    Refused(
        "one empty body among many",
        lambda: batch_of("t", 0, *MANY, b"", *MANY),
        errors.MessageIllegal,
        ("record 100", "no body", "at least one byte"),
    ),
    Refused(
        "body above 4 MiB",
        lambda: batch_of("t", 0, bytes(4 * MIB + 1)),
        errors.MessageTooLarge,
        (str(4 * MIB + 1), f"limit of {4 * MIB}", "send a smaller one"),
    ),
    Refused(
        "batch above its limit",
        lambda: batch_of("t", 0, *([bytes(MIB)] * 5)),
        errors.MessageTooLarge,
        ("exceed the limit", "send less"),
    ),
    Refused(
        "properties of 32,768 bytes",
        lambda: with_properties(32_768),
        errors.PropertiesTooLarge,
        ("32768", "limit of 32767", "into the body"),
    ),
    Refused(
        "properties of 65,535 bytes in each of many",
        lambda: with_properties(65_535, count=40),
        errors.PropertiesTooLarge,
        ("65535", "into the body"),
    ),
    Refused(
        "no sizes",
        lambda: sized(batch_of("t", 0, b"x")),
        errors.MessageIllegal,
        ("at least one",),
    ),
    Refused(
        "sizes below the sum",
        lambda: sized(batch_of("t", 0, b"x"), 20),
        errors.MessageIllegal,
        ("do not divide", "size of each record"),
    ),
    Refused(
        "sizes above the sum",
        lambda: sized(batch_of("t", 0, b"x"), 9_999),
        errors.MessageIllegal,
        ("do not divide", "size of each record"),
    ),
    Refused(
        "sizes that wrap around",
        lambda: sized(batch_of("t", 0, b"x"), 2**32 - 1, 2**32 - 1),
        errors.MessageIllegal,
        ("do not divide",),
    ),
    Refused(
        "a size of 0",
        lambda: sized(batch_of("t", 0, b"x"), 0, len(batch_of("t", 0, b"x").records)),
        errors.MessageIllegal,
        ("do not divide",),
    ),
    Refused(
        "sizes that add up and cut records elsewhere",
        lambda: sized(
            batch_of("t", 0, b"x" * 9, b"y" * 9),
            batch_of("t", 0, b"x" * 9).record_sizes[0] + 5,
            batch_of("t", 0, b"y" * 9).record_sizes[0] - 5,
        ),
        errors.MessageIllegal,
        ("record 0", "encode the batch again"),
    ),
    Refused(
        "wrong magic",
        lambda: changed(batch_of("t", 0, b"x"), 4, b"\xde\xad\xbe\xef"),
        errors.MessageIllegal,
        ("0xdeadbeef", "encode the batch again"),
    ),
    Refused(
        "magic of the blank record",
        lambda: changed(batch_of("t", 0, b"x"), 4, (-875286124 & 0xFFFFFFFF).to_bytes(4, "big")),
        errors.MessageIllegal,
        ("encode the batch again",),
    ),
    Refused(
        "wrong magic in the last of many",
        lambda: joined(
            batch_of("t", 0, *MANY), changed(batch_of("t", 0, b"x"), 4, b"\xde\xad\xbe\xef")
        ),
        errors.MessageIllegal,
        ("record 100", "0xdeadbeef", "encode the batch again"),
    ),
    Refused(
        "negative body length",
        lambda: changed(batch_of("t", 0, b"x"), 84, b"\xff\xff\xff\xff"),
        errors.MessageIllegal,
        ("body length -1", "encode the batch again"),
    ),
    Refused(
        "body length beyond the batch",
        lambda: changed(batch_of("t", 0, b"x"), 84, b"\x7f\xff\xff\xff"),
        errors.MessageIllegal,
        ("does not fit", "encode the batch again"),
    ),
    Refused(
        "prepared record",
        lambda: flagged(batch_of("t", 0, b"x"), 0x4),
        errors.MessageIllegal,
        ("record 0", "0x4", "transaction", "send it without that flag"),
    ),
    Refused(
        "committed record",
        lambda: flagged(batch_of("t", 0, b"x"), 0x8),
        errors.MessageIllegal,
        ("record 0", "0x8", "transaction", "send it without that flag"),
    ),
    Refused(
        "rolled back record with its producer's number",
        lambda: flagged(batch_of("t", 0, b"x"), 0xC, number=0),
        errors.MessageIllegal,
        ("record 0", "0xc", "transaction", "send it without that flag"),
    ),
    Refused(
        "prepared record as the last of many",
        lambda: joined(batch_of("t", 0, *MANY), flagged(batch_of("t", 0, b"x"), 0x4)),
        errors.MessageIllegal,
        ("record 100", "transaction", "send it without that flag"),
    ),
    Refused(
        "inner batch",
        lambda: flagged(batch_of("t", 0, b"x"), 0xC0),
        errors.MessageIllegal,
        ("record 0", "0xc0", "does not unwrap", "a record of its own"),
    ),
    Refused(
        "delay that is too long",
        lambda: carrying(b"TIMER_DELAY_SEC\x01999999999\x02"),
        errors.MessageIllegal,
        ("record 0", "999999999000 ms", "choose an earlier time"),
    ),
    Refused(
        "level that is no number",
        lambda: carrying(b"TAGS\x01a\x02DELAY\x01three"),
        errors.MessageIllegal,
        ("record 0", "property DELAY", "number of a delay level", "leave it out"),
    ),
    Refused(
        "timer in the last of many",
        lambda: joined(
            batch_of("t", 0, *MANY), carrying(b"TAGS\x01a\x02TIMER_DELAY_SEC\x0160\x02")
        ),
        errors.MessageIllegal,
        ("record 0", "different queues", "in batches of their own"),
    ),
    Refused(
        "half message",
        lambda: carrying(b"TRAN_MSG\x01true\x02"),
        errors.MessageIllegal,
        ("record 0", "property TRAN_MSG", "transaction", "leave it out"),
    ),
    Refused(
        "forged producer",
        lambda: carrying(b"TAGS\x01a\x02__PRODUCER\x017\x02"),
        errors.MessageIllegal,
        ("record 0", "property __PRODUCER", "set only by brokers; leave it out"),
    ),
    Refused(
        "receipt of a pop",
        lambda: carrying(b"POP_CK\x017 8 9\x02"),
        errors.MessageIllegal,
        ("record 0", "property POP_CK", "leave it out"),
    ),
    Refused(
        "unique key of another form",
        lambda: carrying(b"UNIQ_KEY\x01order 7\x02"),
        errors.MessageIllegal,
        ("record 0", "property UNIQ_KEY", "1 to 255 visible ASCII characters"),
    ),
    Refused(
        "record of another topic",
        lambda: named(batch_of("u", 0, b"x"), "t"),
        errors.MessageIllegal,
        ("topic b'u'", "the topic that it names"),
    ),
    Refused(
        "record for an IPv6 broker",
        for_an_ipv6_broker,
        errors.MessageIllegal,
        ("IPv4", "ask the route again"),
    ),
    Refused(
        "corrupt body",
        lambda: changed(batch_of("t", 0, b"x" * 50), 100, b"?"),
        errors.CorruptBody,
        ("record 0", "CRC", "send it again"),
    ),
    Refused(
        "corrupt CRC",
        lambda: changed(batch_of("t", 0, b"x" * 50), 8, b"\x12\x34\x56\x78"),
        errors.CorruptBody,
        ("record 0", "CRC", "send it again"),
    ),
    Refused(
        "one corrupt body among many",
        lambda: joined(
            batch_of("t", 0, *MANY),
            changed(batch_of("t", 0, b"x" * 50), 100, b"?"),
            batch_of("t", 0, *MANY),
        ),
        errors.CorruptBody,
        ("record 100", "CRC", "send it again"),
    ),
    Refused(
        "garbage of a record's length",
        lambda: Batch(topic="t", records=bytes(range(256)) * 2, record_sizes=[512]),
        errors.MessageIllegal,
        ("encode the batch again",),
    ),
    Refused(
        "garbage as many records",
        lambda: Batch(topic="t", records=bytes(range(256)) * 50, record_sizes=[128] * 100),
        errors.MessageIllegal,
        ("record 0", "encode the batch again"),
    ),
]


@pytest.mark.parametrize("refused", BATCHES, ids=str)
async def test_a_wrong_batch_is_refused_before_it_is_stored(
    client: Client, refused: Refused
) -> None:
    before = await client.stats()
    batch = refused.request()
    assert isinstance(batch, Batch)
    batch.sequence = 77
    good = [batch_of("u", 1, b"before", sequence=1), batch_of("u", 1, b"after", sequence=2)]
    (ack,) = await client.exchange(batch)
    refused.check(error_from_code(ack.code, ack.message))
    assert ack.sequence == 77
    assert (ack.store_timestamp_ms, ack.durability) == (0, broker_pb2.DURABILITY_UNSPECIFIED)
    after = await client.stats()
    assert after.log_appended_end == before.log_appended_end
    assert after.messages_in == before.messages_in
    assert after.refused == before.refused + 1
    # The same in the middle of others: these are stored, one after the other, and nothing else.
    first, wrong, second = await client.exchange(good[0], batch, good[1])
    assert (first.code, second.code) == (common_pb2.OK, common_pb2.OK)
    assert (wrong.code, wrong.message) == (ack.code, ack.message)
    assert second.base_queue_offset == first.base_queue_offset + 1
    stored = sum(len(one.records) for one in good)
    assert await client.log_end() == after.log_appended_end + stored
