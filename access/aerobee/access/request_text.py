"""What a request asks for, in a form that is safe for the audit log.

Leaves out anything that could be a secret or a message's content: all bytes, and fields with a
telling word in their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_PRIVATE: Final = frozenset(
    [
        "authorization",
        "bodies",
        "body",
        "credential",
        "credentials",
        "data",
        "keys",
        "password",
        "payload",
        "properties",
        "record",
        "records",
        "sealed",
        "secret",
        "secrets",
        "tags",
        "token",
    ]
)
TEXT_MAX: Final = 300
ITEMS_MAX: Final = 10
FIELDS_MAX: Final = 60
"""Per request, over all its nested messages."""
DEPTH_MAX: Final = 4


def is_private(name: str) -> bool:
    """Whether a field is left out."""
    return not _PRIVATE.isdisjoint(name.split("_"))


def shortened(text: str) -> str:
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}... ({len(text)} characters)"


def request_text(request: Any) -> dict[str, Any]:
    """The fields that are set in a protobuf message and its nested messages. Text that is too long
    is cut, and marked as cut."""
    return _Reading().message(request, DEPTH_MAX)


class _Reading:
    """The reading of one request."""

    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def message(self, message: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field, value in message.ListFields():
            name = str(field.name)
            if self._left <= 0 or depth <= 0:
                found["..."] = "and more"
                break
            self._left -= 1
            # Numbers and flags are shown: `forget_former_secret` is something an administrator did.
            if is_private(name) and not isinstance(value, bool | int | float):
                found[name] = "(not shown)"
            else:
                found[name] = self._value(field, value, depth)
        return found

    def _value(self, field: Any, value: Any, depth: int) -> Any:
        if isinstance(value, bytes):
            return f"({len(value)} bytes)"
        if isinstance(value, str):
            return shortened(value)
        if isinstance(value, bool | int | float):
            names = field.enum_type.values_by_number if field.enum_type is not None else {}
            return names[value].name if value in names else value
        if hasattr(value, "ListFields"):
            return self.message(value, depth - 1)
        if hasattr(value, "items"):
            return {
                shortened(str(key)): self._value(field, value[key], depth)
                for key in _first(value, len(value))
            }
        return [self._value(field, each, depth) for each in _first(value, len(value))]


def _first(values: Iterable[Any], count: int) -> list[Any]:
    return [value for value, _ in zip(values, range(min(count, ITEMS_MAX)), strict=False)]
