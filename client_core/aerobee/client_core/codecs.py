"""How values of a type become bodies and back.

    bytes, str              as they are; UTF-8
    protobuf messages       as protobuf
    msgspec.Struct          as JSON, by msgspec
    pydantic.BaseModel      as JSON, by pydantic
    dataclasses, all else   as JSON, by msgspec if it is installed, else by pydantic

Neither library is imported before a type needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from aerobee.client_core.proto_schema import schema_of
from aerobee.runtime.errors import InvalidArgument, MessageIllegal

T = TypeVar("T")

JSON: Final = "application/json"
PROTOBUF: Final = "application/x-protobuf"
TEXT: Final = "text/plain; charset=utf-8"


class BodyIllegal(ValueError):
    """The body is not one of the type."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """A way to write values of a type. Make one for a format of your own.

    `encode` raises MessageIllegal for a value that it cannot write, `decode` ValueError for a body
    that is none.
    """

    content_type: str
    """What messages say of their bodies; empty: nothing."""
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    schema: Callable[[], str] = lambda: ""
    """The type as JSON; empty: it has no schema."""


def codec_of(kind: type[T]) -> Codec[T]:
    """Raises InvalidArgument: the type needs a library that is not installed."""
    codec: Any
    if kind is bytes:
        codec = Codec("", lambda value: value, lambda body: body)
    elif kind is str:
        codec = Codec(TEXT, str.encode, _text)
    elif isinstance(kind, type) and issubclass(kind, ProtoMessage):
        codec = _protobuf(kind)
    elif _is_of(kind, "pydantic", "BaseModel"):
        codec = _pydantic(kind)
    else:
        codec = _msgspec(kind) or _pydantic(kind)
    found: Codec[T] = codec
    return found


def _is_of(kind: object, module: str, base: str) -> bool:
    return isinstance(kind, type) and any(
        each.__name__ == base and each.__module__.partition(".")[0] == module
        for each in kind.__mro__
    )


def _text(body: bytes) -> str:
    return body.decode()  # UnicodeDecodeError is a ValueError


def _protobuf(kind: type[ProtoMessage]) -> Codec[Any]:
    def decode(body: bytes) -> ProtoMessage:
        try:
            return kind.FromString(body)
        except DecodeError as error:
            raise BodyIllegal(str(error)) from error

    return Codec(PROTOBUF, kind.SerializeToString, decode, lambda: schema_of(kind))


def _msgspec(kind: object) -> Codec[Any] | None:
    try:
        msgspec = import_module("msgspec")
    except ImportError:
        return None
    try:
        decoder, encoder = msgspec.json.Decoder(kind), msgspec.json.Encoder()
    except TypeError:
        return None  # a type that it does not know

    def encode(value: object) -> bytes:
        try:
            body = encoder.encode(msgspec.convert(value, kind, from_attributes=True))
        except (msgspec.MsgspecError, TypeError) as error:
            raise MessageIllegal(f"the value cannot be sent: {error}") from error
        return bytes(body)

    def decode(body: bytes) -> Any:
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise BodyIllegal(str(error)) from error

    return Codec(JSON, encode, decode, lambda: _json_text(msgspec.json.schema(kind)))


def _pydantic(kind: object) -> Codec[Any]:
    try:
        pydantic = import_module("pydantic")
    except ImportError:
        raise InvalidArgument(
            f"bodies of type {getattr(kind, '__name__', kind)} need msgspec or pydantic: "
            "pip install 'aerobee[msgspec]' or 'aerobee[pydantic]'"
        ) from None
    adapter = pydantic.TypeAdapter(kind)

    def encode(value: object) -> bytes:
        try:
            body: bytes = adapter.dump_json(adapter.validate_python(value), by_alias=True)
        except ValueError as error:
            raise MessageIllegal(f"the value cannot be sent: {error}") from error
        return body

    def decode(body: bytes) -> Any:
        try:
            return adapter.validate_json(body)
        except ValueError as error:
            raise BodyIllegal(str(error)) from error

    return Codec(JSON, encode, decode, lambda: _json_text(adapter.json_schema()))


def _json_text(schema: object) -> str:
    return json.dumps(schema, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
