"""The steps of a repair: each can say what it will do, and do it through the archive.

A step copies what it replaces before it changes anything. `manifest` tells a person how to undo it
by hand; `--undo` does the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.folder_state import CHECKPOINT_FILE, mark_running, write_checkpoint
from aerobee.store.engine.tables.atomic_file import BACKUP_SUFFIX, TEMPORARY_SUFFIX
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.repair.archive import Archive
from aerobee.store.repair.damage import LostRange

_ZEROS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Step(ABC):
    """One change. `text` describes it for a person; `bytes` is how much it touches."""

    file: str
    text: str
    bytes: int = 0
    position: int | None = None
    lost: Sequence[LostRange] = field(default_factory=tuple)

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    def copied_bytes(self) -> int:
        """How much room it takes: copies, and new files."""
        return 0

    @abstractmethod
    def undo_by(self, archive: Archive) -> list[dict[str, Any]]:
        """What restores the old state, in this order: `move` back, `write` bytes, `remove`,
        `resize`."""

    @abstractmethod
    def apply(self, disk: Disk, archive: Archive) -> None:
        """Raises OSError."""


@dataclass(frozen=True, slots=True)
class MoveAway(Step):
    """A file or folder that does not belong here, or that will be rebuilt."""

    @property
    def name(self) -> str:
        return "move away"

    def undo_by(self, archive: Archive) -> list[dict[str, Any]]:
        return [{"move": archive.moved_path(self.file), "to": self.file}]

    def apply(self, disk: Disk, archive: Archive) -> None:
        archive.move(self.file)


@dataclass(frozen=True, slots=True)
class RenameSegments(Step):
    """Moves segments to the places that their content names. All leave before any arrives."""

    moves: Sequence[tuple[str, str]] = ()

    @property
    def name(self) -> str:
        return "rename segments"

    def undo_by(self, archive: Archive) -> list[dict[str, Any]]:
        back = [{"move": new, "to": archive.moved_path(old)} for old, new in self.moves]
        return back + [{"move": archive.moved_path(old), "to": old} for old, _ in self.moves]

    def apply(self, disk: Disk, archive: Archive) -> None:
        for old, _ in self.moves:
            archive.move(old)
        for old, new in self.moves:
            disk.rename(archive.moved_path(old), new)
        disk.fsync_directory(self.file)


@dataclass(frozen=True, slots=True)
class ResizeFile(Step):
    """Gives a segment the common length; what is cut off is kept, what is missing becomes zeros."""

    old_size: int = 0
    new_size: int = 0

    @property
    def name(self) -> str:
        return "resize"

    @property
    def copied_bytes(self) -> int:
        return self.bytes

    def undo_by(self, archive: Archive) -> list[dict[str, Any]]:
        undo: list[dict[str, Any]] = [{"resize": self.file, "to": self.old_size}]
        if self.old_size > self.new_size:
            copy = archive.bytes_path(self.file, self.new_size)
            undo.append({"write": self.file, "position": self.new_size, "from": copy})
        return undo

    def apply(self, disk: Disk, archive: Archive) -> None:
        if self.old_size > self.new_size:
            archive.copy_bytes(self.file, self.new_size, self.old_size - self.new_size)
        file = disk.open_file(self.file)
        file.truncate(self.new_size)
        file.datasync()
        file.close()


@dataclass(frozen=True, slots=True)
class CreateSegment(Step):
    """An empty segment in the place of a missing one."""

    @property
    def name(self) -> str:
        return "create"

    @property
    def copied_bytes(self) -> int:
        return self.bytes

    def undo_by(self, archive: Archive) -> list[dict[str, Any]]:
        return [{"remove": self.file}]

    def apply(self, disk: Disk, archive: Archive) -> None:
        file = disk.open_file(self.file, create=True)
        file.allocate(self.bytes)
        file.datasync()
        file.close()
        disk.fsync_directory(self.file.rpartition("/")[0])


@dataclass(frozen=True, slots=True)
class _Change(Step):
    """Other bytes in place of the `bytes` at `position`; the old ones are copied."""

    @property
    def copied_bytes(self) -> int:
        return self.bytes

    def undo_by(self, archive: Archive) -> list[dict[str, Any]]:
        assert self.position is not None
        copy = archive.bytes_path(self.file, self.position)
        return [{"write": self.file, "position": self.position, "from": copy}]


@dataclass(frozen=True, slots=True)
class Overwrite(_Change):
    """Replaces bytes of a file by others of the same length: pieces of (position in the file,
    bytes)."""

    what: str = "overwrite"
    pieces: Sequence[tuple[int, bytes]] = ()

    @property
    def name(self) -> str:
        return self.what

    def apply(self, disk: Disk, archive: Archive) -> None:
        assert self.position is not None
        archive.copy_bytes(self.file, self.position, self.bytes)
        file = disk.open_file(self.file)
        for position, data in self.pieces:
            file.write_at(position, (data,))
        file.datasync()
        file.close()


@dataclass(frozen=True, slots=True)
class ZeroBytes(_Change):
    """The end of a segment becomes zeros."""

    @property
    def name(self) -> str:
        return "cut"

    def apply(self, disk: Disk, archive: Archive) -> None:
        assert self.position is not None
        archive.copy_bytes(self.file, self.position, self.bytes)
        file = disk.open_file(self.file)
        for at in range(0, self.bytes, _ZEROS):
            size = min(_ZEROS, self.bytes - at)
            if any(file.read_at(self.position + at, size)):
                file.write_at(self.position + at, (bytes(size),))
        file.datasync()
        file.close()


@dataclass(frozen=True, slots=True)
class RestoreBackup(Step):
    """Restores a table's content from its backup, which stays."""

    @property
    def name(self) -> str:
        return "restore backup"

    def undo_by(self, archive: Archive) -> list[dict[str, Any]]:
        return [{"move": archive.moved_path(self.file), "to": self.file}]

    def apply(self, disk: Disk, archive: Archive) -> None:
        archive.copy_file(self.file)
        temporary = self.file + TEMPORARY_SUFFIX
        file = disk.open_file(temporary, create=True)
        file.truncate(0)
        file.write_at(0, (disk.read_file(self.file + BACKUP_SUFFIX),))
        file.datasync()
        file.close()
        disk.rename(temporary, self.file)
        disk.fsync_directory(self.file.rpartition("/")[0])


@dataclass(frozen=True, slots=True)
class ForgetProgress(Step):
    """Makes checkpoint and marks say that everything has to be derived from the log again."""

    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    marks: Sequence[str] = ()

    @property
    def name(self) -> str:
        return "rewrite checkpoint"

    def undo_by(self, archive: Archive) -> list[dict[str, Any]]:
        kept = [CHECKPOINT_FILE, *self.marks]
        return [{"move": archive.moved_path(path), "to": path} for path in kept]

    def apply(self, disk: Disk, archive: Archive) -> None:
        archive.copy_file(CHECKPOINT_FILE)
        mark_running(disk)
        for path in self.marks:
            archive.move(path)
        write_checkpoint(disk, self.checkpoint)
        disk.fsync_directory("")


@dataclass(frozen=True, slots=True)
class KeepMarks(Step):
    """Copies the small files that every start of a broker rewrites."""

    marks: Sequence[str] = ()

    @property
    def name(self) -> str:
        return "copy"

    def undo_by(self, archive: Archive) -> list[dict[str, Any]]:
        return [{"move": archive.moved_path(path), "to": path} for path in self.marks]

    def apply(self, disk: Disk, archive: Archive) -> None:
        for path in self.marks:
            archive.copy_file(path)
