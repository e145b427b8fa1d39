"""The JSON of Apache's config files: a lenient reader, and a writer with the same formatting.

Why: fastjson writes maps with integer or object keys without quotes, `{0:5}` and `{{"a":1}:5}`,
which no JSON library reads. Strict documents still go to the standard library; only what it refuses
goes to the parser here, which also reports the exact place of an error.

Invariant: an integer key is its decimal text whether it was quoted or not; an object key is an
`ObjectKey`; if a name occurs twice, the last one counts. Integer keys are written with quotes,
which every version of fastjson reads; keys are sorted, so that equal values are equal bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import NoReturn, TypeAlias

DEPTH_MAX = 100
"""Nesting beyond this is refused: no config file needs it, and the parser recurses."""


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """An object that serves as the key of a map, for example a message queue in offsets.json."""

    members: tuple[tuple[str, str | int], ...]

    @classmethod
    def of(cls, members: Mapping[str, str | int]) -> ObjectKey:
        """The key with these members; their order does not matter."""
        return cls(tuple(sorted(members.items())))

    def as_dict(self) -> dict[str, str | int]:
        return dict(self.members)


JsonValue: TypeAlias = "JsonObject | list[JsonValue] | str | int | float | bool | None"
JsonObject: TypeAlias = "dict[str | ObjectKey, JsonValue]"


class JsonIllegal(ValueError):
    """Text that is not even lenient JSON. `position` counts characters (bytes if not UTF-8)."""

    def __init__(self, problem: str, *, position: int, line: int, column: int) -> None:
        super().__init__(f"line {line} column {column} (position {position}): {problem}")
        self.position = position
        self.line = line
        self.column = column


def parse_json(data: bytes | str) -> JsonValue:
    """The value in `data`. Raises JsonIllegal with the place of the first error."""
    text = _decode(data) if isinstance(data, bytes) else data
    try:
        strict: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _Parser(text).document()
    return strict


def parse_object(data: bytes | str) -> JsonObject:
    """As parse_json, for a document that must be an object."""
    value = parse_json(data)
    if not isinstance(value, dict):
        raise JsonIllegal("the document must be an object {...}", position=0, line=1, column=1)
    return value


def render_json(value: object) -> bytes:
    """UTF-8 bytes formatted like fastjson's pretty writer, without a final newline.

    Takes what `parse_json` gives; TypeError for other keys or values.
    """
    return encode_text(render_text(value))


def encode_text(text: str) -> bytes:
    """Rendered text as UTF-8; lone surrogates, which UTF-8 cannot represent, become escapes."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", text).encode()


def render_text(value: object, *, depth: int = 0) -> str:
    """The text of a value at nesting level `depth`; for writers that join prepared parts."""
    if isinstance(value, dict):
        return _render_object(value, depth)
    if isinstance(value, list):
        if not any(isinstance(item, dict | list) for item in value):
            return "[" + ",".join(_render_scalar(item) for item in value) + "]"
        indent = "\n" + "\t" * (depth + 1)
        items = ",".join(indent + render_text(item, depth=depth + 1) for item in value)
        return f"[{items}{indent[:-1]}]"
    return _render_scalar(value)


def _render_object(value: dict[object, object], depth: int) -> str:
    if not value:
        return "{}"
    indent = "\n" + "\t" * (depth + 1)
    names = [key for key in value if isinstance(key, str)]
    objects = sorted((key for key in value if isinstance(key, ObjectKey)), key=repr)
    if len(names) + len(objects) != len(value):
        raise TypeError("the keys of a JSON object are texts (integers too) or ObjectKeys")
    members = {name: render_text(value[name], depth=depth + 1) for name in names}
    if not objects:
        return join_members(members, depth=depth)
    entries = _entries_on_a_line(members)
    for key in objects:
        shown = render_text(key.as_dict(), depth=depth + 1)
        entries.append(f"{shown}:{render_text(value[key], depth=depth + 1)}")
    return "{" + ",".join(entries) + indent[:-1] + "}"


def join_members(members: Mapping[str, str], *, depth: int = 0) -> str:
    """The text of an object at nesting level `depth`; `members` are the texts of its values, one
    level deeper."""
    if not members:
        return "{}"
    indent = "\n" + "\t" * (depth + 1)
    if all(_INTEGER_KEY.fullmatch(name) for name in members):
        entries = _entries_on_a_line(members)
    else:
        entries = [f"{indent}{_render_scalar(name)}:{members[name]}" for name in sorted(members)]
    return "{" + ",".join(entries) + indent[:-1] + "}"


