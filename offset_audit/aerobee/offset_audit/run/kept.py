"""What a watch keeps from run to run, so that the next one reads only what is new.

Owns: rows of parts of stores by their marks (`sources/store/part_marks.py`), those that the last
run used, and the journals of live brokers up to where they were read. Used by several threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

from aerobee.offset_audit.outputs.report.formats import volume
from aerobee.offset_audit.sources.live.journal import KnownJournal
from aerobee.offset_audit.sources.store.part_marks import Key, Mark

Rows = list[Mapping[str, Any]]


class Kept:
    """One watch's."""

    def __init__(self) -> None:
        self.journals: dict[str, KnownJournal] = {}
        """By broker address."""
        self.spared_bytes = 0
        """Of stores: not read by this run, because an earlier one had read them."""
        self._before: dict[Key, Rows] = {}
        self._now: dict[Key, Rows] = {}
        self._lock = Lock()

    def begin(self, *, is_full: bool) -> None:
        """A run begins; a full one reads everything."""
        self._before = {} if is_full else self._now
        self._now = {}
        self.spared_bytes = 0
        if is_full:
            self.journals.clear()

    def rows(self, mark: Mark) -> Rows | None:
        """None: the part must be read."""
        found = self._before.get(mark.key)
        if found is not None:
            with self._lock:
                self._now[mark.key] = found
                self.spared_bytes += mark.bytes
        return found

    def keep(self, mark: Mark, rows: Rows) -> None:
        """For the next run, unless it might read something else."""
        if mark.is_final(rows):
            with self._lock:
                self._now[mark.key] = rows

    def notes(self) -> list[str]:
        """For the summary."""
        if not self.spared_bytes:
            return []
        return [
            f"{volume(self.spared_bytes)} of the stores were read by an earlier run of this watch, "
            "and their files have not changed since"
        ]
