"""Reading some metadata by name gives what reading all of it gives."""

from __future__ import annotations

import pytest

from aerobee.rpc.core import hpack
from aerobee.rpc.core.hpack import Decoder, Field, SharedStrings
from aerobee.rpc.core.metadata import metadata_of, named_metadata
from aerobee.rpc.core.status import RpcError

NAMES = {b"x-a": "x-a", b"x-b": "x-b", b"x-missing": "x-missing"}


def fields(*pairs: tuple[bytes, bytes]) -> list[Field]:
    decoder: Decoder[list[Field]] = Decoder(SharedStrings(), list)
    pseudo = [(b":method", b"POST"), (b":path", b"/s/M"), (b"te", b"trailers")]
    return decoder.decode(hpack.encode([*pseudo, *pairs]))


def test_it_is_the_last_value_of_each_name() -> None:
    found = fields((b"x-a", b"1"), (b"x-c", b"3"), (b"x-b", b"\xe9"), (b"x-a", b"2"))
    whole = dict(metadata_of(found))
    assert named_metadata(found, NAMES) == {"x-a": "2", "x-b": "\xe9"}
    assert whole == {"x-a": "2", "x-b": "\xe9", "x-c": "3"}


def test_a_binary_value_that_cannot_be_read_is_refused_as_when_all_is_read() -> None:
    found = fields((b"x-a", b"1"), (b"x-c-bin", b"!"))
    with pytest.raises(RpcError, match="x-c-bin is not base64"):
        named_metadata(found, NAMES)
    assert named_metadata(fields((b"x-c-bin", b"AAAA"), (b"x-a", b"1")), NAMES) == {"x-a": "1"}
