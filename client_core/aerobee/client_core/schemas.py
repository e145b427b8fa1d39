"""PURE: whether a topic's schema may be changed to another one.

A change is compatible if readers of the new schema understand all messages of the old one, and
readers of the old one all messages of the new: producers and consumers are then updated in any
order. Of JSON Schema this looks at what the types of Python lead to: types, properties, required,
items, enumerations, alternatives, bounds. What it does not know must not change.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aerobee.client_core.proto_schema import unreadable
from aerobee.runtime.errors import InvalidArgument

SCHEMA: Final = "schema"
"""The attribute of a topic that has its schema."""

SCHEMA_BYTES_MAX: Final = 1 << 20
_COMPRESSED: Final = "z:"
_IGNORED: Final = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "discriminator"}
)
_LOWEST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_HIGHEST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOOKED_AT: Final = frozenset(
    {
        *_IGNORED,
        *_LOWEST,
        *_HIGHEST,
        "$defs",
        "$ref",
        "$schema",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "enum",
        "items",
        "oneOf",
        "properties",
        "required",
        "type",
    }
)
_DEPTH_MAX: Final = 50


class SchemaIncompatible(InvalidArgument):
    """The new schema of a topic and the present one do not understand each other; raised by clients
    only."""

    __module__ = "aerobee.errors"


def stored(text: str) -> str:
    """The attribute for a schema: without what only people read, and compressed, because a topic's
    attributes are few and travel with its route. Raises InvalidArgument."""
    schema = parsed(text)
    if "protobuf" not in schema:
        schema = _stripped(schema)
    lean = json.dumps(schema, separators=(",", ":"), sort_keys=True)
    return _COMPRESSED + b64encode(zlib.compress(lean.encode(), 9)).decode()


def shown(attribute: str) -> str:
    """The schema in an attribute; empty: there is none. Raises InvalidArgument: something else
    wrote it."""
    if not attribute.startswith(_COMPRESSED):
        return attribute
    try:
        packed = b64decode(attribute.removeprefix(_COMPRESSED), validate=True)
        return zlib.decompressobj().decompress(packed, SCHEMA_BYTES_MAX).decode()
    except (ValueError, zlib.error) as error:
        raise InvalidArgument(f"the topic's attribute {SCHEMA} is no schema: {error}") from None


def _stripped(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_stripped(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    lean = {}
    for word, value in schema.items():
        if word in ("properties", "$defs") and isinstance(value, dict):
            lean[word] = {name: _stripped(each) for name, each in value.items()}
        elif word in ("const", "enum", "required"):
            lean[word] = value
        elif word not in _IGNORED:
            lean[word] = _stripped(value)
    return lean


def parsed(text: str) -> dict[str, Any]:
    """Raises InvalidArgument: it is not a schema."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the schema is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise InvalidArgument("a schema is a JSON object")
    return schema


def conflicts(before: str, after: str) -> list[str]:
    """Why a topic's schema must not be changed from one to the other, in sentences; empty: it may.
    Raises InvalidArgument."""
    if before == after:
        return []
    old, new = parsed(before), parsed(after)
    if ("protobuf" in old) != ("protobuf" in new):
        return ["one schema is of JSON, the other one of protobuf"]
    if "protobuf" in old:
        return unreadable(new, old)
    backward = [f"new readers, old messages: {each}" for each in _Reading(new, old).reasons()]
    forward = [f"old readers, new messages: {each}" for each in _Reading(old, new).reasons()]
    return [*backward, *forward]


class _Reading:
    """Whether all that one schema allows is allowed by another one."""

    def __init__(self, reader: Mapping[str, Any], writer: Mapping[str, Any]) -> None:
        self._reader = reader
        self._writer = writer

    def reasons(self) -> list[str]:
        """Why not; each once."""
        return list(dict.fromkeys(self._compare(self._reader, self._writer, "", 0)))

    def _compare(self, reader: Any, writer: Any, place: str, depth: int) -> Iterator[str]:
        reader, writer = _followed(reader, self._reader), _followed(writer, self._writer)
        if depth > _DEPTH_MAX or reader is True or not _meant(reader):
            return  # anything is read; or the types contain themselves, and were compared
        options = _options(writer)
        if options is not None:
            for option in options:
                yield from self._compare(reader, option, place, depth + 1)
            return
        options = _options(reader)
        if options is not None:
            found = [list(self._compare(each, writer, place, depth + 1)) for each in options]
            if all(found):
                yield f"{place or 'the message'} matches no alternative"
            return
        yield from _differences(reader, writer, place or "the message")
        yield from self._properties(reader, writer, place, depth)
        if "items" in reader:
            items = writer.get("items", {})
            yield from self._compare(reader["items"], items, f"{place}[]", depth + 1)

    def _properties(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], place: str, depth: int
    ) -> Iterator[str]:
        known, sent = reader.get("properties", {}), writer.get("properties", {})
        for name in reader.get("required", ()):
            if name not in writer.get("required", ()):
                yield f"{place}.{name} is required by one and not by the other"
        others = reader.get("additionalProperties", True)
        for name, schema in sent.items():
            if name in known:
                yield from self._compare(known[name], schema, f"{place}.{name}", depth + 1)
            elif others is False:
                yield f"{place}.{name} is not allowed by one"
        more = writer.get("additionalProperties")
        if isinstance(more, dict) and isinstance(others, dict):
            yield from self._compare(others, more, f"{place}.*", depth + 1)


def _followed(schema: Any, root: Mapping[str, Any]) -> Any:
    for _ in range(_DEPTH_MAX):
        if isinstance(schema, dict) and len(schema.get("allOf", ())) == 1:
            schema = schema["allOf"][0]
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        schema = root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
    return schema


def _meant(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    return {word: value for word, value in schema.items() if word not in _IGNORED}


def _options(schema: Any) -> list[Any] | None:
    """Its alternatives; None: it has none."""
    if not isinstance(schema, dict):
        return None
    if (options := schema.get("anyOf") or schema.get("oneOf")) is not None:
        return list(options)
    kinds = schema.get("type")
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else None


def _differences(reader: Mapping[str, Any], writer: Mapping[str, Any], place: str) -> Iterator[str]:
    wanted, given = reader.get("type"), writer.get("type")
    if wanted is not None and wanted != given and (wanted, given) != ("number", "integer"):
        yield f"{place} is of type {given or 'any'} in one and {wanted} in the other"
    values = _values(reader)
    if values is not None:
        sent = _values(writer)
        if sent is None or any(each not in values for each in sent):
            yield f"{place} has values in one that are not in the other"
    for bound in (*_LOWEST, *_HIGHEST):
        limit, other = reader.get(bound), writer.get(bound)
        is_low = bound in _LOWEST
        if limit is not None and (other is None or (limit > other if is_low else limit < other)):
            yield f"{place} has another {bound}"
    for word in (reader.keys() | writer.keys()) - _LOOKED_AT:
        if word in reader and reader[word] != writer.get(word):
            yield f"{place} has another {word}"


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema.get("enum")
