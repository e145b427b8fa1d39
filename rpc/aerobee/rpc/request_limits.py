"""What a request may cost: its bytes, its elements and its texts, checked before anything reads it.

Owns: nothing; a server's table gives the limits, and this turns each method's into a reader of
bytes.
Invariant: a field without a limit stops the server from starting, so a request's cost is decided
when the field is added. A message above `COUNTED_FROM` is counted on the wire before it is parsed,
because parsing alone may create an object for every two bytes; the counting takes no more steps
than the table allows elements. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.varint import read_varint

COUNTED_FROM = 65_536
"""Bytes. A request of this size has at most 32,768 elements, which cost a few milliseconds and MiB.
"""
OTHER_FIELDS_MAX = 1_024
"""Fields of a counted request that are not elements, including unknown ones."""
FIELDS_PER_ELEMENT_MAX = 64
"""The same for each element that has elements of its own."""

_Fields = Mapping[str, "Limit"]
ReadView = Callable[[memoryview], Any]
"""Takes writable memory, which is then its own; returns None if that is not for it."""
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limit of one field; limits that do not apply to its type stay None."""

    count: int | None = None
    """Elements of a repeated field, entries of a map."""
    length: int | None = None
    """Characters of a string or bytes of a `bytes` field: for each element, key and value."""
    total: int | None = None
    """Elements in the whole request, if several of its messages have the field. Required for nested
    elements: the cost of a request is that of all of them."""
    looked_into_from: int = 0
    """Size of a request, in bytes, above which its elements are counted before they are created,
    and checked one by one. Above 0 only if the code that handles them refuses each one that
    breaks a limit, and if checking each would be noticeable."""


@dataclass(slots=True)
class _Request:
    """What is known about the request being checked."""

    size: int
    totals: dict[str, int] = field(default_factory=dict)


_Check = Callable[[Any, _Request], None]


@dataclass(frozen=True, slots=True)
class _Wire:
    """How to count one field on the wire."""

    name: str
    count_max: int | None
    """None: a single submessage, which is only searched for elements."""
    inside: Mapping[int, _Wire]


class RequestReader:
    """Reads the requests of one method."""

    def __init__(
        self,
        descriptor: Descriptor,
        bytes_max: int,
        fields: _Fields,
        read_view: ReadView | None = None,
    ) -> None:
        """`read_view` reads what comes in memory of its own, if it can."""
        self.read_view = read_view
        self.name = descriptor.name
        self.bytes_max = bytes_max
        self._parse = GetMessageClass(descriptor).FromString
        self._check = _check_of(descriptor, fields)
        self._wires = _wires_of(descriptor, fields)
        self._counted_from = max(COUNTED_FROM, _looked_into_from(self._wires, fields))
        self._steps_max = OTHER_FIELDS_MAX + _elements_of(self._wires)
        # A request this short breaks no limit: each element and each character takes at least a
        # byte.
        self._harmless_size = _smallest_limit(descriptor, fields)

    def read(self, data: bytes | memoryview) -> Any:
        """The request, within its limits: a message, or what `read_view` makes of it.

        Raises:
            InvalidArgument: it breaks one, or is not such a message.
        """
        self._check_size(data)
        if isinstance(data, memoryview):
            given = None if self.read_view is None else self.read_view(data)
            if given is not None:
                return given
            data = bytes(data)
        try:
            message: Message = self._parse(data)
        except DecodeError:
            raise self._malformed() from None
        size = len(data)
        if size > self._harmless_size and self._check is not None:
            self._check(message, _Request(size))
        return message

    def check(self, data: bytes) -> None:
        """Check the limits of a request that its servicer parses, and reports on, itself.

        Raises:
            InvalidArgument: it breaks one.
        """
        self._check_size(data)
        size = len(data)
        if size > self._harmless_size and self._check is not None:
            with suppress(DecodeError):
                self._check(self._parse(data), _Request(size))

    def _check_size(self, data: bytes | memoryview) -> None:
        """Check bytes, and elements before they are created."""
        size = len(data)
        if size > self.bytes_max:
            raise InvalidArgument(
                f"{self.name} has {size} bytes; at most {self.bytes_max} are allowed: send less at "
                "a time"
            )
        if size > self._counted_from and self._wires:
            try:
                self._count(data, 0, size, self._wires, {}, self._steps_max)
            except IndexError:
                raise self._malformed() from None

    def _count(
        self,
        data: bytes | memoryview,
        at: int,
        end: int,
        wires: Mapping[int, _Wire],
        counts: dict[str, int],
        steps: int,
    ) -> int:
        """Walk over the fields from `at` to `end`; returns the number of steps left. Raises
        InvalidArgument, and IndexError if the bytes end too early."""
        while at < end:
            steps -= 1
            if steps < 0:
                raise InvalidArgument(
                    f"{self.name} has too many fields; at most {self._steps_max} are allowed: "
                    "send less at a time"
                )
            tag, at = read_varint(data, at)
            kind = tag & 7
            if kind == 0:
                _, at = read_varint(data, at)
            elif kind == 1:
                at += 8
            elif kind == 5:
                at += 4
            elif kind == 2:
                length, at = read_varint(data, at)
                wire = wires.get(tag >> 3)
                if wire is not None:
                    if wire.count_max is not None:
                        count = counts[wire.name] = counts.get(wire.name, 0) + 1
                        if count > wire.count_max:
                            raise _too_many(wire.name, count, wire.count_max, "or more ")
                    if wire.inside:
                        inner_end = min(at + length, end)
                        steps = self._count(data, at, inner_end, wire.inside, counts, steps)
                at += length
            else:
                raise self._malformed()
        if at > end:
            raise self._malformed()
        return steps

    def _malformed(self) -> InvalidArgument:
        return InvalidArgument(
            f"the request is not a {self.name} of this protocol: its bytes cannot be read"
        )


