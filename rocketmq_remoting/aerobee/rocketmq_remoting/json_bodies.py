"""JSON as fastjson reads and writes it, which is not quite JSON.

Read: names may be numbers without quotes. Written: without blanks, because the Go client cuts some
bodies as text; null members are left out; and a map whose keys are objects is written with the
objects themselves as names (`ObjectKeys`), because fastjson2 takes no quoted ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from aerobee.runtime.errors import InvalidArgument

BODY_BYTES_MAX: Final = 1 << 20
"""Of a body that is parsed; a heart-beat with a thousand subscriptions has 200 KiB."""

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_BARE_NAME: Final = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\d+)(?=\s*:)')
"""A text as a whole, so that nothing inside it counts; or a number where a name belongs."""


class ObjectKeys(list[tuple[Mapping[str, Any], Any]]):
    """A map with objects as keys: pairs of key and value."""


def read_object(data: bytes) -> dict[str, Any]:
    """The object that a body holds. Raises InvalidArgument."""
    if len(data) > BODY_BYTES_MAX:
        raise InvalidArgument(
            f"the body has {len(data)} bytes; at most {BODY_BYTES_MAX} are read in this request"
        )
    try:
        text = data.decode()
        try:
            found = json.loads(text)
        except ValueError:
            found = json.loads(_BARE_NAME.sub(_quoted, text))
    except (ValueError, RecursionError):
        raise InvalidArgument("the body of the request is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidArgument("the body of the request is no JSON object")
    return found


_QUEUE_KEY: Final = re.compile(r"(\{[^{}]*\})\s*:\s*(-?\d+)")
"""A flat object as a name, with a number."""


def read_object_keys(data: bytes, member: str) -> ObjectKeys:
    """A member of a body that is a map from flat objects to numbers. Raises InvalidArgument."""
    if len(data) > BODY_BYTES_MAX:
        raise InvalidArgument(f"the body has {len(data)} bytes; at most {BODY_BYTES_MAX} are read")
    _, _, rest = data.decode("utf-8", "replace").partition(f'"{member}":')
    found = ObjectKeys()
    for key, value in _QUEUE_KEY.findall(rest):
        found.append((read_object(key.encode()), int(value)))
    return found


def _quoted(found: re.Match[str]) -> str:
    before, name = found.groups()
    return found[0] if name is None else f'{before}"{name}"'


def write(value: Any) -> bytes:
    """The bytes of a body."""
    return _text(value).encode("utf-8", "replace")


def _text(value: Any) -> str:
    if isinstance(value, ObjectKeys):
        return "{" + ",".join(f"{_text(key)}:{_text(one)}" for key, one in value) + "}"
    if isinstance(value, Mapping):
        members = (
            f"{_encode(str(name))}:{_text(one)}" for name, one in value.items() if one is not None
        )
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    return _encode(value)
