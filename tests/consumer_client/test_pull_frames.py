"""Long PullFrames are read as protobuf reads them."""

from __future__ import annotations

import random

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.edge.own.convert import pull_frame_parts
from aerobee.broker.reading.egress import Fetched, ReadCode
from aerobee.broker.reading.pull_session import PulledFrame
from aerobee.consumer_client.pull_frames import read_pull_frame
from aerobee.v1 import broker_pb2


@given(
    handle=st.integers(0, 2**32 - 1),
    size=st.sampled_from((0, 10, 16_300, 16_384, 70_000)),
    place=st.none() | st.integers(0, 2**31 - 1),
    chance=st.randoms(),
)
def test_a_frame_is_what_protobuf_reads(
    handle: int, size: int, place: int | None, chance: random.Random
) -> None:
    records = random.Random(size).randbytes(size)
    fetched = Fetched(ReadCode.OK, 5, 1, 9, records, 3, place)
    data = b"".join(pull_frame_parts(PulledFrame(handle, fetched=fetched)))
    pulled = read_pull_frame(data)
    parsed = broker_pb2.PullFrame.FromString(data)
    assert (pulled.handle, pulled.records) == (handle, records)
    pulled.result.records = records
    assert pulled.result == parsed.result
    # In another order, and damaged: as protobuf, or not at all.
    for other in (
        parsed.SerializeToString(),
        bytes((chance.randrange(256),)).join(
            (data[: (at := chance.randrange(30))], data[at + 1 :])
        ),
    ):
        try:
            wanted = broker_pb2.PullFrame.FromString(other)
        except DecodeError:
            with pytest.raises(DecodeError):
                read_pull_frame(other)
            continue
        found = read_pull_frame(other)
        assert (found.handle, found.records) == (wanted.handle, wanted.result.records)
        assert found.result.next_offset == wanted.result.next_offset


def test_of_a_long_frame_protobuf_reads_only_what_is_small() -> None:
    frame = PulledFrame(1, fetched=Fetched(ReadCode.OK, 5, 1, 9, bytes(1 << 20), 3))
    pulled = read_pull_frame(b"".join(pull_frame_parts(frame)))
    assert (len(pulled.records), pulled.result.records) == (1 << 20, b"")
