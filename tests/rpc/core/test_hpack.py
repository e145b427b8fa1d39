"""What the hpack package encodes we decode, and the other way round; what is malformed or too large
ends as RFC 7541 says."""

from __future__ import annotations

import re

import hpack as reference
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable
from hypothesis import given
from hypothesis import strategies as some

from aerobee.rpc.core import hpack
from aerobee.rpc.core.huffman import HuffmanDecoder, HuffmanError, code_words

Pairs = list[tuple[bytes, bytes]]

names = some.sampled_from(
    [b":path", b":status", b"content-type", b"x-request-id", b"authorization", b"grpc-timeout"]
) | some.binary(min_size=1, max_size=20)
pairs = some.lists(some.tuples(names, some.binary(max_size=90)), max_size=12)


def pairs_of(fields: list[hpack.Field]) -> Pairs:
    return [(field[0], field[1]) for field in fields]


def decoder(list_bytes_max: int = 1 << 20) -> hpack.Decoder[Pairs]:
    return hpack.Decoder(hpack.SharedStrings(), pairs_of, list_bytes_max=list_bytes_max)


def test_the_tables_are_those_of_the_rfc() -> None:
    assert code_words() == list(zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True))
    assert [(field[0], field[1]) for field in hpack.STATIC_TABLE[1:]] == list(
        HeaderTable.STATIC_TABLE
    )


@pytest.mark.thorough
@given(some.lists(some.tuples(pairs, some.booleans()), max_size=8), some.integers(0, 4_096))
def test_blocks_of_another_encoder_are_decoded_in_step(
    blocks: list[tuple[Pairs, bool]], table_bytes: int
) -> None:
    encoder = reference.Encoder()
    ours = decoder()
    for number, (fields, huffman) in enumerate(blocks):
        if number == 2:
            encoder.header_table_size = table_bytes
        block = encoder.encode(fields, huffman=huffman)
        assert ours.decode(block) == fields
        assert f"table_bytes={encoder.header_table._current_size}," in repr(ours)


@given(pairs)
def test_another_decoder_reads_our_blocks_as_often_as_they_are_sent(fields: Pairs) -> None:
    block = hpack.encode(fields)
    theirs = reference.Decoder()
    for _ in range(2):
        read = [(bytes(name), bytes(value)) for name, value in theirs.decode(block, raw=True)]
        assert read == fields
    assert decoder().decode(block) == fields


@given(some.binary(max_size=200))
def test_huffman_strings_are_read_back(text: bytes) -> None:
    coded = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)
    assert HuffmanDecoder().decode(coded) == text


@given(some.lists(some.binary(max_size=120), max_size=4))
def test_any_bytes_are_fields_or_a_refusal(blocks: list[bytes]) -> None:
    ours, theirs = decoder(), reference.Decoder()
    for block in blocks:
        try:
            expected = [
                (bytes(name), bytes(value)) for name, value in theirs.decode(block, raw=True)
            ]
        except reference.HPACKError:
            expected = None
        except (IndexError, ValueError):
            return
        try:
            found = ours.decode(block)
        except hpack.HpackError:
            return  # we also refuse numbers that are longer than any use
        assert found == expected


@pytest.mark.parametrize(
    "coded",
    [
        pytest.param(b"\xff\xff\xff\xff", id="end of string"),
        pytest.param(b"\x00", id="padded with zeros"),
        pytest.param(b"\x1f\xff", id="padded with a whole byte"),
    ],
)
def test_what_is_no_huffman_string_is_refused(coded: bytes) -> None:
    shared = HuffmanDecoder()
    for _ in range(2):  # also when its rows are filled
        with pytest.raises(HuffmanError):
            shared.decode(coded)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\x80", id="index 0"),
        pytest.param(b"\xbe", id="an index beyond the table"),
        pytest.param(b"\xff\xff\xff\xff\xff\x00", id="an index of 35 bits"),
        pytest.param(b"\x7e\x01a", id="a name beyond the table"),
        pytest.param(b"\x3f\xff\xff\x7f", id="a table that is too large"),
        pytest.param(b"\x82\x20", id="a size update after a field"),
        pytest.param(b"\x40\x05ab", id="a string that is cut off"),
        pytest.param(b"\x40", id="a literal without a name"),
    ],
)
def test_what_is_malformed_is_refused(block: bytes) -> None:
    with pytest.raises(hpack.HpackError):
        decoder().decode(block)


def test_a_list_that_is_too_large_leaves_the_table_in_step() -> None:
    """The bomb: one field of 4 KB, sent by its index a thousand times."""
    ours = decoder(list_bytes_max=16_384)
    ours.decode(hpack_literal(b"x-bomb", b"b" * 4_000))
    with pytest.raises(hpack.HeaderListTooLarge):
        ours.decode(b"\xbe" * 1_000 + hpack_literal(b"after", b"it"))
    assert ours.decode(b"\xbe") == [(b"after", b"it")]


def hpack_literal(name: bytes, value: bytes) -> bytes:
    """With indexing, as a peer may send it."""
    encoder = reference.Encoder()
    return bytes(encoder.encode([(name, value)], huffman=False))


def test_names_and_values_are_judged_once_where_they_are_literals() -> None:
    ours: hpack.Decoder[list[int]] = hpack.Decoder(
        hpack.SharedStrings(), lambda fields: [field[3] for field in fields]
    )
    kinds = ours.decode(
        hpack.encode(
            [
                (b":path", b"/a"),
                (b"x-plain", b"1"),
                (b"X-Capital", b"1"),
                (b"connection", b"close"),
                (b"te", b"trailers"),
                (b"te", b"gzip"),
                (b"x-lines", b"a\r\nb"),
                (b"content-length", b"12"),
                (b"content-length", b"-1"),
                (b":other", b""),
            ]
        )
    )
    bad_value = hpack.BAD_VALUE
    assert kinds == [
        hpack.PATH,
        0,
        hpack.BAD_NAME,
        hpack.BAD_NAME,
        hpack.TE,
        hpack.TE | bad_value,
        bad_value,
        hpack.CONTENT_LENGTH,
        hpack.CONTENT_LENGTH | bad_value,
        hpack.BAD_NAME,
    ]


def test_caches_are_bounded() -> None:
    shared = hpack.SharedStrings()
    ours = hpack.Decoder(shared, pairs_of)
    encoder = reference.Encoder()
    for number in range(5_000):
        name = b"x-%d" % number
        ours.decode(encoder.encode([(name, name * 3)], huffman=True))
        ours.decode(hpack.encode([(name, b"")]))
    assert len(shared.names) <= 512
    assert len(shared.strings) <= 2_048
    (blocks,) = re.findall(r"blocks=(\d+)", repr(ours))
    assert int(blocks) <= 64
