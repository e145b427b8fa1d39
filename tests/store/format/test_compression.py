"""Compressed bodies: all three formats, damaged ones, and those that grow without end."""

from __future__ import annotations

import gzip as reference_gzip
import zlib

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.compression import (
    BodyCorrupt,
    CompressionKind,
    compress,
    decompress,
    gzip,
    is_gzip,
)

KINDS = pytest.mark.parametrize("kind", list(CompressionKind))
PLAIN = b"flights of the day " * 200


@given(st.binary(max_size=2000), st.sampled_from(list(CompressionKind)))
def test_a_body_comes_back(body: bytes, kind: CompressionKind) -> None:
    assert decompress(compress(body, kind), kind.sys_flag) == body


def test_a_body_that_is_not_compressed_is_left_alone() -> None:
    assert decompress(PLAIN, 0x300) is PLAIN


def test_flags_say_compressed_and_how() -> None:
    assert [kind.sys_flag for kind in CompressionKind] == [0x101, 0x201, 0x301]


def test_without_a_format_a_compressed_body_is_zlib() -> None:
    assert decompress(zlib.compress(PLAIN), 0x001) == PLAIN
    assert zlib.decompress(compress(PLAIN, CompressionKind.ZLIB)) == PLAIN


@given(st.binary(max_size=2000))
def test_gzip_under_the_flags_of_zlib_is_read(body: bytes) -> None:
    assert decompress(reference_gzip.compress(body), 0x001) == body
    assert reference_gzip.decompress(gzip(body)) == body
    assert is_gzip(gzip(body))
    assert not is_gzip(zlib.compress(body))


def test_every_truncation_of_gzip_and_what_grows_beyond_the_limit_is_refused() -> None:
    body = reference_gzip.compress(PLAIN)
    for cut in range(len(body)):
        with pytest.raises(BodyCorrupt):
            decompress(body[:cut], 0x001)
    with pytest.raises(BodyCorrupt, match="exceeds"):
        decompress(body, 0x001, plain_bytes_max=len(PLAIN) - 1)


def test_a_frame_that_does_not_say_its_size_is_read_too() -> None:
    writer = zstd.ZstdCompressor()
    body = writer.compress(PLAIN) + writer.flush()
    assert zstd.get_frame_info(body).decompressed_size is None
    assert decompress(body, 0x201) == PLAIN
    with pytest.raises(BodyCorrupt):
        decompress(body, 0x201, plain_bytes_max=len(PLAIN) - 1)
    for cut in range(len(body)):
        with pytest.raises(BodyCorrupt):
            decompress(body[:cut], 0x201)


@KINDS
def test_every_truncation_and_plain_garbage_are_refused(kind: CompressionKind) -> None:
    body = compress(PLAIN, kind)
    for cut in range(len(body)):
        with pytest.raises(BodyCorrupt):
            decompress(body[:cut], kind.sys_flag)
    with pytest.raises(BodyCorrupt):
        decompress(PLAIN, kind.sys_flag)


@KINDS
def test_a_body_that_grows_beyond_the_limit_is_refused(kind: CompressionKind) -> None:
    body = compress(PLAIN, kind)
    assert decompress(body, kind.sys_flag, plain_bytes_max=len(PLAIN)) == PLAIN
    with pytest.raises(BodyCorrupt):
        decompress(body, kind.sys_flag, plain_bytes_max=len(PLAIN) - 1)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(BodyCorrupt, match="0x701"):
        decompress(PLAIN, 0x701)
