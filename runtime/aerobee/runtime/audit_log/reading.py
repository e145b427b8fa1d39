"""The last lines of an audit log, from the end of its files backwards.

A place names a line by the number of its file's first line and the byte where it begins. It stays
valid when the file is renamed, since files only grow. Blocks; one reading costs at most
`READ_BYTES_MAX` bytes, however many files there are and however few lines are wanted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from aerobee.runtime.audit_log.chain import LINE_BYTES_MAX, UnreadableLine, read_line
from aerobee.runtime.audit_log.log_file import earlier_files
from aerobee.runtime.errors import InvalidArgument

READ_BYTES_MAX: Final = 512 * 1_024
_BLOCK_BYTES: Final = 2 * LINE_BYTES_MAX
LINES_MAX: Final = 200


def time_text(moment_ms: int) -> str:
    """A moment as lines have it; texts sort as moments do."""
    moment = datetime.fromtimestamp(moment_ms / 1_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1_000:03}Z"


@dataclass(frozen=True, slots=True)
class WantedLines:
    """Which lines are shown; nothing given: all."""

    caller: str = ""
    method: str = ""
    about: str = ""
    """Text of the needed rights or of the request."""
    only_refusals: bool = False
    since: str = ""
    """As `time_text`, inclusive; empty: no limit."""
    until: str = ""

    def take(self, line: Mapping[str, Any]) -> bool:
        time = str(line.get("time", ""))
        return (
            self.caller in str(line.get("caller", ""))
            and self.method in str(line.get("method", ""))
            and (not self.only_refusals or line.get("event") == "refusal")
            and self.since <= time
            and (not self.until or time <= self.until)
            and (not self.about or self.about in _about(line))
        )


class PlacedLine(NamedTuple):
    """A line, and where it is."""

    data: bytes
    place: str


@dataclass(frozen=True, slots=True)
class LogPart:
    """What one reading found."""

    node: str
    lines: tuple[PlacedLine, ...]
    """The newest first."""
    next: str
    """Where the next reading continues; empty: there is nothing before."""
    read_to: str
    """`time` of the oldest line read; empty: none was."""
    damaged: int
    """Lines that are not as they were written."""


def read_back(path: Path, node: str, before: str, wanted: WantedLines, lines_max: int) -> LogPart:
    """The last lines before the place `before` that are wanted; empty: from the end.

    Raises:
        InvalidArgument: `before` is no place, or `lines_max` is not between 1 and `LINES_MAX`.
        OSError: a file cannot be read.
    """
    if not 1 <= lines_max <= LINES_MAX:
        raise InvalidArgument(f"lines_max must be between 1 and {LINES_MAX}, not {lines_max}")
    reading = _Reading(wanted, lines_max)
    for first, file, end in _files_before(path, before):
        with file.open("rb", buffering=0) as opened:
            size = os.fstat(opened.fileno()).st_size
            place = reading.read_file(first, opened.fileno(), size if end is None else end)
        if place or reading.is_before_all:
            return reading.part(node, place)
    return reading.part(node, "")


class _Reading:
    """Lines found so far, and what may still be read."""

    def __init__(self, wanted: WantedLines, lines_max: int) -> None:
        self._wanted = wanted
        self._lines_max = lines_max
        self._bytes_left = READ_BYTES_MAX
        self._lines: list[PlacedLine] = []
        self._read_to = ""
        self._damaged = 0
        self.is_before_all = False
        """What was read last is older than everything wanted."""

    def part(self, node: str, place: str) -> LogPart:
        return LogPart(node, tuple(self._lines), place, self._read_to, self._damaged)

    def read_file(self, first: int, file: int, end: int) -> str:
        """Where to continue in this file; empty: it is read to its beginning."""
        while end > 0:
            if self._bytes_left <= 0:
                return f"{first}:{end}"
            begin = max(0, end - _BLOCK_BYTES)
            block = os.pread(file, end - begin, begin)
            self._bytes_left -= len(block)
            cut = block.find(b"\n") + 1 if begin else 0
            newest = ""
            for start, data in _lines_back(block, cut):
                place = f"{first}:{begin + start}"
                time = self._take(data, place)
                newest = newest or time
                if len(self._lines) >= self._lines_max:
                    return place
            if newest and newest < self._wanted.since:
                self.is_before_all = True
                return ""
            # A block without the beginning of a line is not of this log, and passed over.
            end = begin + cut if cut < len(block) else begin
        return ""

    def _take(self, data: bytes, place: str) -> str:
        """Returns the line's time; empty: it cannot be read."""
        try:
            line = read_line(data)
        except UnreadableLine:
            self._damaged += 1
            return ""
        self._damaged += not line.is_whole
        self._read_to = str(line.content.get("time", ""))
        if self._wanted.take(line.content):
            self._lines.append(PlacedLine(data, place))
        return self._read_to


def _lines_back(block: bytes, begin: int) -> Iterator[tuple[int, bytes]]:
    """The ended lines from `begin` on, the last one first, with where they begin. A rest without a
    line end is being written, or torn."""
    end = block.rfind(b"\n")
    while end >= begin:
        start = max(block.rfind(b"\n", begin, end) + 1, begin)
        yield start, block[start:end]
        end = start - 1


def _files_before(path: Path, before: str) -> Iterator[tuple[int, Path, int | None]]:
    """The newest first: number of the first line, and where to begin; None: at the end.

    Raises InvalidArgument, OSError.
    """
    files = [(int(each.suffix[1:]), each) for each in earlier_files(path)]
    if path.exists():
        files.append((_first_of(path), path))
    files.reverse()
    if not before:
        yield from ((first, file, None) for first, file in files)
        return
    number, end = _parsed(before)
    for first, file in files:
        if first == number:
            yield first, file, min(end, file.stat().st_size)
        elif first < number:
            yield first, file, None


def _first_of(path: Path) -> int:
    """Larger than every number: it has no line that can be read."""
    with path.open("rb") as file:
        line = file.readline(LINE_BYTES_MAX)
    with suppress(UnreadableLine):
        return read_line(line.removesuffix(b"\n")).place.sequence
    return 10**12


def _parsed(place: str) -> tuple[int, int]:
    number, _, offset = place.partition(":")
    if not (_is_whole(number) and _is_whole(offset)):
        raise InvalidArgument(f"{place[:40]!r} is not a place of an audit log; begin at its end")
    return int(number), int(offset)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15


def _about(line: Mapping[str, Any]) -> str:
    return json.dumps([line.get("needs"), line.get("request")])
