"""What a client says once on a connection, and what its peer makes of it."""

from __future__ import annotations

import hpack as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.rpc.core import hpack
from aerobee.rpc.core.header_table import HeaderTable
from aerobee.rpc.core.hpack import Decoder, Field, SharedStrings
from aerobee.rpc.core.metadata import MetadataEncoder, encoded_metadata

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


KEYS = st.sampled_from(
    ["id", "user-agent", "accept-encoding", "raw-bin", "authorization", "cookie"]
)
TEXTS = st.sampled_from(["", "gzip, deflate", "x" * 126, "y" * 127, "z" * 300])


@given(st.lists(st.lists(st.tuples(KEYS, TEXTS), max_size=4), max_size=10))
def test_metadata_whose_keys_repeat_mean_the_same(calls: list[list[tuple[str, str]]]) -> None:
    encoder = MetadataEncoder()
    for pairs in calls:
        metadata = tuple(
            (key, text.encode() if key.endswith("-bin") else text) for key, text in pairs
        )
        ours = Decoder(SharedStrings(), _pairs).decode(encoder.encode(metadata))
        assert ours == Decoder(SharedStrings(), _pairs).decode(encoded_metadata(metadata))


def test_a_value_that_http2_cannot_carry_is_refused_also_for_a_known_key() -> None:
    encoder = MetadataEncoder()
    encoder.encode((("key", "value"),))
    for value in ("line\nbreak", "ä", "\x7f"):
        with pytest.raises(ValueError, match="printable ASCII"):
            encoder.encode((("key", value),))
