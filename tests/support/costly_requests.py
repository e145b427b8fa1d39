"""Requests that cost too much, as bytes, generated from service descriptors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, MethodDescriptor

from aerobee.rpc.request_limits import Limit
from aerobee.runtime.varint import varint

TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
FIXED_SIZES = {
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_DOUBLE: 8,
}
PADDING_FIELD = 1_000
"""No message has this field: readers skip it."""


@dataclass(frozen=True)
class Place:
    """A field that can be long, and the fields that lead to it from a method's request."""

    method: MethodDescriptor
    outer: tuple[FieldDescriptor, ...]
    field: FieldDescriptor

    def __str__(self) -> str:
        names = ".".join(each.name for each in (*self.outer, self.field))
        return f"{self.method.containing_service.name}.{self.method.name}: {names}"

    @property
    def path(self) -> str:
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    def request(self, content: bytes, *, size_min: int = 0) -> bytes:
        """The field's bytes in their request, which is at least this long."""
        for each in reversed(self.outer):
            content = delimited(each.number, content)
        if len(content) < size_min:
            content += delimited(PADDING_FIELD, bytes(size_min - len(content)))
        return content

    def elements(self, count: int) -> bytes:
        """This many elements of a repeated field, each as short as possible."""
        field = self.field
        if is_map(field):
            keys = (delimited(1, str(index).encode()) for index in range(count))
            return b"".join(delimited(field.number, key) for key in keys)
        if field.message_type is not None or field.type in TEXTS:
            return delimited(field.number, b"") * count
        return delimited(field.number, bytes(count * FIXED_SIZES.get(field.type, 1)))

    def text(self, length: int) -> bytes:
        """One string or bytes of this length: the field, an element, or the key of an entry."""
        content = b"x" * length
        return delimited(
            self.field.number, delimited(1, content) if is_map(self.field) else content
        )

    def at(self, limit: Limit, more: int) -> Iterator[bytes]:
        """Requests that reach the limit, or exceed it by `more`."""
        size_min = limit.looked_into_from + 1
        if limit.count is not None:
            yield self.request(self.elements(limit.count + more), size_min=size_min)
        if limit.length is not None:
            yield self.request(self.text(limit.length + more), size_min=size_min)

    def far_above(self, size: int) -> Iterator[bytes]:
        """Requests of about `size` bytes that consist only of this field."""
        if self.field.is_repeated:
            some = self.elements(10_000)
            yield self.request(some * (size // len(some)))
        if self.field.type in TEXTS or is_map(self.field):
            yield self.request(self.text(size))


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def methods_of(*files: FileDescriptor) -> list[MethodDescriptor]:
    """All methods of the services of these files."""
    services = [service for file in files for service in file.services_by_name.values()]
    return [method for service in services for method in service.methods]


def places(methods: Iterable[MethodDescriptor]) -> list[Place]:
    """Every field of every request that can be long, at any depth."""
    found: list[Place] = []

    def look(method: MethodDescriptor, message: Descriptor, *outer: FieldDescriptor) -> None:
        for field in message.fields:
            if field.is_repeated or field.type in TEXTS:
                found.append(Place(method, outer, field))
            if field.message_type is not None and not is_map(field):
                look(method, field.message_type, *outer, field)

    for method in methods:
        look(method, method.input_type)
    return found


def delimited(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content
