"""What a client says once on a connection, and what its peer makes of it."""

from __future__ import annotations

import hpack as reference
from hypothesis import given
from hypothesis import strategies as st

from aerobee.grpc_core import hpack
from aerobee.grpc_core.header_table import HeaderTable
from aerobee.grpc_core.hpack import Decoder, Field, SharedStrings

Pairs = list[tuple[bytes, bytes]]

NAMES = st.sampled_from([b":path", b"te", b"content-type", b"grpc-timeout", b"x-team", b"y" * 200])
VALUES = st.sampled_from([b"", b"trailers", b"/test.Echo/Echo", b"v" * 100, b"w" * 1_500])
FRAGMENTS = st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=6)


def _pairs(fields: list[Field]) -> Pairs:
    return [(name, value) for name, value, *_ in fields]


@given(st.lists(st.lists(FRAGMENTS, min_size=1, max_size=3), max_size=30))
def test_peers_read_what_was_meant_whatever_came_before(blocks: list[list[Pairs]]) -> None:
    table = HeaderTable(SharedStrings())
    ours = Decoder(SharedStrings(), _pairs)
    theirs = reference.Decoder()
    for fragments in blocks:
        meant = [pair for fragment in fragments for pair in fragment]
        block = b"".join([table.shorten(hpack.encode(fragment)) for fragment in fragments])
        assert ours.decode(block) == meant
        assert [(bytes(one[0]), bytes(one[1])) for one in theirs.decode(block, raw=True)] == meant
        assert theirs.header_table._current_size <= 4_096


def test_what_repeats_is_a_byte_for_each_field() -> None:
    table = HeaderTable(SharedStrings())
    fragment = hpack.encode([(b":path", b"/test.Echo/Echo"), (b"te", b"trailers")])
    assert len(table.shorten(fragment)) > 20
    assert len(table.shorten(fragment)) == 2
    assert table.short[fragment] == table.shorten(fragment)
    table.close()
    assert table.shorten(fragment) == fragment
