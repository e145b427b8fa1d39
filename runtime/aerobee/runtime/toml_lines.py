"""The line of each key in a TOML document, which `tomllib` does not report.

Owns: a scanner for keys. It reads documents that `tomllib` accepts, so it needs to find only where
keys, strings and brackets begin and end, not what values mean.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}\n#]+")


def lines_of(text: str) -> Mapping[str, int]:
    """Dotted key -> line number, counted from 1; includes tables.

    `text` must be valid TOML.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.lines: dict[str, int] = {}

    def document(self) -> None:
        table: tuple[str, ...] = ()
        self._skip(_GAP)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                while self._text[self._at] == "[":
                    self._at += 1
                table = self._key(())
                while self._at < len(self._text) and self._text[self._at] == "]":
                    self._at += 1
            else:
                self._pair(table)
            self._skip(_GAP)

    def _pair(self, table: tuple[str, ...]) -> None:
        path = self._key(table)
        assert self._text[self._at] == "=", "a key is followed by its value"
        self._at += 1
        self._skip(_BLANK)
        self._value(path)

    def _key(self, table: tuple[str, ...]) -> tuple[str, ...]:
        """Reads a dotted key and the blanks after it; records its line."""
        line = self._text.count("\n", 0, self._at) + 1
        path = table
        while True:
            self._skip(_BLANK)
            path = (*path, self._name())
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                break
            self._at += 1
        self.lines.setdefault(".".join(path), line)
        return path

    def _name(self) -> str:
        quoted = _STRING.match(self._text, self._at)
        if quoted is not None:
            self._at = quoted.end()
            (name,) = tomllib.loads(f"{quoted.group()} = 0")
            return str(name)
        bare = _BARE_KEY.match(self._text, self._at)
        assert bare is not None, "a key begins here"
        self._at = bare.end()
        return bare.group()

    def _value(self, path: tuple[str, ...]) -> None:
        mark = self._text[self._at]
        if mark in "\"'":
            self._skip(_STRING)
        elif mark == "[":
            self._items("]", path)
        elif mark == "{":
            self._items("}", path)
        else:
            self._skip(_SCALAR)

    def _items(self, end: str, path: tuple[str, ...]) -> None:
        """An array, whose items have no keys of their own, or an inline table."""
        self._at += 1
        self._skip(_GAP)
        while self._text[self._at] != end:
            if end == "}":
                self._pair(path)
            else:
                self._value(path)
            self._skip(_GAP)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_GAP)
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        assert match is not None, "the document is valid TOML"
        self._at = match.end()
