"""Putting back what a repair changed, from the copies in its folder.

Only while the store was not used since: what was appended after the repair would be removed from
its queues. What is in the way goes to `undone/` in the repair's folder.
"""

from __future__ import annotations

import json
from typing import Any

from aerobee.broker.store.disk import Disk
from aerobee.broker.store.errors import StoreUnusable
from aerobee.broker.store.folder_state import ABORT_FILE, mark_running
from aerobee.store_repair.archive import MANIFEST
from aerobee.store_repair.repair import MANIFEST_VERSION, checkpoint_digits

_CHUNK_BYTES = 1 << 22


def undo_repair(disk: Disk, folder: str) -> list[str]:
    """Undo the repair whose folder this is; the caller holds the lock. Returns what was put back.

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
    """One thing put back; nothing happens where the repair did not come so far."""

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
