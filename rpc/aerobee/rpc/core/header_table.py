"""The fields common to all of a client's requests, sent once on each connection: RFC 7541, 2.3.

Owns: which of our fields one peer's dynamic table holds. Path, authority and the like enter it when
they are first sent; from then on each takes one byte, which the peer decodes with one lookup.
Metadata that differs from call to call stays literal.

The table is filled once and never evicts: what does not fit stays literal. So an index moves only
when a field is added, and whole fragments are cached until then.
"""

from __future__ import annotations

from typing import Final

from aerobee.rpc.core.hpack import (
    ENTRY_OVERHEAD,
    FIRST_DYNAMIC,
    INDEX_OF_FIELD,
    INDEX_OF_NAME,
    TABLE_BYTES,
    Decoder,
    Field,
    SharedStrings,
    encode_field,
    encoded_integer,
)

_FRAGMENTS_MAX: Final = 1_024


def _same(fields: list[Field]) -> list[Field]:
    return fields


class HeaderTable:
    """The table of one connection. Fragments are parts of header blocks, as `hpack.encode` makes
    them."""

    __slots__ = ("_places", "_room", "_strings", "short")

    def __init__(self, strings: SharedStrings) -> None:
        self.short: dict[bytes, bytes] = {}
        """Fragments, and what to send for them; looked up before calling `shorten`."""
        self._strings = strings
        self._places: dict[tuple[bytes, bytes], int] = {}
        self._room = TABLE_BYTES

    def close(self) -> None:
        """The peer does not allow a table this large, so none is used."""
        self.short.clear()
        self._places.clear()
        self._room = 0

    def shorten(self, fragment: bytes) -> bytes:
        """What to send next in place of a fragment; it must be sent, and before any other block."""
        known = self.short.get(fragment)
        if known is not None:
            return known
        count = len(self._places)
        fields = Decoder(self._strings, _same).decode(fragment)
        encoded = b"".join([self._encoded(name, value) for name, value, *_ in fields])
        if len(self._places) != count or len(self.short) >= _FRAGMENTS_MAX:
            self.short.clear()
        if len(self._places) == count:
            self.short[fragment] = encoded
        return encoded

    def _encoded(self, name: bytes, value: bytes) -> bytes:
        if (name, value) in INDEX_OF_FIELD:
            return encode_field(name, value)
        place = self._places.get((name, value))
        if place is not None:
            newest = len(self._places) - 1
            return encoded_integer(FIRST_DYNAMIC + newest - place, 0x7F, 0x80)
        size = len(name) + len(value) + ENTRY_OVERHEAD
        if size > self._room:
            return encode_field(name, value)
        self._room -= size
        self._places[name, value] = len(self._places)
        encoded_value = encoded_integer(len(value), 0x7F, 0) + value
        index = INDEX_OF_NAME.get(name)
        if index is not None:
            return encoded_integer(index, 0x3F, 0x40) + encoded_value
        return b"\x40" + encoded_integer(len(name), 0x7F, 0) + name + encoded_value
