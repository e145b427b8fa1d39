"""Handles for reading, limited in number.

Owns: the open handles of sealed log segments and consume queue files. Used on the loop thread only.
An evicted handle closes once its last holder drops it, so a plan that was passed to another thread
stays valid.
"""

from __future__ import annotations

from collections import OrderedDict

from aerobee.store.engine.disk import Advice, Disk, DiskFile


class FileCache:
    """Evicts the least recently used handle first."""

    __slots__ = ("_files", "_files_max", "disk")

    def __init__(self, disk: Disk, files_max: int) -> None:
        self.disk = disk
        self._files_max = files_max
        self._files: OrderedDict[str, DiskFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, advice: Advice = Advice.NORMAL) -> DiskFile:
        """The handle of `path`; FileNotFoundError if there is no such file. `advice` is applied
        when it is opened."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self.disk.open_file(path, read_only=True)
        if advice is not Advice.NORMAL:
            file.advise(0, 0, advice)
        self._files[path] = file
        if len(self._files) > self._files_max:
            self._files.popitem(last=False)
        return file

    def forget(self, path: str) -> None:
        """Call before a file is removed or replaced."""
        self._files.pop(path, None)

    def forget_below(self, directory: str) -> None:
        """The same for all files of a directory."""
        for path in [path for path in self._files if path.startswith(f"{directory}/")]:
            del self._files[path]

    def clear(self) -> None:
        self._files.clear()
