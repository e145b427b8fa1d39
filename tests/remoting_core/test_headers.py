"""Headers in both encodings, byte by byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting_core.command import ANSWER, ONE_WAY, Command, Encoding
from aerobee.remoting_core.errors import HeaderIllegal
from aerobee.remoting_core.headers import FIELDS_MAX, decode_header, encode_header

ROUTE = bytes.fromhex("00690001df0000000700000000000000000000000c0005746f7069630000000154")
"""As Apache's 5.3.3 wrote it: code 105, opaque 7, topic T."""

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def test_a_binary_header_of_apache_is_read_and_written_again() -> None:
    command = decode_header(Encoding.BINARY, ROUTE)
    assert (command.code, command.language, command.version, command.opaque) == (
        105,
        "JAVA",
        479,
        7,
    )
    assert command.fields == {"topic": "T"}
    assert encode_header(command) == ROUTE


def test_a_json_header_of_apache_is_read() -> None:
    header = (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    command = decode_header(Encoding.JSON, header)
    assert (command.code, command.language, command.version, command.opaque) == (
        105,
        "JAVA",
        479,
        7,
    )
    assert command.fields == {"topic": "T"}


def test_json_is_written_without_blanks_and_without_what_is_absent() -> None:
    header = encode_header(Command(0, opaque=7, flag=ANSWER))
    assert b" " not in header
    assert json.loads(header).keys() == {
        "code", "flag", "language", "opaque", "serializeTypeCurrentRPC", "version",
    }  # fmt: skip


def test_fields_that_are_no_text_are_read_as_java_would_write_them() -> None:
    header = b'{"code":1,"extFields":{"a":5,"b":true,"c":null,"d":"x"}}'
    assert decode_header(0, header).fields == {"a": "5", "b": "true", "d": "x"}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b'{"code":"1"}',
        b'{"code":true}',
        b'{"code":2147483648}',
        b'{"code":' + b"9" * 5_000 + b"}",
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":{"a":{}}}',
        b'{"code":1,"extFields":{"a":1.5}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
    ids=lambda header: repr(header[:24]),
)
def test_what_is_no_json_header_is_refused(header: bytes) -> None:
    with pytest.raises(HeaderIllegal):
        decode_header(Encoding.JSON, header)


@pytest.mark.parametrize("cut", range(len(ROUTE)))
def test_a_binary_header_that_ends_early_is_refused(cut: int) -> None:
    with pytest.raises(HeaderIllegal):
        decode_header(Encoding.BINARY, ROUTE[:cut])


def test_lengths_beyond_a_binary_header_are_refused() -> None:
    for at in (13, 17, 21, 28):
        for wrong in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
            with pytest.raises(HeaderIllegal):
                decode_header(Encoding.BINARY, ROUTE[:at] + wrong + ROUTE[at + 4 :])
    with pytest.raises(HeaderIllegal, match="after its fields"):
        decode_header(Encoding.BINARY, ROUTE + b"\0")


@pytest.mark.parametrize("encoding", Encoding)
def test_more_fields_than_any_client_sends_are_refused(encoding: Encoding) -> None:
    fields = {f"name{number}": "v" for number in range(FIELDS_MAX + 1)}
    header = encode_header(Command(1, fields, encoding=encoding))
    with pytest.raises(HeaderIllegal, match="fields"):
        decode_header(encoding, header)


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(HeaderIllegal, match="2"):
        decode_header(2, b"{}")


def test_what_does_not_fit_into_a_binary_header_is_not_sent() -> None:
    """A code of POP would otherwise arrive as another one."""
    with pytest.raises(ValueError, match="does not fit"):
        encode_header(Command(200_050, encoding=Encoding.BINARY))


@given(
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    fields=st.dictionaries(TEXT, TEXT.filter(bool), max_size=8),
    opaque=I32,
    flag=st.sampled_from((0, ANSWER, ONE_WAY)),
    remark=TEXT,
    encoding=st.sampled_from(Encoding),
)
def test_every_header_comes_back_as_it_was(
    code: int,
    fields: dict[str, str],
    opaque: int,
    flag: int,
    remark: str,
    encoding: Encoding,
) -> None:
    command = Command(
        code, fields, opaque=opaque, flag=flag, remark=remark, version=317, encoding=encoding
    )
    assert decode_header(encoding, encode_header(command)) == command
