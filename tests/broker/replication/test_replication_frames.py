"""Frames of the replication stream: what is written is read, and what was damaged is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal.isal_zlib import crc32

from aerobee.broker.edge.replicas.frames import (
    FrameWriter,
    LogPartReader,
    read_masters,
    read_slaves,
)
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import BeginAnew, Cut, GoOn, LogState, Sender
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.messages import (
    Ack,
    Agreement,
    Heartbeat,
    Hello,
    LogPart,
    MasterTable,
    Said,
    decode_emptied,
    encode_emptied,
)
from aerobee.runtime.errors import CorruptFrame, InvalidArgument
from aerobee.v1 import replication_pb2

SENDER = Sender("cluster", "broker-a", 7)
positions = st.integers(0, 2**63 - 1)
senders = st.builds(Sender, st.text(max_size=9), st.text(max_size=9), positions)


@given(senders, positions, st.binary(max_size=300), positions, positions)
def test_log_bytes_are_encoded_as_protobuf_would(
    sender: Sender, position: int, data: bytes, confirmed_end: int, log_end: int
) -> None:
    frame = FrameWriter(sender).log_bytes(position, data, confirmed_end, log_end)
    event = replication_pb2.MasterEvent.FromString(frame)
    assert event.SerializeToString() == frame
    assert read_masters(frame) == (sender, (position, data, confirmed_end, log_end))
    # Read by hand it is the same; a checksum of 0 would be left out, and protobuf reads it then.
    by_hand = LogPartReader(sender).read(frame)
    assert by_hand == LogPart(position, data, confirmed_end, log_end) or not event.header.checksum


@given(senders, senders, st.binary(max_size=100))
def test_log_bytes_of_another_sender_are_left_to_the_general_reader(
    sender: Sender, other: Sender, data: bytes
) -> None:
    part = LogPartReader(other).read(FrameWriter(sender).log_bytes(5, data, 0, 9))
    assert (part is not None) == (sender == other)


@given(st.binary(max_size=60))
def test_no_flipped_bit_or_cut_goes_unnoticed_when_read_by_hand(data: bytes) -> None:
    frame = FrameWriter(SENDER).log_bytes(300, data, 200, 2**40)
    reader = LogPartReader(SENDER)
    for size in range(len(frame)):
        assert read_by_hand(reader, frame[:size]) is None
    for bit in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        assert read_by_hand(reader, bytes(damaged)) is None


@given(st.binary(max_size=40))
def test_reading_by_hand_never_fails_otherwise(rest: bytes) -> None:
    """Whatever comes after a right header, it is protobuf's to say what it is."""
    frame = FrameWriter(SENDER).log_bytes(300, b"data", 200, 400)
    header = frame[: frame.index(b"\x1a", 2)]
    reader = LogPartReader(SENDER)
    assert read_by_hand(reader, header + rest) is None
    assert read_by_hand(reader, header + b"\x1a" + bytes([len(rest)]) + rest) is None


def read_by_hand(reader: LogPartReader, frame: bytes) -> LogPart | None:
    try:
        return reader.read(frame)
    except CorruptFrame:
        return None


@given(senders, positions, positions, st.binary(max_size=50))
def test_small_frames_survive_the_way(sender: Sender, one: int, other: int, content: bytes) -> None:
    frames = FrameWriter(sender)
    assert read_slaves(frames.ack(one, other)) == Said(sender, Ack(one, other))
    assert read_masters(frames.heartbeat(one, other)) == Said(sender, Heartbeat(one, other))
    table = MasterTable("config/x.json", content)
    assert read_masters(frames.table(*table)) == Said(sender, table)


@given(
    st.lists(positions, max_size=5).map(sorted),
    st.lists(positions, max_size=5, unique=True).map(sorted),
    st.integers(1, 2**40),
    st.dictionaries(st.text(max_size=20), st.integers(0, 2**32 - 1), max_size=3),
)
def test_a_hello_says_all_of_a_slave(
    starts: list[int], epochs: list[int], segment_bytes: int, tables: dict[str, int]
) -> None:
    history = EpochHistory.of(list(zip(epochs, starts, strict=False)))
    state = LogState(10, 2**40, history, segment_bytes, confirmed_end=2**39)
    name = ReplicaName(3, "incarnation")
    hello = Hello(state, name, "instance", window_bytes=99, tables=tables)
    assert read_slaves(FrameWriter(SENDER).hello(hello)) == Said(SENDER, hello)


