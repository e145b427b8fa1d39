"""Compresses and decompresses bodies as the system flag says; records keep what was sent.

Formats: zlib stream, gzip, LZ4 frame, one Zstandard frame. LZ4 and Zstandard are loaded when first
used, so that code that only reads fields does not need them.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from types import ModuleType
from typing import Final

from isal import isal_zlib

from aerobee.store.format.record_layout import (
    SYSFLAG_COMPRESSED,
    SYSFLAG_COMPRESSION_LZ4,
    SYSFLAG_COMPRESSION_MASK,
    SYSFLAG_COMPRESSION_UNSPECIFIED,
    SYSFLAG_COMPRESSION_ZLIB,
    SYSFLAG_COMPRESSION_ZSTD,
)

# The size limit of a decompressed body; protects readers from a few bytes that claim gigabytes.
PLAIN_BYTES_MAX: Final = 64 << 20

# No zlib stream starts like this.
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 16 + 15

_TOO_LARGE: Final = "the body exceeds {} bytes when decompressed"


class CompressionKind(IntEnum):
    """The system flag bits of each format."""

    LZ4 = SYSFLAG_COMPRESSION_LZ4
    ZSTD = SYSFLAG_COMPRESSION_ZSTD
    ZLIB = SYSFLAG_COMPRESSION_ZLIB

    @property
    def sys_flag(self) -> int:
        """The bits to set in a record whose body is compressed this way."""
        return SYSFLAG_COMPRESSED | self.value


class BodyCorrupt(ValueError):
    """A body that does not match its compression flags, or is too large when decompressed."""


def compress(body: bytes, kind: CompressionKind) -> bytes:
    """`body` compressed; set `kind.sys_flag` in its record."""
    if kind is CompressionKind.LZ4:
        import lz4.frame

        compressed: bytes = lz4.frame.compress(body)
        return compressed
    if kind is CompressionKind.ZSTD:
        frame: bytes = _zstd().compress(body)
        return frame
    return isal_zlib.compress(body, 3)


def is_gzip(body: bytes) -> bool:
    """Whether a compressed body is gzip: clients of Apache's gRPC API send it with the flags of
    zlib."""
    return body.startswith(_GZIP_MAGIC)


def gzip(body: bytes) -> bytes:
    """`body` as gzip, which has only the flag SYSFLAG_COMPRESSED."""
    compressor = isal_zlib.compressobj(3, isal_zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(body) + compressor.flush()


def decompress(body: bytes, sys_flag: int, *, plain_bytes_max: int = PLAIN_BYTES_MAX) -> bytes:
    """The body before compression; `body` itself if `sys_flag` says it is not compressed.

    Raises BodyCorrupt for damaged bytes, an unknown format, and results above `plain_bytes_max`.
    """
    if not sys_flag & SYSFLAG_COMPRESSED:
        return body
    format_bits = sys_flag & SYSFLAG_COMPRESSION_MASK
    if format_bits in (SYSFLAG_COMPRESSION_UNSPECIFIED, SYSFLAG_COMPRESSION_ZLIB):
        return _decompress_zlib(body, plain_bytes_max)
    if format_bits == SYSFLAG_COMPRESSION_LZ4:
        return _decompress_lz4(body, plain_bytes_max)
    if format_bits == SYSFLAG_COMPRESSION_ZSTD:
        return _decompress_zstd(body, plain_bytes_max)
    raise BodyCorrupt(f"system flag {sys_flag:#x} names no known compression")


def _decompress_zlib(body: bytes, plain_bytes_max: int) -> bytes:
    name = "gzip" if is_gzip(body) else "zlib"
    window = _GZIP_WINDOW if name == "gzip" else isal_zlib.MAX_WBITS
    decompressor = isal_zlib.decompressobj(window)
    try:
        plain = decompressor.decompress(body, plain_bytes_max + 1)
    except isal_zlib.error as error:  # type: ignore[misc]  # its stub calls the class an instance
        raise BodyCorrupt(f"the body is not a {name} stream: {error}") from None
    return _checked(plain, decompressor.eof, name, plain_bytes_max)


def _decompress_lz4(body: bytes, plain_bytes_max: int) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        plain: bytes = decompressor.decompress(body, plain_bytes_max + 1)
    except RuntimeError as error:
        raise BodyCorrupt(f"the body is not an LZ4 frame: {error}") from None
    return _checked(plain, decompressor.eof, "LZ4", plain_bytes_max)


def _decompress_zstd(body: bytes, plain_bytes_max: int) -> bytes:
    zstd = _zstd()
    decompressor = zstd.ZstdDecompressor()
    try:
        plain = decompressor.decompress(body, plain_bytes_max + 1)
    except zstd.ZstdError as error:
        raise BodyCorrupt(f"the body is not a Zstandard frame: {error}") from None
    return _checked(plain, decompressor.eof, "Zstandard", plain_bytes_max)


def _zstd() -> ModuleType:
    """From the standard library since Python 3.14; before that, from a package with the same
    names."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _checked(plain: bytes, is_complete: bool, name: str, plain_bytes_max: int) -> bytes:
    if len(plain) > plain_bytes_max:
        raise BodyCorrupt(_TOO_LARGE.format(plain_bytes_max))
    if not is_complete:
        raise BodyCorrupt(f"the {name} body ends too early")
    return plain
