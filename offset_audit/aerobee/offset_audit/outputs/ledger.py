"""The tables of all runs, as Parquet: `TABLE/cluster=NAME/date=YYYY-MM-DD/RUN-N.parquet`.

Invariants: files are only added. A run counts once its entry `runs/RUN.json` exists, which is
written last and names every file, so that a reader that follows the entries never sees half a run,
and two runs at the same time do not disturb each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.tables import FINDINGS, INDEX_RANGES, LOG_RANGES, QUEUE_RANGES, STATES

SCHEMA_VERSION = 1
"""For the columns of all tables here; readers skip runs with a higher version."""

_OF_RUN = "run_id string, run_at_ms long, "
COLUMNS = {
    "findings": FINDINGS,
    "state": STATES,
    "log_ranges": _OF_RUN + LOG_RANGES,
    "queue_ranges": _OF_RUN + QUEUE_RANGES,
    "index_ranges": _OF_RUN + INDEX_RANGES,
}
"""What is kept of each run; the files also hold `schema_version`, the paths cluster and date."""

_ENTRY = ".json"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """The content of `runs/RUN.json`."""

    run_id: str
    run_at_ms: int
    schema_version: int
    depth: str
    scope: str
    """What was audited; runs of one scope can be compared finding by finding."""
    clusters: tuple[str, ...]
    findings: int
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By table; relative to the ledger's folder."""


class LedgerFiles(Protocol):
    """A folder, and how an engine reads and writes tables in it. `name`s are relative to it."""

    def path(self, name: str = "") -> str: ...

    def names(self, name: str = "") -> list[str]:
        """Files and folders directly below; empty if there is no such folder."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: bytes) -> None:
        """The whole file at once."""

    def read_table(self, table: str, files: Sequence[str]) -> Frame:
        """The rows of these files; those removed since are silently missing."""

    def write_tables(self, run: RunEntry, tables: Mapping[str, Frame]) -> dict[str, list[str]]:
        """Returns the names of each table's files; nothing stays of what fails."""


class Ledger:
    """All runs of one folder."""

    def __init__(self, files: LedgerFiles) -> None:
        self._files = files

    @property
    def path(self) -> str:
        return self._files.path()

    def newest_runs(self, clusters: Sequence[str], count: int) -> list[RunEntry]:
        """The newest runs, newest first, that judged any of these clusters."""
        found: list[RunEntry] = []
        names = [name for name in self._files.names("runs") if name.endswith(_ENTRY)]
        for name in reversed(names):
            if len(found) == count:
                break
            entry = _entry_of(self._files.read(f"runs/{name}"))
            if entry is not None and set(entry.clusters) & set(clusters):
                found.append(entry)
        return found

    def read(self, table: str, runs: Sequence[RunEntry]) -> Frame:
        """Rows of these runs; files removed since are silently missing."""
        names = [name for run in runs for name in run.files.get(table, ())]
        return self._files.read_table(table, names)

    def append(self, run: RunEntry, tables: Mapping[str, Frame]) -> RunEntry:
        """Add a run's tables, then its entry; returns the entry with the files' names.

        A run that fails here leaves nothing that counts.
        """
        files = self._files.write_tables(run, tables)
        entry = RunEntry(**{**asdict(run), "files": files})
        content = json.dumps(asdict(entry), indent=1, sort_keys=True)
        self._files.write(f"runs/{run.run_id}{_ENTRY}", content.encode())
        return entry


def _entry_of(content: bytes) -> RunEntry | None:
    """None: written by a newer version, whose columns may have other meanings."""
    fields: dict[str, Any] = json.loads(content)
    if fields.get("schema_version", 0) > SCHEMA_VERSION:
        return None
    return RunEntry(
        run_id=fields["run_id"],
        run_at_ms=fields["run_at_ms"],
        schema_version=fields["schema_version"],
        depth=fields["depth"],
        scope=fields["scope"],
        clusters=tuple(fields["clusters"]),
        findings=fields["findings"],
        files=fields["files"],
    )