class RequestLimits:
    """The readers of all methods of some services."""

    def __init__(
        self,
        services: Iterable[ServiceDescriptor],
        requests: Mapping[str, int],
        fields: Mapping[str, Limit],
        *,
        package: str,
        views: Mapping[str, ReadView] = MappingProxyType({}),
    ) -> None:
        """`requests`: maximum bytes by the name of a request message; `fields`: limits by
        `Message.field`; `views`: readers of long requests, by the request's name, whose cost is as
        bounded as these limits are meant to be. All names within `package`.

        Raises:
            ValueError: a request or a field of one has no limit.
        """
        requests = {f"{package}.{name}": limit for name, limit in requests.items()}
        fields = {f"{package}.{name}": limit for name, limit in fields.items()}
        self.fields = fields
        """By the full name of a field."""
        self._readers: dict[str, RequestReader] = {}
        for service in services:
            for method in service.methods:
                request = method.input_type
                if request.full_name not in requests:
                    raise ValueError(f"{request.full_name} has no limit of its bytes")
                self._readers[f"/{service.full_name}/{method.name}"] = RequestReader(
                    request, requests[request.full_name], fields, views.get(request.name)
                )

    def reader(self, method: str) -> RequestReader | None:
        """By gRPC's name, `/package.Service/Method`; None for a method of another service."""
        return self._readers.get(method)


def bounded_fields(descriptor: Descriptor) -> list[FieldDescriptor]:
    """The fields of a message and its nested messages that need a limit, each once."""
    found: dict[str, FieldDescriptor] = {}
    for each in descriptor.fields:
        if each.is_repeated or each.type in _TEXTS:
            found[each.full_name] = each
        if each.message_type is not None and not _is_map(each):
            found.update((inner.full_name, inner) for inner in bounded_fields(each.message_type))
    return list(found.values())


def limit_of(each: FieldDescriptor, fields: Mapping[str, Limit]) -> Limit:
    """Raises ValueError if there is none, or one that is incomplete for the field's type."""
    limit = fields.get(each.full_name)
    entry = each.message_type if _is_map(each) else None
    texts = [each] if entry is None else entry.fields
    if (
        limit is None
        or (each.is_repeated and limit.count is None)
        or (any(text.type in _TEXTS for text in texts) and limit.length is None)
    ):
        raise ValueError(f"{each.full_name} has no limit")
    return limit


def _is_map(each: FieldDescriptor) -> bool:
    return each.message_type is not None and bool(each.message_type.GetOptions().map_entry)


def _smallest_limit(descriptor: Descriptor, fields: _Fields) -> int:
    limits = [limit_of(each, fields) for each in bounded_fields(descriptor)]
    numbers = [n for limit in limits for n in (limit.count, limit.length, limit.total) if n]
    return min(numbers, default=0)


# ---------------------------------------------------------------------------------- on the wire


