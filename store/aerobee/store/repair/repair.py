"""Carries out a plan: lock, copy, change, open once so that recovery derives the rest, unlock.

The archive's manifest is on disk before the first change. Steps run in order, each durable before
the next. After a crash in between, `--undo` can restore the folder, or another repair can continue.

Undoing restores what a repair changed, from the copies in its folder, only if the store has not
been used since: anything appended after the repair would be removed from its queues. What is in the
way goes to `undone/` in the repair's folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from aerobee.runtime.clock import Clock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.folder_state import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    mark_running,
    was_left_running,
)
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.repair.actions import Step
from aerobee.store.repair.archive import MANIFEST, REPAIR_PREFIX, Archive
from aerobee.store.repair.damage import LostRange
from aerobee.store.repair.planner import RepairPlan

MANIFEST_VERSION = 1
# For manifest, directories and the files that recovery writes again.
_ROOM_BESIDE = 16 << 20

OnStep = Callable[[int, Step], None]
"""Called with the number of each step, from 0, before it begins."""


def archive_name(disk: Disk, clock: Clock) -> str:
    """An unused folder name."""
    moment = datetime.fromtimestamp(clock.now_ms() / 1_000, UTC)
    name = f"{REPAIR_PREFIX}{moment:%Y%m%dT%H%M%SZ}"
    number = 1
    while disk.exists(name if number == 1 else f"{name}-{number}"):
        number += 1
    return name if number == 1 else f"{name}-{number}"


class Repair:
    """The execution of one plan. `apply` under the folder's lock, then `open_once`, which takes
    it."""

    def __init__(self, disk: Disk, plan: RepairPlan, clock: Clock) -> None:
        self._disk = disk
        self._plan = plan
        self._clock = clock
        self._archive = Archive(disk, plan.folder)
        self._manifest = _manifest(disk, plan, self._archive, clock)

    def apply(self, *, on_step: OnStep | None = None) -> None:
        """Do the steps; the caller holds the folder's lock.

        Raises StoreUnusable, before anything is changed, if there is no room for the copies;
        OSError.
        """
        wanted = sum(step.copied_bytes for step in self._plan.steps) + _ROOM_BESIDE
        free = self._disk.free_bytes()
        if free < wanted:
            raise StoreUnusable(
                f"copies of what is replaced need {wanted} bytes, but only {free} are free: "
                "make room"
            )
        self._archive.create(self._manifest)
        for number, step in enumerate(self._plan.steps):
            if on_step is not None:
                on_step(number, step)
            step.apply(self._disk, self._archive)
        self._note("applied")

    def open_once(self, config: StoreConfig) -> tuple[str, ...]:
        """Let recovery derive what is missing, and close cleanly; returns what it warned of.

        Takes the lock itself. Raises StoreUnusable, StoreDamaged, OSError.
        """
        warnings: tuple[str, ...] = ()
        if self._plan.must_open:
            store = MessageStore.open(self._disk, self._clock, config)
            warnings = store.recovery.warnings
            store.close()
        self._note("done")
        return warnings

    def _note(self, state: str) -> None:
        self._manifest["state"] = state
        self._manifest["checkpoint"] = checkpoint_digits(self._disk)
        self._archive.write_manifest(self._manifest)


def _manifest(disk: Disk, plan: RepairPlan, archive: Archive, clock: Clock) -> dict[str, Any]:
    return {
        "version": MANIFEST_VERSION,
        "startedAt": datetime.fromtimestamp(clock.now_ms() / 1_000, UTC).isoformat(),
        "state": "running",
        "wasAborted": was_left_running(disk),
        "checkpoint": checkpoint_digits(disk),
        "lost": [_lost(each) for each in plan.lost],
        "steps": [
            {
                "action": step.name,
                "file": step.file,
                "position": step.position,
                "bytes": step.bytes,
                "text": step.text,
                "lost": [_lost(each) for each in step.lost],
                "undo": step.undo_by(archive),
            }
            for step in plan.steps
        ],
    }


def _lost(lost: LostRange) -> dict[str, Any]:
    return {
        "topic": lost.topic,
        "queue": lost.queue_id,
        "firstOffset": lost.first,
        "lastOffset": lost.end - 1,
    }


def checkpoint_digits(disk: Disk) -> str:
    """The checkpoint's used bytes: they change whenever a broker uses the folder."""
    try:
        return disk.read_file(CHECKPOINT_FILE)[:40].hex()
    except FileNotFoundError:
        return ""


