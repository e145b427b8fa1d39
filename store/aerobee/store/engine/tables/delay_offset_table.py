"""delayOffset.json: how far each delay level of the schedule topic was delivered.

Invariant: entries that are not a level with an offset are written back unchanged.
"""

from __future__ import annotations

from typing import Self

from aerobee.store.engine.tables.config_document import ConfigDocument, parse_document, take_object
from aerobee.store.format.json_config import JsonValue, render_text

DELAY_OFFSETS_PATH = "config/delayOffset.json"


class DelayOffsetTable:
    """Level (1 is the first) -> next offset to deliver in queue level - 1."""

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}
        self._foreign: dict[str, JsonValue] = {}
        self._document = ConfigDocument()

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The table in a file's bytes. Raises ValueError for anything else."""
        document = parse_document(data)
        table = cls()
        for level, offset in take_object(document, "offsetTable").items():
            if level.isascii() and level.isdigit() and type(offset) is int and offset >= 0:
                table._offsets[int(level)] = offset
            else:
                table._foreign[level] = offset
        table._document = ConfigDocument.load(document)
        return table

    def put(self, level: int, offset: int) -> None:
        """Set the next offset of a level."""
        assert level >= 1, level
        assert offset >= 0, offset
        if self._offsets.get(level) != offset:
            self._offsets[level] = offset
            self._document.changes += 1

    def offsets(self) -> dict[int, int]:
        """By level, in order; a copy."""
        return {level: self._offsets[level] for level in sorted(self._offsets)}

    @property
    def changes(self) -> int:
        """How often the table has changed since it was created; savers compare it."""
        return self._document.changes

    def snapshot_bytes(self, now_ms: int) -> bytes:
        """The whole file as of now."""
        members = {**self._foreign, **{str(level): at for level, at in self._offsets.items()}}
        return self._document.render(now_ms, "offsetTable", render_text(members, depth=1))