@pytest.mark.parametrize(("start", "position"), [(GoOn(5), 5), (Cut(6), 6), (BeginAnew(7), 7)])
def test_an_agreement_says_all_of_a_master(start: GoOn | Cut | BeginAnew, position: int) -> None:
    state = LogState(5, 50, EpochHistory.of([(1, 0), (4, 20)]), 4096, confirmed_end=40)
    said = replace(Agreement.of(state, start, (4,), tail_bytes=9), tail_checksum=77)
    agreement = read_masters(FrameWriter(SENDER).agreement(said)).message
    assert agreement == said
    assert isinstance(agreement, Agreement)
    assert agreement.masters_log(4096) == state
    assert (agreement.start, agreement.unclean_epochs) == (position, (4,))


def every_frame() -> list[bytes]:
    frames = FrameWriter(SENDER)
    state = LogState(5, 50, EpochHistory.of([(1, 0), (7, 20)]), 4096)
    hello = Hello(state, ReplicaName(1, "i"), "n", window_bytes=9, tables={"a": 1, "b": 2})
    return [
        frames.hello(hello),
        frames.ack(5, 4),
        frames.agreement(Agreement.of(state, GoOn(5), ())),
        frames.log_bytes(5, b"some bytes of the log", 4, 50),
        frames.table("config/topics.json", b"{}"),
        frames.heartbeat(4, 50),
    ]


@pytest.mark.parametrize("index", range(6))
def test_no_flipped_bit_goes_unnoticed(index: int) -> None:
    """It is found by the checksum, or the frame is of another sender."""
    frame = every_frame()[index]
    read = read_slaves if index < 2 else read_masters
    original = read(frame)
    for bit in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            said = read(bytes(damaged))
        except CorruptFrame:
            continue
        assert said.sender != SENDER or said == original, f"bit {bit}"


@pytest.mark.parametrize("index", range(6))
def test_no_cut_frame_goes_unnoticed(index: int) -> None:
    frame = every_frame()[index]
    read = read_slaves if index < 2 else read_masters
    for size in range(len(frame)):
        with pytest.raises(CorruptFrame):
            read(frame[:size])


def test_a_frame_of_the_other_side_is_refused() -> None:
    hello, ack, *masters = every_frame()
    for frame in (hello, ack):
        with pytest.raises(CorruptFrame):
            read_masters(frame)
    for frame in masters:
        with pytest.raises(CorruptFrame):
            read_slaves(frame)


@pytest.mark.parametrize(
    "fields",
    [
        {"log_begin": -1},
        {"log_begin": 5, "log_end": 4},
        {"epochs": [replication_pb2.EpochStart(epoch=2), replication_pb2.EpochStart(epoch=1)]},
    ],
)
def test_a_log_that_cannot_be_is_refused(fields: dict[str, object]) -> None:
    hello = replication_pb2.ReplicaEvent()
    hello.hello.MergeFrom(replication_pb2.ReplicaHello(**fields))  # type: ignore[arg-type]
    hello.header.checksum = crc32(hello.hello.SerializeToString(deterministic=True))
    with pytest.raises(InvalidArgument):
        read_slaves(hello.SerializeToString())
    agreement = replication_pb2.MasterEvent()
    agreement.agreement.MergeFrom(replication_pb2.Agreement(**fields))  # type: ignore[arg-type]
    agreement.header.checksum = crc32(agreement.agreement.SerializeToString(deterministic=True))
    with pytest.raises(InvalidArgument):
        read_masters(agreement.SerializeToString())


@given(st.dictionaries(st.tuples(st.text(max_size=5), st.integers(0, 99)), positions))
def test_emptied_queues_survive_the_way(queues: dict[tuple[str, int], int]) -> None:
    assert decode_emptied(encode_emptied(queues)) == queues


@pytest.mark.parametrize(
    "data", [b"", b"{", b"5", b"[[1, 2, 3]]", b'[["t", 0, -1]]', b'[["t", 0]]']
)
def test_damaged_lists_of_queues_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_emptied(data)