_CHUNK_BYTES = 1 << 22


def undo_repair(disk: Disk, folder: str) -> list[str]:
    """Undo the repair with this folder; the caller holds the lock. Returns what was restored.

    Raises StoreUnusable if there is no such repair, or the store was used since; OSError.
    """
    manifest = _read(disk, folder)
    if manifest["state"] != "running" and manifest["checkpoint"] != checkpoint_digits(disk):
        raise StoreUnusable(
            f"the store was used after the repair {folder}: undoing it would remove what was "
            "stored since; put single files back by hand: the manifest names them"
        )
    undone = [
        line
        for step in reversed(manifest["steps"])
        for undo in step["undo"]
        for line in _Undo(disk, folder).do(undo)
    ]
    if manifest["wasAborted"]:
        mark_running(disk)
    elif disk.exists(ABORT_FILE):
        disk.remove(ABORT_FILE)
    disk.fsync_directory("")
    disk.rename(f"{folder}/{MANIFEST}", f"{folder}/{MANIFEST}.undone")
    disk.fsync_directory(folder)
    return undone


def _read(disk: Disk, folder: str) -> dict[str, Any]:
    try:
        manifest = json.loads(disk.read_file(f"{folder}/{MANIFEST}"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise StoreUnusable(
            f"{folder} is not a repair of this store that can be undone: it has no {MANIFEST}"
        ) from None
    if not isinstance(manifest, dict) or manifest.get("version") != MANIFEST_VERSION:
        raise StoreUnusable(f"{folder}/{MANIFEST} was written by another version")
    return manifest


class _Undo:
    """Restores one thing; does nothing if the repair did not get that far."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def do(self, undo: dict[str, Any]) -> list[str]:
        if "move" in undo:
            return self._move(str(undo["move"]), str(undo["to"]))
        if "write" in undo:
            return self._write(str(undo["write"]), int(undo["position"]), str(undo["from"]))
        if "resize" in undo:
            return self._resize(str(undo["resize"]), int(undo["to"]))
        return self._remove(str(undo["remove"]))

    def _move(self, source: str, target: str) -> list[str]:
        if not self._disk.exists(source):
            return []
        if self._disk.exists(target):
            self._set_aside(target)
        self._disk.make_directory(target.rpartition("/")[0])
        self._disk.rename(source, target)
        self._disk.fsync_directory(target.rpartition("/")[0])
        return [f"{target} is back"]

    def _write(self, path: str, position: int, source: str) -> list[str]:
        if not self._disk.exists(source) or not self._disk.exists(path):
            return []
        copy = self._disk.open_file(source, read_only=True)
        file = self._disk.open_file(path)
        done = 0
        while data := copy.read_at(done, _CHUNK_BYTES):
            file.write_at(position + done, (data,))
            done += len(data)
        file.datasync()
        file.close()
        copy.close()
        return [f"{done} bytes of {path} at {position} are back"]

    def _resize(self, path: str, size: int) -> list[str]:
        file = self._disk.open_file(path)
        file.truncate(size)
        file.datasync()
        file.close()
        return [f"{path} has {size} bytes again"]

    def _remove(self, path: str) -> list[str]:
        if not self._disk.exists(path):
            return []
        self._set_aside(path)
        return [f"{path} is removed again"]

    def _set_aside(self, path: str) -> None:
        target = f"{self._folder}/undone/{path}"
        number = 1
        while self._disk.exists(target):
            number += 1
            target = f"{self._folder}/undone/{path}-{number}"
        self._disk.make_directory(target.rpartition("/")[0])
        self._disk.rename(path, target)
        self._disk.fsync_directory(path.rpartition("/")[0])
