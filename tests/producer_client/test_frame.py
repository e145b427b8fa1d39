"""Hand-written frames are what the generated classes read, and records what the store reads."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.accumulator import Batch
from aerobee.producer_client.config import Compression, ProducerConfig
from aerobee.producer_client.encoder import Encoder
from aerobee.producer_client.frame import encode_frame
from aerobee.store.format.compression import decompress
from aerobee.store.format.record import HostAddress, iterate_records
from aerobee.v1 import broker_pb2

MESSAGES = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=300),
        st.sampled_from([b"", b"TAGS\x01x\x02", b"a\x01" + b"y" * 200 + b"\x02"]),
        st.sampled_from([0, 0, 0, 7, -1]),
    ),
    min_size=1,
    max_size=12,
)
BATCHES = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["t", "orders", "%RETRY%" + "g" * 240]),
            "queue_id": st.integers(0, 1 << 20),
            "skip_wait": st.booleans(),
            "timeout_ms": st.integers(1, 1 << 20),
            "messages": MESSAGES,
        }
    ),
    min_size=1,
    max_size=4,
)


@given(
    BATCHES,
    st.integers(0, 1 << 40),
    st.booleans(),
    st.ip_addresses(),
    st.sampled_from(list(Compression)),
)
def test_a_frame_reads_back_as_it_was_meant(
    planned: list[dict[str, Any]],
    first_sequence: int,
    store_host_ipv6: bool,
    ip: Any,
    compression: Compression,
) -> None:
    config = ProducerConfig(compression=compression, compress_bytes_min=50)
    born_host = HostAddress(ip=ip.packed, port=7)
    encoder = Encoder(config, born_host)
    batches = []
    for plan in planned:
        batch = Batch(
            MessageQueue(plan["topic"], "a", plan["queue_id"]),
            opened_s=100.0,
            born_timestamp_ms=1_700_000_000_000,
            timeout_ms=plan["timeout_ms"],
            skip_wait=plan["skip_wait"],
        )
        for body, properties, flag in plan["messages"]:
            batch.add(body, properties, flag, len(body) + 200, None)
        batch.encoded = encoder.encode(batch, store_host_ipv6=store_host_ipv6)
        batches.append(batch)

    frame = broker_pb2.SendFrame.FromString(
        encode_frame(batches, first_sequence=first_sequence, now_s=100.0)
    )

    assert [batch.sequence for batch in frame.batches] == [
        first_sequence + index for index in range(len(planned))
    ]
    for plan, sent in zip(planned, frame.batches, strict=True):
        assert (sent.topic, sent.queue_id) == (plan["topic"], plan["queue_id"])
        assert sent.skip_wait == plan["skip_wait"]
        assert abs(sent.timeout_ms - plan["timeout_ms"] * 0.9) <= 1
        assert (sent.producer_id, sent.producer_sequence) == (0, 0)
        records = list(iterate_records(sent.records))
        assert [record.size for record in records] == list(sent.record_sizes)
        for record, (body, properties, flag) in zip(records, plan["messages"], strict=True):
            record.check()
            assert decompress(record.body, record.sys_flag) == body
            assert record.body_size <= len(body)
            assert record.properties_bytes == properties
            assert record.flag == flag
            assert record.topic == plan["topic"]
            assert record.born_host == born_host
            assert record.store_host.is_ipv6 == store_host_ipv6


def test_a_batch_is_encoded_once_unless_the_host_address_changes_its_length() -> None:
    encoder = Encoder(ProducerConfig(), HostAddress.parse("127.0.0.1:0"))
    batch = Batch(MessageQueue("t", "a", 0), opened_s=0.0, born_timestamp_ms=0, timeout_ms=1_000)
    batch.add(b"1", b"", 0, 100, None)
    first = batch.encoded = encoder.encode(batch, store_host_ipv6=False)
    assert encoder.encode(batch, store_host_ipv6=False) is first
    assert encoder.encode(batch, store_host_ipv6=True).sizes[0] == first.sizes[0] + 12


def test_much_compression_is_long_work_and_little_is_not() -> None:
    encoder = Encoder(ProducerConfig(), HostAddress.parse("127.0.0.1:0"))
    plain = Encoder(ProducerConfig(compression=Compression.NONE), HostAddress.parse("127.0.0.1:0"))

    def batch_of(body: bytes, count: int) -> Batch:
        batch = Batch(
            MessageQueue("t", "a", 0), opened_s=0.0, born_timestamp_ms=0, timeout_ms=1_000
        )
        for _ in range(count):
            batch.add(body, b"", 0, len(body), None)
        return batch

    assert encoder.is_long_work([batch_of(bytes(500_000), 1)])
    assert not plain.is_long_work([batch_of(bytes(500_000), 1)])
    assert not encoder.is_long_work([batch_of(bytes(5_000), 1)])
    assert not encoder.is_long_work([batch_of(bytes(1_000), 500)])
