"""Both encodings of a header, as bytes.

JSON: one object with `code`, `language`, `version`, `opaque`, `flag`, `remark`, `extFields`.

Binary, big-endian:

   code i16, language u8, version i16, opaque i32, flag i32
   remark length i32, remark
   fields length i32, then for each: name length i16, name, value length i32, value

Read leniently, as Apache's own ends do: unknown members are ignored, a field may be a number or a
boolean, and null is absent. Written without blanks, because the Go client cuts some JSON as text.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from json.encoder import encode_basestring as json_text
from typing import Any, Final

from aerobee.remoting_core.command import NO_FIELDS, Command, Encoding
from aerobee.remoting_core.errors import HeaderIllegal

FIELDS_MAX: Final = 256
"""Honest commands have fewer than 30."""

_LANGUAGES: Final = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
_LANGUAGE_NUMBERS: Final = {name: number for number, name in enumerate(_LANGUAGES)}
_OTHER: Final = "OTHER"

_FIXED: Final = struct.Struct(">hBhiii")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I32_END: Final = 1 << 31
_I16_END: Final = 1 << 15
_DECODER: Final = json.JSONDecoder()
_TEXTS: Final = {str}


def decode_header(encoding: int, data: bytes) -> Command:
    """The command of a header, without its body. Raises HeaderIllegal."""
    if encoding == Encoding.JSON:
        return _decode_json(data)
    if encoding == Encoding.BINARY:
        return _decode_binary(data)
    raise HeaderIllegal(f"{encoding} names no encoding of headers")


def encode_header(command: Command) -> bytes:
    """
    Raises:
        ValueError: a number or a text does not fit into the binary encoding.
    """
    if command.encoding is Encoding.JSON:
        return _encoded_json(command)
    return _encoded_binary(command)


# ------------------------------------------------------------------------------------------- JSON


def _decode_json(data: bytes) -> Command:
    try:
        # As `json.loads` does, which looks for other encodings first.
        found = _json_value(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise HeaderIllegal("the header is not JSON") from None
    if not isinstance(found, dict):
        raise HeaderIllegal("the header is no JSON object")
    remark, language = found.get("remark"), found.get("language")
    return Command(
        _number(found, "code"),
        _json_fields(found.get("extFields")),
        opaque=_number(found, "opaque"),
        flag=_number(found, "flag"),
        remark=remark if isinstance(remark, str) else "",
        language=language if isinstance(language, str) else _OTHER,
        version=_number(found, "version"),
    )


def _json_value(text: str) -> Any:
    """Raises ValueError, RecursionError."""
    try:
        found, end = _DECODER.raw_decode(text)
    except ValueError:
        end = -1
    # Blanks around it, which no client writes, cost a second reading.
    return found if end == len(text) else _DECODER.decode(text)


def _number(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name, 0)
    if type(value) is not int or not -_I32_END <= value < _I32_END:
        raise HeaderIllegal(f"{name} of the header is no 32-bit number")
    return value


def _json_fields(found: object) -> Mapping[str, str]:
    if found is None:
        return NO_FIELDS
    if not isinstance(found, dict):
        raise HeaderIllegal("extFields of the header is no JSON object")
    if len(found) > FIELDS_MAX:
        raise HeaderIllegal(f"the header has {len(found)} fields, at most {FIELDS_MAX} are taken")
    if set(map(type, found.values())) == _TEXTS:
        return found  # as clients write them
    fields = {}
    for name, value in found.items():
        if type(value) is str:
            fields[name] = value
        elif type(value) is bool:
            fields[name] = "true" if value else "false"
        elif type(value) is int:
            fields[name] = str(value)
        elif value is not None:
            raise HeaderIllegal(f"field {name[:40]!r} of the header is no text")
    return fields


def _encoded_json(command: Command) -> bytes:
    """Half as long as an encoder of any object needs."""
    more = f',"remark":{json_text(command.remark)}' if command.remark else ""
    if command.fields:
        pairs = [f"{json_text(name)}:{json_text(value)}" for name, value in command.fields.items()]
        more += f',"extFields":{{{",".join(pairs)}}}'
    text = (
        f'{{"code":{command.code:d},"flag":{command.flag},'
        f'"language":{json_text(command.language)},"opaque":{command.opaque},'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version}{more}}}'
    )
    return text.encode("utf-8", "replace")


# ----------------------------------------------------------------------------------------- binary


def _decode_binary(data: bytes) -> Command:
    try:
        code, language, version, opaque, flag, size = _FIXED.unpack_from(data)
        at = _FIXED.size
        remark = _text(data, at, size)
        at += size
        (size,) = _I32.unpack_from(data, at)
        at += 4
        fields = _binary_fields(data, at, size)
    except struct.error:
        raise HeaderIllegal("the header ends inside a field") from None
    if at + max(size, 0) != len(data):
        raise HeaderIllegal("the header has bytes after its fields")
    name = _LANGUAGES[language] if language < len(_LANGUAGES) else _OTHER
    return Command(
        code,
        fields,
        opaque=opaque,
        flag=flag,
        remark=remark,
        language=name,
        version=version,
        encoding=Encoding.BINARY,
    )


def _binary_fields(data: bytes, at: int, size: int) -> Mapping[str, str]:
    end = at + size
    if size < 0 or end > len(data):
        raise HeaderIllegal("the header ends inside its fields")
    if not size:
        return NO_FIELDS
    fields: dict[str, str] = {}
    while at < end:
        if len(fields) >= FIELDS_MAX:
            raise HeaderIllegal(f"the header has more than {FIELDS_MAX} fields")
        (length,) = _I16.unpack_from(data, at)
        name = _text(data, at + 2, length)
        at += 2 + length
        (length,) = _I32.unpack_from(data, at)
        value = _text(data, at + 4, length)
        at += 4 + length
        # An empty text is null in this encoding.
        if value:
            fields[name] = value
    if at != end:
        raise HeaderIllegal("a field of the header is longer than its fields")
    return fields


def _text(data: bytes, at: int, size: int) -> str:
    if size < 0 or at + size > len(data):
        raise HeaderIllegal("a text of the header has an impossible length")
    try:
        return data[at : at + size].decode()
    except UnicodeDecodeError:
        raise HeaderIllegal("a text of the header is not UTF-8") from None


def _encoded_binary(command: Command) -> bytes:
    remark = command.remark.encode("utf-8", "replace")
    parts: list[bytes] = []
    for name, value in command.fields.items():
        name_bytes, value_bytes = name.encode(), value.encode()
        if len(name_bytes) >= _I16_END:
            raise ValueError("a field's name is too long for a binary header")
        parts += (
            _I16.pack(len(name_bytes)),
            name_bytes,
            _I32.pack(len(value_bytes)),
            value_bytes,
        )
    fields = b"".join(parts)
    language = _LANGUAGE_NUMBERS.get(command.language, _LANGUAGE_NUMBERS[_OTHER])
    try:
        head = _FIXED.pack(
            command.code, language, command.version, command.opaque, command.flag, len(remark)
        )
    except struct.error as error:
        raise ValueError(f"a number does not fit into a binary header: {error}") from None
    return b"".join((head, remark, _I32.pack(len(fields)), fields))
