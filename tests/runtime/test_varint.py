"""Numbers that are encoded by hand are protobuf's."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from aerobee.runtime.varint import varint
from aerobee.v1 import broker_pb2


@given(st.integers(1, 2**64 - 1))
@example(127)
@example(128)
def test_varints_are_protobufs(value: int) -> None:
    message = broker_pb2.RecordBatch(producer_id=value)
    assert message.SerializeToString() == b"\x50" + varint(value)
