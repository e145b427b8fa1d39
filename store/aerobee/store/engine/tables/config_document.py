"""The common part of Apache's config files: a data version, one table, and other members.

Invariant: members that we do not use are written back unchanged; a document rendered after a change
has a higher data version. Helpers take typed members out of parsed JSON, and name the member in
errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from aerobee.store.format.json_config import JsonValue, encode_text, parse_object, render_text

Member = TypeVar("Member", str, int, bool)


class ConfigDocument:
    """What surrounds the table in all these files: the data version and members we do not use."""

    def __init__(self) -> None:
        self.changes = 0
        self.unknown: dict[str, JsonValue] = {}
        self._version: dict[str, JsonValue] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        self._changes_rendered = 0

    @classmethod
    def load(cls, parsed: dict[str, JsonValue]) -> ConfigDocument:
        """Takes over the members that are left once the table was taken out."""
        document = cls()
        document._version.update(take_object(parsed, "dataVersion"))
        document.unknown = parsed
        return document

    @property
    def version(self) -> dict[str, JsonValue]:
        """counter, stateVersion, timestamp, and any other members; a copy."""
        return dict(self._version)

    def taken(self, now_ms: int) -> ConfigDocument:
        """A copy as of now, for a thread to render; raises the version like `render`."""
        self.raise_version(now_ms)
        copy = ConfigDocument()
        copy.unknown, copy._version = dict(self.unknown), self.version
        return copy

    def raise_version(self, now_ms: int) -> None:
        """Increment if there was any change since the last time."""
        if self.changes != self._changes_rendered:
            self._changes_rendered = self.changes
            counter = self._version.get("counter")
            self._version["counter"] = counter + 1 if isinstance(counter, int) else 1
            self._version["timestamp"] = now_ms

    def render(
        self,
        now_ms: int,
        table_name: str,
        table_text: str,
        more: Mapping[str, str] | None = None,
    ) -> bytes:
        """The document; a change since the last one raises the data version. `more` are further
        members, as text."""
        self.raise_version(now_ms)
        members = {key: render_text(value, depth=1) for key, value in self.unknown.items()}
        members["dataVersion"] = render_text(self._version, depth=1)
        members[table_name] = table_text
        members.update(more or {})
        lines = ",".join(f"\n\t{render_text(name)}:{members[name]}" for name in sorted(members))
        return encode_text("{" + lines + "\n}")


def parse_document(data: bytes) -> dict[str, JsonValue]:
    """A config file's members. Raises ValueError if it is not one."""
    return named_members(parse_object(data), "the document")


def take_member(bean: dict[str, JsonValue], name: str, default: Member) -> Member:
    """Removes a member and returns its value, or the default. ValueError for another type."""
    value = bean.pop(name, default)
    if type(value) is not type(default):
        raise ValueError(f"{name!r} must be of type {type(default).__name__}, not {value!r:.40}")
    return value


def take_object(bean: dict[str, JsonValue], name: str) -> dict[str, JsonValue]:
    """Removes a member that is a map with plain keys; empty if it is missing."""
    value = bean.pop(name, None)
    if value is None:
        return {}
    return named_members(value, name)


def take_attributes(bean: dict[str, JsonValue]) -> dict[str, str]:
    """Removes the member `attributes`, a map of strings."""
    attributes = take_object(bean, "attributes")
    texts = {name: value for name, value in attributes.items() if isinstance(value, str)}
    if len(texts) != len(attributes):
        raise ValueError("the values of 'attributes' must be strings")
    return texts


def named_members(value: JsonValue, name: str) -> dict[str, JsonValue]:
    """The value as a map with plain keys. ValueError, naming it, if it is not one."""
    if not isinstance(value, dict):
        raise ValueError(f"{name!r} must be an object {{...}}, not {value!r:.40}")
    members = {key: member for key, member in value.items() if isinstance(key, str)}
    if len(members) != len(value):
        raise ValueError(f"{name!r} has a key that is not a string")
    return members
