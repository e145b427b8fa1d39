"""The folder of one repair: a copy of everything it replaces, and a manifest to undo it by hand.

    repair-20260131T120000Z/
      manifest.json     what was done, in order, and where the copy of each thing is
      files/...         files and folders that were moved away, under their old paths
      bytes/...         pieces of files that were overwritten, named by file and position

The manifest is there before the first change. A copy is complete before its original changes: it
gets its name only once it is on disk. So after a crash everything that was changed can be restored.
"""

from __future__ import annotations

import json
from typing import Any, Final

from aerobee.store.engine.disk import Disk

MANIFEST: Final = "manifest.json"
REPAIR_PREFIX: Final = "repair-"
_CHUNK_BYTES: Final = 1 << 22


class Archive:
    """Everything a repair changes goes through here."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self.folder = folder

    def create(self, manifest: dict[str, Any]) -> None:
        """Make the folder and write the manifest. Raises OSError."""
        self._disk.make_directory(self.folder)
        self._disk.fsync_directory("")
        self.write_manifest(manifest)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        path = f"{self.folder}/{MANIFEST}"
        data = json.dumps(manifest, indent=2, ensure_ascii=False).encode() + b"\n"
        self._write_whole(path, data)

    def _write_whole(self, path: str, data: bytes) -> None:
        file = self._disk.open_file(path + ".part", create=True)
        file.truncate(0)
        file.write_at(0, (data,))
        file.datasync()
        file.close()
        self._disk.rename(path + ".part", path)
        self._disk.fsync_directory(path.rpartition("/")[0])

    # ------------------------------------------------------------------------------ copies

    def moved_path(self, path: str) -> str:
        """Where a file or folder is after it was moved away."""
        return f"{self.folder}/files/{path}"

    def bytes_path(self, path: str, position: int) -> str:
        """Where the copy of a file's bytes from `position` on is."""
        return f"{self.folder}/bytes/{path.replace('/', '-')}-{position:020d}"

    def move(self, path: str) -> None:
        """Move a file or folder away; does nothing if it does not exist."""
        if not self._disk.exists(path):
            return
        target = self.moved_path(path)
        self._make_directory(target.rpartition("/")[0])
        self._disk.rename(path, target)
        self._disk.fsync_directory(target.rpartition("/")[0])
        self._disk.fsync_directory(path.rpartition("/")[0])

    def copy_file(self, path: str) -> None:
        """Copy a whole small file; does nothing if it does not exist."""
        if self._disk.exists(path):
            target = self.moved_path(path)
            self._make_directory(target.rpartition("/")[0])
            self._write_whole(target, self._disk.read_file(path))

    def copy_bytes(self, path: str, position: int, size: int) -> str:
        """Copy those bytes of a file that exist; returns the copy's path."""
        target = self.bytes_path(path, position)
        self._make_directory(target.rpartition("/")[0])
        source = self._disk.open_file(path, read_only=True)
        file = self._disk.open_file(target + ".part", create=True)
        file.truncate(0)
        done = 0
        while done < size:
            data = source.read_at(position + done, min(_CHUNK_BYTES, size - done))
            if not data:
                break
            if data.count(0) < len(data):
                file.write_at(done, (data,))
            done += len(data)
        file.truncate(done)
        file.datasync()
        file.close()
        source.close()
        self._disk.rename(target + ".part", target)
        self._disk.fsync_directory(target.rpartition("/")[0])
        return target

    def _make_directory(self, path: str) -> None:
        if self._disk.exists(path):
            return
        self._disk.make_directory(path)
        at = path
        while at:
            at = at.rpartition("/")[0]
            self._disk.fsync_directory(at)
