"""Protobuf and domain: frames as bytes, peers, codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.edge.own.convert import READ_CODES, UNKNOWN_HOST, host_of_peer, pull_frame_parts
from aerobee.broker.reading.egress import Fetched, ReadCode
from aerobee.broker.reading.pull_session import PulledFrame
from aerobee.runtime.errors import LeaseExpired
from aerobee.store.format.record_layout import HostAddress
from aerobee.v1 import broker_pb2, common_pb2

OFFSETS = st.integers(-(2**63), 2**63 - 1)


@given(
    handle=st.integers(0, 2**32 - 1),
    code=st.sampled_from(list(ReadCode)),
    offsets=st.tuples(OFFSETS, OFFSETS, OFFSETS),
    records=st.binary(max_size=400),
    count=st.integers(0, 2**32 - 1),
    place=st.none() | st.integers(0, 2**31 - 1),
)
def test_a_frame_as_bytes_is_what_protobuf_would_have_made(
    handle: int,
    code: ReadCode,
    offsets: tuple[int, int, int],
    records: bytes,
    count: int,
    place: int | None,
) -> None:
    fetched = Fetched(code, *offsets, records, count, place)
    parsed = broker_pb2.PullFrame.FromString(
        b"".join(pull_frame_parts(PulledFrame(handle, fetched=fetched)))
    )
    assert parsed == broker_pb2.PullFrame(
        handle=handle,
        result=broker_pb2.PullResult(
            code=common_pb2.Code.Name(READ_CODES[code]),
            next_offset=offsets[0],
            min_offset=offsets[1],
            max_offset=offsets[2],
            records=records,
            record_count=count,
            suggested_broker_id=place,
        ),
    )


def test_a_frame_that_ends_a_handle_carries_code_and_sentence() -> None:
    data = b"".join(pull_frame_parts(PulledFrame(3, error=LeaseExpired("acquire it again"))))
    parsed = broker_pb2.PullFrame.FromString(data)
    assert (parsed.handle, parsed.result.code) == (3, common_pb2.LEASE_EXPIRED)
    assert parsed.result.message == "acquire it again"


def test_read_codes_are_those_of_the_protocol() -> None:
    assert {code.name: READ_CODES[code] for code in ReadCode} == {
        code.name: common_pb2.Code.Value(code.name) for code in ReadCode
    }


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.1.2.3:4567", HostAddress(b"\x0a\x01\x02\x03", 4567)),
        ("ipv6:[::1]:80", HostAddress(bytes(15) + b"\x01", 80)),
        ("ipv6:%5B::1%5D:80", HostAddress(bytes(15) + b"\x01", 80)),
        ("unix:/tmp/socket", UNKNOWN_HOST),
        ("ipv4:nonsense", UNKNOWN_HOST),
        ("", UNKNOWN_HOST),
    ],
)
def test_the_born_host_is_the_peers_address(peer: str, host: HostAddress) -> None:
    assert host_of_peer(peer) == host
