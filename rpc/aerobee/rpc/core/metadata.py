"""Custom metadata and timeouts, as gRPC over HTTP/2 encodes them in header fields."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aerobee.rpc.core.hpack import PSEUDO, Field, encode_field, kind_of
from aerobee.rpc.core.status import Metadata, RpcError, Status

_BINARY: Final = "-bin"
_BINARY_END: Final = _BINARY.encode()
_NOT_METADATA: Final = frozenset(
    {
        b"content-type",
        b"te",
        b"grpc-timeout",
        b"grpc-encoding",
        b"grpc-accept-encoding",
        b"grpc-status",
        b"grpc-message",
        b"content-length",
    }
)
"""Fields that gRPC itself uses; everything else belongs to the application."""

_UNIT_S: Final = {
    ord("H"): 3_600.0,
    ord("M"): 60.0,
    ord("S"): 1.0,
    ord("m"): 1e-3,
    ord("u"): 1e-6,
    ord("n"): 1e-9,
}
_TIMEOUT_DIGITS: Final = 8
_SHORT_MAX: Final = 126
"""The longest value whose length fits in one byte."""
_LENGTHS: Final = tuple(bytes((length,)) for length in range(_SHORT_MAX + 1))
_PREFIXES_MAX: Final = 256


def metadata_of(fields: Sequence[Field]) -> Metadata:
    """The part of a block's fields that the application sees, in order.

    Raises:
        RpcError: INTERNAL, a binary value is not base64.
    """
    found: list[tuple[str, str | bytes]] = []
    for name, value, _, kind in fields:
        if kind & PSEUDO or name in _NOT_METADATA:
            continue
        key = name.decode("ascii")
        if key.endswith(_BINARY):
            # Values of one key may arrive joined by commas.
            found.extend((key, _from_base64(key, part)) for part in value.split(b","))
        else:
            found.append((key, value.decode("latin-1")))
    return tuple(found)


def named_metadata(fields: Sequence[Field], names: Mapping[bytes, str]) -> dict[str, str]:
    """Of the part that `metadata_of` returns, the last value of each of these names, which are
    those of texts. It takes half as long.

    Raises:
        RpcError: as `metadata_of`.
    """
    found: dict[str, str] = {}
    for name, value, _, _ in fields:
        key = names.get(name)
        if key is not None:
            found[key] = value.decode("latin-1")
        elif name.endswith(_BINARY_END):
            metadata_of(fields)
    return found


def _from_base64(key: str, value: bytes) -> bytes:
    value = value.strip()
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        raise RpcError(Status.INTERNAL, f"the metadata {key} is not base64") from None


def encoded_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> bytes:
    """Metadata as a part of a header block.

    Raises:
        ValueError: a key or value that HTTP/2 cannot carry, or text for a `-bin` key.
    """
    parts = []
    for key, value in metadata:
        name = key.encode("ascii")
        if kind_of(name) != 0:
            raise ValueError(f"{key!r} cannot be a metadata key")
        if key.endswith(_BINARY):
            if not isinstance(value, bytes):
                raise ValueError(f"the metadata {key} takes bytes")
            raw = base64.b64encode(value).rstrip(b"=")
        else:
            text = value if isinstance(value, str) else value.decode("latin-1")
            if not (text.isascii() and text.isprintable()):
                raise ValueError(f"the metadata {key} takes printable ASCII")
            raw = text.encode("ascii")
        parts.append(encode_field(name, raw))
    return b"".join(parts)


class MetadataEncoder:
    """Encodes the metadata of many calls, which mostly use the same few keys: what precedes the
    value of such a key is encoded once."""

    __slots__ = ("_prefixes",)

    def __init__(self) -> None:
        self._prefixes: dict[str, bytes] = {}

    def encode(self, metadata: Metadata) -> bytes:
        """As `encoded_metadata`."""
        encoded = b""
        for key, value in metadata:
            prefix = self._prefixes.get(key)
            if (
                prefix is not None
                and isinstance(value, str)
                and len(value) <= _SHORT_MAX
                and value.isascii()
                and value.isprintable()
            ):
                encoded += prefix + _LENGTHS[len(value)] + value.encode()
            else:
                field = encoded_metadata(((key, value),))
                encoded += field
                self._learn(key, value, field)
        return encoded

    def _learn(self, key: str, value: str | bytes, field: bytes) -> None:
        is_literal = field[0] & 0x80 == 0
        if is_literal and not key.endswith(_BINARY) and len(value) <= _SHORT_MAX:
            if len(self._prefixes) >= _PREFIXES_MAX:
                self._prefixes.clear()
            self._prefixes[key] = field[: -len(value) - 1]


def timeout_s(value: bytes) -> float | None:
    """Seconds from `grpc-timeout`; None if it is malformed."""
    digits = value[:-1]
    unit = _UNIT_S.get(value[-1]) if value else None
    if unit is None or not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS:
        return None
    return int(digits) * unit


def encoded_timeout(seconds: float) -> bytes:
    """In the finest unit that fits eight digits; a timeout that has passed counts as 1 ns."""
    nanoseconds = max(1, int(seconds * 1e9))
    for unit, size in ((b"n", 1), (b"u", 1_000), (b"m", 1_000_000), (b"S", 1_000_000_000)):
        if nanoseconds < 100_000_000 * size:
            return b"%d%s" % (nanoseconds // size, unit)
    return b"99999999S"


def timeout_field(seconds: float) -> bytes:
    """`grpc-timeout` as a part of a header block."""
    return encode_field(b"grpc-timeout", encoded_timeout(seconds))
