"""Large batches are read as protobuf reads them, without a copy of their records."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.edge.own.long_frames import LONG_BATCH_BYTES_MIN, read_long_frame
from aerobee.broker.edge.own.request_limits import broker_request_limits
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import broker_pb2

LONG = LONG_BATCH_BYTES_MIN
FIELDS = [each.name for each in broker_pb2.RecordBatch.DESCRIPTOR.fields]
SEND_STREAM = "/aerobee.v1.SendService/SendStream"


def own(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


def long_batch(topic: str = "t", size: int = LONG) -> broker_pb2.RecordBatch:
    return broker_pb2.RecordBatch(topic=topic, records=bytes(size), record_sizes=[size])


batches = st.builds(
    broker_pb2.RecordBatch,
    sequence=st.integers(0, 2**64 - 1),
    topic=st.text(max_size=9),
    queue_id=st.integers(-(2**31), 2**31 - 1),
    records=st.integers(LONG, LONG + 3).map(random.Random(1).randbytes),
    record_sizes=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9),
    timeout_ms=st.integers(0, 2**32 - 1),
    skip_wait=st.booleans(),
    producer_id=st.integers(0, 2**64 - 1),
    producer_sequence=st.integers(0, 2**64 - 1),
    is_half=st.booleans(),
)


@given(st.lists(batches, min_size=1, max_size=3), st.randoms())
def test_every_field_is_what_protobuf_reads(
    sent: list[broker_pb2.RecordBatch], chance: random.Random
) -> None:
    data = broker_pb2.SendFrame(batches=sent).SerializeToString()
    frame = read_long_frame(view := own(data))
    assert frame is not None
    assert frame.ByteSize() == len(data)
    for long, batch in zip(frame.batches, sent, strict=True):
        for name in FIELDS:
            value = getattr(long, name)
            if name == "records":
                assert value.obj is view.obj, "the same memory"
                value = bytes(value)
            elif name == "record_sizes":
                value = list(value)
            assert value == getattr(batch, name), name
    # Whatever is damaged is refused by protobuf, if at all, or is the same for both.
    at = chance.randrange(len(data) - LONG if chance.random() < 0.9 else len(data))
    damaged = data[:at] + bytes((chance.randrange(256),)) + data[at + 1 :]
    frame = read_long_frame(own(damaged))
    if frame is not None:
        parsed = broker_pb2.SendFrame.FromString(damaged)
        assert [bytes(each.records) for each in frame.batches] == [
            each.records for each in parsed.batches
        ]
        assert [each.topic for each in frame.batches] == [each.topic for each in parsed.batches]
        assert [list(each.record_sizes) for each in frame.batches] == [
            list(each.record_sizes) for each in parsed.batches
        ]


@pytest.mark.parametrize(
    "frame",
    [
        broker_pb2.SendFrame(),
        broker_pb2.SendFrame(batches=[long_batch(size=LONG - 100)]),
        broker_pb2.SendFrame(batches=[long_batch("t" * 2_000)]),
        broker_pb2.SendFrame(batches=[broker_pb2.RecordBatch(records=bytes(LONG))]),
        broker_pb2.SendFrame(batches=[long_batch(), *[long_batch(size=9)] * 64]),
    ],
)
def test_other_frames_are_left_to_protobuf(frame: broker_pb2.SendFrame) -> None:
    assert read_long_frame(own(frame.SerializeToString())) is None


def test_a_batch_with_its_records_twice_is_left_to_protobuf() -> None:
    batch = long_batch().SerializeToString()
    twice = batch + broker_pb2.RecordBatch(records=b"x").SerializeToString()
    size = len(twice)
    length = bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14))
    data = b"\x0a" + length + twice
    assert broker_pb2.SendFrame.FromString(data).batches[0].records == b"x"
    assert read_long_frame(own(data)) is None


def test_the_limits_of_requests_hold_for_them_too() -> None:
    reader = broker_request_limits().reader(SEND_STREAM)
    assert reader is not None
    data = broker_pb2.SendFrame(batches=[long_batch()]).SerializeToString()
    assert len(reader.read(own(data)).batches) == 1
    assert len(reader.read(data).batches) == 1
    small = broker_pb2.SendFrame(batches=[long_batch(size=9)] * 3).SerializeToString()
    assert reader.read(own(small)) == broker_pb2.SendFrame.FromString(small)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        reader.read(own(b"\x0a\xff"))
    with pytest.raises(InvalidArgument, match="at most"):
        reader.read(own(bytes(reader.bytes_max + 1)))
