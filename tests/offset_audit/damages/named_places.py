"""Whether a finding says where a damage is: its file, or a place in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from aerobee.store.format.consume_queue_entry import ENTRY_SIZE

_BYTE: Final = re.compile(r"\bbyte (\d+)")
_MESSAGE: Final = re.compile(r"(\S+)/(\d+),? queue offsets? (?:between )?(\d+)")


def is_named(findings: Iterable[Mapping[str, Any]], done: str, sound: Path) -> bool:
    """`done`: a file below the store, or a record of a journal, and what was done to it; `sound`:
    the store before."""
    where, _, what = done.partition(":")
    damaged, _, is_record = where.partition(" record ")
    return any(
        _names(one, damaged, sound) or (bool(is_record) and _is_of_entry(one, what))
        for one in findings
    )


def _is_of_entry(finding: Mapping[str, Any], entry: str) -> bool:
    """Whose entry is gone."""
    return all(f'"{finding[name]}"' in entry for name in ("group", "topic"))


def _names(finding: Mapping[str, Any], damaged: str, sound: Path) -> bool:
    evidence = str(finding["evidence"])
    folder, *rest = damaged.split("/")
    if damaged in evidence or finding["topic"] == damaged:
        return True
    if folder == "commitlog":
        begin = int(rest[-1])
        end = begin + (sound / damaged).stat().st_size
        told = [int(at) for at in _BYTE.findall(evidence)]
        told += _positions(_MESSAGE.findall(evidence), sound)
        return any(begin <= at < end for at in told)
    if folder == "consumequeue":
        topic, queue_id, _ = rest
        return f"{topic}/{queue_id}" in evidence or finding["topic"] == topic
    if folder == "index":
        return bool(finding["check"] == "INDEX_MISSING")
    if folder == "timerlog":
        return "timerlog has no file" in evidence
    if folder == "config":
        names = [name for name in (finding["topic"], finding["group"]) if name]
        return any(name in (sound / damaged).read_text(errors="replace") for name in names)
    return False


def _positions(messages: Iterable[tuple[str, str, str]], sound: Path) -> Iterator[int]:
    """Where in the log these are: of each its topic, queue and offset."""
    for topic, queue_id, offset in messages:
        at = int(offset) * ENTRY_SIZE
        for path in (sound / "consumequeue" / topic / queue_id).glob("*"):
            entry = path.read_bytes()[at - int(path.name) :][:8] if int(path.name) <= at else b""
            if len(entry) == 8:
                yield int.from_bytes(entry, "big")
