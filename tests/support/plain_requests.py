"""Requests that refer to existing things, generated from service descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

DEPTH_MAX: Final = 4
_WHOLE: Final = frozenset(
    {
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_UINT64,
    }
)
_NO_NUMBERS: Final[Mapping[str, int]] = MappingProxyType({})


def plain_request(
    descriptor: Any,
    texts: Mapping[str, str],
    *,
    otherwise: str,
    numbers: Mapping[str, int] = _NO_NUMBERS,
    depth: int = 0,
) -> Message:
    """Every field has a value, the first of each `oneof`: strings the one for their name in
    `texts`, or `otherwise`; numbers the one in `numbers`; each list has one element."""
    message = GetMessageClass(descriptor)()
    in_oneof: set[str] = set()
    for field in descriptor.fields:
        group = field.containing_oneof
        if group is not None and group.name in in_oneof:
            continue
        in_oneof.add("" if group is None else group.name)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth >= DEPTH_MAX or field.message_type.GetOptions().map_entry:
                continue
            value: Any = plain_request(
                field.message_type, texts, otherwise=otherwise, numbers=numbers, depth=depth + 1
            )
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                getattr(message, field.name).CopyFrom(value)
        elif field.type == FieldDescriptor.TYPE_STRING:
            text = texts.get(field.name, otherwise)
            if field.is_repeated:
                getattr(message, field.name).append(text)
            else:
                setattr(message, field.name, text)
        elif field.type in _WHOLE and field.name in numbers and not field.is_repeated:
            setattr(message, field.name, numbers[field.name])
    return message
