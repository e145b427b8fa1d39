"""The CRC of a whole record among its properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.properties import decode_properties
from aerobee.store.format.property_crc import (
    has_property_crc,
    property_crc_matches,
    reserve_property_crc,
    write_property_crc,
)


@given(st.data())
def test_room_is_made_once_and_the_other_properties_stay(
    property_bytes: st.SearchStrategy[bytes], data: st.DataObject
) -> None:
    properties = data.draw(property_bytes)
    reserved = reserve_property_crc(properties)
    assert has_property_crc(reserved, 0, len(reserved))
    assert reserve_property_crc(reserved) == reserved
    assert decode_properties(reserved) == decode_properties(properties) | {"__CRC32#": "0" * 10}
    stale = b"__CRC32#\x011234567890\x02" + properties
    assert reserve_property_crc(stale).endswith(reserved)


@given(st.binary(max_size=60), st.data())
def test_any_changed_byte_shows(record: bytes, data: st.DataObject) -> None:
    buffer = bytearray(record + b"\x02" + reserve_property_crc(b""))
    start = len(record) + 1
    assert property_crc_matches(buffer, 0, start, len(buffer)) is False
    write_property_crc(buffer, 0, len(buffer))
    assert property_crc_matches(buffer, 0, start, len(buffer)) is True
    at = data.draw(st.integers(0, len(record)))
    buffer[at] ^= data.draw(st.integers(1, 255))
    assert property_crc_matches(bytes(buffer), 0, start, len(buffer)) is False


def test_what_only_looks_like_a_crc_is_none() -> None:
    whole = reserve_property_crc(b"")
    for properties in (b"", whole[1:], b"X" + whole, whole[:-1] + b"x", b"X" + whole[1:]):
        assert not has_property_crc(properties, 0, len(properties))
        assert property_crc_matches(properties, 0, 0, len(properties)) is None
    behind = b"A\x01b\x02" + whole
    assert has_property_crc(behind, 0, len(behind))
