"""The schema of a protobuf message as JSON: what must stay the same for others to read it.

    {"protobuf": "shop.Order", "messages": {"shop.Order": {"1": ["id", "int64", false], …}}}

Of each field: its name, its type, and whether it is repeated. Bytes carry numbers and not names.
"""

from __future__ import annotations

import json
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as ProtoMessage

_TYPES: Final[dict[int, str]] = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


def schema_of(kind: type[ProtoMessage]) -> str:
    """The schema, with all messages that it contains."""
    messages: dict[str, dict[str, list[object]]] = {}
    _add(kind.DESCRIPTOR, messages)
    document = {"protobuf": kind.DESCRIPTOR.full_name, "messages": messages}
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def _add(descriptor: Any, messages: dict[str, dict[str, list[object]]]) -> None:
    if descriptor.full_name in messages:
        return
    fields = messages[descriptor.full_name] = {}
    for field in descriptor.fields:
        kind = _TYPES[field.type]
        if field.message_type is not None:
            _add(field.message_type, messages)
            kind = field.message_type.full_name
        fields[str(field.number)] = [field.name, kind, field.is_repeated]


def unreadable(reader: dict[str, Any], writer: dict[str, Any]) -> list[str]:
    """Why one who knows `reader` cannot read what `writer` describes. New and lost fields do not
    matter: protobuf skips and leaves them out."""
    if reader["protobuf"] != writer["protobuf"]:
        return [f"it was {writer['protobuf']} and is {reader['protobuf']}"]
    found = []
    for name, fields in writer["messages"].items():
        known = reader["messages"].get(name, {})
        for number in fields.keys() & known.keys():
            if fields[number][1:] != known[number][1:]:
                was, now = (_said(each[number]) for each in (fields, known))
                found.append(f"field {number} of {name} was {was} and is {now}")
    return sorted(found)


def _said(field: list[Any]) -> str:
    name, kind, is_repeated = field
    return f"{name}, {'repeated ' if is_repeated else ''}{kind}"