def _entries_on_a_line(members: Mapping[str, str]) -> list[str]:
    """fastjson keeps the entries of maps whose keys are not names on one line, and breaks it before
    the brace."""
    return [
        f"{_render_scalar(name)}:{members[name]}" for name in sorted(members, key=_numeric_order)
    ]


def _render_scalar(value: object) -> str:
    if type(value) is str:
        return encode_basestring(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _numeric_order(name: str) -> tuple[bool, int, str]:
    is_integer = _INTEGER_KEY.fullmatch(name) is not None
    return (not is_integer, int(name) if is_integer else 0, name)


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        raise JsonIllegal(
            f"byte {data[error.start]:#04x} is not UTF-8",
            position=error.start,
            line=before.count(b"\n") + 1,
            column=error.start - (before.rfind(b"\n") + 1) + 1,
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_INTEGER_KEY = re.compile(r"-?[0-9]{1,19}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LITERALS: tuple[tuple[str, bool | None], ...] = (("true", True), ("false", False), ("null", None))


class _Parser:
    """Recursive descent over one text; `_position` is that of the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def document(self) -> JsonValue:
        value = self._value(0)
        if self._peek():
            self._fail("nothing may follow the end of the document")
        return value

    def _value(self, depth: int) -> JsonValue:
        if depth > DEPTH_MAX:
            self._fail(f"nested deeper than {DEPTH_MAX} levels")
        first = self._peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        return self._scalar("a value")

    def _object(self, depth: int) -> JsonObject:
        members: JsonObject = {}
        self._expect("{")
        if self._accept("}"):
            return members
        while True:
            key = self._key(depth)
            if not self._accept(":"):
                self._fail("expected ':' after a key")
            members[key] = self._value(depth + 1)
            if self._accept("}"):
                return members
            if not self._accept(","):
                self._fail("expected ',' or '}' in an object")

    def _array(self, depth: int) -> list[JsonValue]:
        items: list[JsonValue] = []
        self._expect("[")
        if self._accept("]"):
            return items
        while True:
            items.append(self._value(depth + 1))
            if self._accept("]"):
                return items
            if not self._accept(","):
                self._fail("expected ',' or ']' in an array")

    def _key(self, depth: int) -> str | ObjectKey:
        first = self._peek()
        begin = self._position
        if first == "{":
            members = self._value(depth + 1)
            assert isinstance(members, dict)
            flat = {
                name: value
                for name, value in members.items()
                if isinstance(name, str) and isinstance(value, str | int)
            }
            if len(flat) != len(members):
                self._position = begin
                self._fail("an object that serves as a key may hold only strings and integers")
            return ObjectKey.of(flat)
        key = self._scalar("a key: a string, an integer or an object")
        if isinstance(key, int) and not isinstance(key, bool):
            return str(key)
        if not isinstance(key, str):
            self._position = begin
            self._fail("expected a key: a string, an integer or an object")
        return key

    def _scalar(self, wanted: str) -> str | int | float | bool | None:
        if self._peek() == '"':
            return self._string()
        number = _NUMBER.match(self._text, self._position)
        if number is not None:
            return self._number(number)
        for name, value in _LITERALS:
            if self._text.startswith(name, self._position):
                self._position += len(name)
                return value
        self._fail(f"expected {wanted}")

    def _string(self) -> str:
        found = _STRING.match(self._text, self._position)
        if found is None:
            self._fail("a string that is not closed, or an illegal character or escape in it")
        self._position = found.end()
        value = json.loads(found.group())
        assert isinstance(value, str)
        return value

    def _number(self, found: re.Match[str]) -> int | float:
        is_float = found.group(1) is not None or found.group(2) is not None
        try:
            value = float(found.group()) if is_float else int(found.group())
        except ValueError:  # the interpreter limits the digits of an integer
            self._fail("a number with too many digits")
        self._position = found.end()
        return value

    def _peek(self) -> str:
        found = _SPACE.match(self._text, self._position)
        assert found is not None
        self._position = found.end()
        return self._text[self._position : self._position + 1]

    def _accept(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._position += 1
        return True

    def _expect(self, character: str) -> None:
        accepted = self._accept(character)
        assert accepted, "callers looked already"

    def _fail(self, problem: str) -> NoReturn:
        line = self._text.count("\n", 0, self._position) + 1
        column = self._position - (self._text.rfind("\n", 0, self._position) + 1) + 1
        if self._position >= len(self._text):
            problem = f"the text ends too early: {problem}"
        raise JsonIllegal(problem, position=self._position, line=line, column=column)
