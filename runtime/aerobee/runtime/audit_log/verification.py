"""Checks whether the lines of an audit log are as they were written: none changed, removed,
inserted or reordered. Blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from aerobee.runtime.audit_log.chain import (
    BEGINNING,
    LINE_BYTES_MAX,
    Key,
    Line,
    Place,
    UnreadableLine,
    read_line,
)
from aerobee.runtime.audit_log.log_file import earlier_files, written_as

FINDINGS_MAX: Final = 20


class Finding(NamedTuple):
    """What is wrong, and where."""

    path: Path
    number: int
    """The line's number in its file, from 1."""
    why: str

    def __str__(self) -> str:
        return f"{self.path} line {self.number}: {self.why}"


class RawLine(NamedTuple):
    """One line of a file."""

    path: Path
    number: int
    """From 1; 0: the file is empty."""
    data: bytes
    is_ended: bool


@dataclass
class Verdict:
    """The result for all files together."""

    lines: int = 0
    first: Line | None = None
    last: Line | None = None
    has_macs: bool = False
    is_torn: bool = False
    """The last line has no end, which is a finding too: somebody cut it off, or the process was
    killed, or is still writing it."""
    nodes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """The first findings, in line order."""


def logs_of(paths: Sequence[Path]) -> list[list[Path]]:
    """The files of each log, including the renamed ones beside them, in the order they were
    written."""
    logs: dict[Path, set[Path]] = {}
    for path in paths:
        name = written_as(path)
        logs.setdefault(name, set(earlier_files(name))).add(path)
    # The numbers have equal length, and the current file has none.
    return [[*sorted(files - {name}), *({name} & files)] for name, files in logs.items()]


def raw_lines(paths: Sequence[Path]) -> Iterator[RawLine]:
    """Raises OSError."""
    for path in paths:
        with path.open("rb") as file:
            number = 0
            if not os.fstat(file.fileno()).st_size:
                yield RawLine(path, 0, b"", is_ended=True)
            while data := file.readline(LINE_BYTES_MAX):
                number += 1
                is_ended = data.endswith(b"\n")
                yield RawLine(path, number, data.removesuffix(b"\n"), is_ended)


def verify(paths: Sequence[Path], keys: Sequence[Key], expected: Place | None = None) -> Verdict:
    """`paths`: the files of one log, in order. With `keys`, each line must have a mac by one of
    them, except lines before the first that has one: the node had no key yet. `expected` is a place
    known from elsewhere.

    Raises:
        OSError: a file cannot be read.
    """
    check = _Check({key.name: key for key in keys}, expected)
    for raw in raw_lines(paths):
        check.take(raw)
    return check.end()


class _Check:
    """Checks line by line."""

    def __init__(self, keys: dict[str, Key], expected: Place | None) -> None:
        self._keys = keys
        self._expected = expected
        self._is_expected_seen = expected is None
        self._raw: RawLine | None = None
        self.verdict = Verdict()

    def take(self, raw: RawLine) -> None:
        verdict, self._raw = self.verdict, raw
        if verdict.is_torn:
            verdict.is_torn = False
            self._found("the line before it, at the end of the former file, is not whole")
        if not raw.number:
            self._found("the file is empty: nodes write a line when they make it; it was emptied")
            return
        # A line without its end is not written, even if nothing else of it is missing.
        verdict.is_torn = not raw.is_ended and len(raw.data) < LINE_BYTES_MAX
        if verdict.is_torn:
            return
        try:
            line = read_line(raw.data)
        except UnreadableLine as error:
            self._found(str(error))
            return
        for why in (
            _why_not_after(verdict.last, line),
            self._why_not_made(line) if self._keys else "",
            self._why_not_expected(line),
        ):
            if why:
                self._found(why)
                break
        verdict.lines += 1
        verdict.first = verdict.first or line
        verdict.last = line
        verdict.has_macs = verdict.has_macs or bool(line.mac)
        node = str(line.content.get("node", ""))
        if node not in verdict.nodes and len(verdict.nodes) < FINDINGS_MAX:
            verdict.nodes.append(node)

    def end(self) -> Verdict:
        if self.verdict.is_torn:
            self._found(
                "the line has no end: it was cut off, or its node was killed or is writing it; if "
                "the node runs, verify again"
            )
        if self._keys and not self.verdict.has_macs:
            self._found("no line has a mac: the node had no key, or all was made anew without it")
        if self._expected is not None and not self._is_expected_seen:
            self._found(f"line {self._expected.sequence} is not there: lines were cut off")
        return self.verdict

    def _found(self, why: str) -> None:
        raw, findings = self._raw, self.verdict.findings
        if len(findings) < FINDINGS_MAX:
            path, number = (Path(), 0) if raw is None else (raw.path, raw.number)
            findings.append(Finding(path, number, why))

    def _why_not_made(self, line: Line) -> str:
        if not line.mac:
            is_before = not line.key_name and not self.verdict.has_macs
            return "" if is_before else "it has no mac: it was made without the key"
        key = self._keys.get(line.key_name)
        if key is None:
            return f"it was made with the key {line.key_name!r}, which was not given"
        if key.mac(line.place.hash) != line.mac:
            return "its mac does not fit: it was made without the key"
        return ""

    def _why_not_expected(self, line: Line) -> str:
        expected = self._expected
        if expected is None or line.place.sequence != expected.sequence:
            return ""
        self._is_expected_seen = True
        if line.place.hash != expected.hash:
            return f"its hash is not the one that is known of line {expected.sequence}"
        return ""


def _why_not_after(previous: Line | None, line: Line) -> str:
    """Empty: it does follow. If earlier files were removed, the beginning of the log is unknown."""
    if not line.is_whole:
        return "it was changed: its hash does not fit"
    if previous is None and line.place.sequence > 1:
        return ""
    place = BEGINNING if previous is None else previous.place
    expected, sequence = place.sequence + 1, line.place.sequence
    if sequence > expected:
        return f"lines {expected} to {sequence - 1} are missing before it"
    if sequence < expected:
        return f"it is line {sequence} and comes after line {place.sequence}"
    if line.before != place.hash:
        return "it was written after another line than the one before it"
    return ""