def _wires_of(
    descriptor: Descriptor, fields: _Fields, *, of_elements: bool = False
) -> dict[int, _Wire]:
    """What must be counted before parsing: elements that become objects. Numbers do not, so they
    cost little more than their bytes. Nested elements are counted together."""
    wires: dict[int, _Wire] = {}
    for each in descriptor.fields:
        element, inside = each.message_type, {}
        if element is not None:
            inside = _wires_of(element, fields, of_elements=of_elements or each.is_repeated)
        if not each.is_repeated:
            if inside:
                wires[each.number] = _Wire(each.full_name, None, inside)
        elif element is not None or each.type in _TEXTS:
            limit = limit_of(each, fields)
            if of_elements and limit.total is None:
                raise ValueError(f"{each.full_name} has no limit of its total")
            count_max = limit.total if of_elements else limit.count
            wires[each.number] = _Wire(each.full_name, count_max, inside)
    return wires


def _elements_of(wires: Mapping[int, _Wire]) -> int:
    """Includes other fields that may be inside them."""
    return sum(
        (wire.count_max or 0) * (FIELDS_PER_ELEMENT_MAX if wire.inside else 1)
        + _elements_of(wire.inside)
        for wire in wires.values()
    )


def _looked_into_from(wires: Mapping[int, _Wire], fields: _Fields) -> int:
    """The largest value among the elements."""
    return max(
        (
            max(
                _looked_into_from(wire.inside, fields),
                0 if wire.count_max is None else fields[wire.name].looked_into_from,
            )
            for wire in wires.values()
        ),
        default=0,
    )


# ---------------------------------------------------------------------------------- parsed


def _check_of(descriptor: Descriptor, fields: _Fields) -> _Check | None:
    """The check of one message; None if nothing in it can be too long."""
    checks = [made for each in descriptor.fields if (made := _field_check(each, fields))]
    if not checks:
        return None
    if len(checks) == 1:
        return checks[0]

    def check(message: Any, request: _Request) -> None:
        for one in checks:
            one(message, request)

    return check


def _field_check(each: FieldDescriptor, fields: _Fields) -> _Check | None:
    name, full_name = each.name, each.full_name
    inner = None
    if each.message_type is not None and not _is_map(each):
        inner = _check_of(each.message_type, fields)
    if each.is_repeated:
        return _repeated_check(each, limit_of(each, fields), inner)
    if each.message_type is not None:
        if inner is None:
            return None

        def check_submessage(message: Any, request: _Request) -> None:
            if message.HasField(name):
                inner(getattr(message, name), request)

        return check_submessage
    if each.type not in _TEXTS:
        return None
    length_max = limit_of(each, fields).length
    assert length_max is not None, "limit_of has looked"

    def check_text(message: Any, request: _Request) -> None:
        # Reading `bytes` copies them: skip that if the whole request is shorter.
        if request.size > length_max and (length := len(getattr(message, name))) > length_max:
            raise _too_long(full_name, length, length_max)

    return check_text


def _repeated_check(each: FieldDescriptor, limit: Limit, inner: _Check | None) -> _Check:
    name, full_name, is_map = each.name, each.full_name, _is_map(each)
    count_max, length_max, total_max = limit.count, limit.length, limit.total
    assert count_max is not None, "limit_of has looked"
    looked_into_from = limit.looked_into_from

    def check(message: Any, request: _Request) -> None:
        elements = getattr(message, name)
        count = len(elements)
        if count > count_max:
            raise _too_many(full_name, count, count_max)
        if total_max is not None:
            total = request.totals[full_name] = request.totals.get(full_name, 0) + count
            if total > total_max:
                raise _too_many(full_name, total, total_max, "in all ")
        if request.size <= looked_into_from:
            return
        if inner is not None:
            for element in elements:
                inner(element, request)
        elif length_max is not None and request.size > length_max:
            for element in elements:
                _check_length(full_name, element, length_max)
                if is_map:
                    _check_length(full_name, elements[element], length_max)

    return check


def _check_length(full_name: str, text: object, length_max: int) -> None:
    """Keys and values of maps may be numbers."""
    if isinstance(text, str | bytes) and len(text) > length_max:
        raise _too_long(full_name, len(text), length_max)


def _too_many(full_name: str, count: int, count_max: int, of_what: str = "") -> InvalidArgument:
    return InvalidArgument(
        f"{_short(full_name)} has {count} {of_what}elements; at most {count_max} are allowed in "
        "one request: send fewer at a time"
    )


def _too_long(full_name: str, length: int, length_max: int) -> InvalidArgument:
    return InvalidArgument(
        f"{_short(full_name)} has a length of {length}; at most {length_max} is allowed: shorten it"
    )


def _short(full_name: str) -> str:
    """`aerobee.v1.SendFrame.batches` -> `SendFrame.batches`."""
    return ".".join(full_name.split(".")[-2:])
