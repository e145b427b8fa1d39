"""A file that is replaced as a whole has the old content or the new one, whenever we die."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from aerobee.store.engine.disk import BytesLike, Disk, DiskFile, RealDisk
from aerobee.store.engine.errors import StoreUnusable, TableEmpty
from aerobee.store.engine.tables.atomic_file import Source, read_with_backup, replace_atomically

PATH = "config/topics.json"


class Died(Exception):
    """The process ends here."""


class DyingDisk:
    """A real disk that lets a number of changes through and then dies in the middle of the next."""

    def __init__(self, disk: RealDisk, changes_left: int) -> None:
        self._disk = disk
        self.changes_left = changes_left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def step(self) -> None:
        self.changes_left -= 1
        if self.changes_left < 0:
            raise Died

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        self.step()
        return DyingFile(self._disk.open_file(path, create=create, read_only=read_only), self.step)

    def rename(self, old: str, new: str) -> None:
        self.step()
        self._disk.rename(old, new)

    def fsync_directory(self, path: str) -> None:
        self.step()
        self._disk.fsync_directory(path)


class DyingFile:
    """Writes half of what it is given when the disk dies in a write."""

    def __init__(self, file: DiskFile, step: Callable[[], None]) -> None:
        self._file = file
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write_at(self, offset: int, buffers: Sequence[BytesLike]) -> None:
        data = b"".join(buffers)
        self._file.write_at(offset, [data[: len(data) // 2]])
        self._step()
        self._file.write_at(offset, [data])

    def datasync(self) -> None:
        self._step()
        self._file.datasync()


def number(data: bytes) -> int:
    return int(data)


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(tmp_path)


def test_a_replaced_file_keeps_the_previous_content_beside_it(disk: RealDisk) -> None:
    replace_atomically(disk, PATH, b"1")
    replace_atomically(disk, PATH, b"22")
    replace_atomically(disk, PATH, b"3")
    assert disk.read_file(PATH) == b"3"
    assert disk.read_file(PATH + ".bak") == b"22"
    assert [entry.name for entry in disk.list("config")] == ["topics.json", "topics.json.bak"]


def test_whenever_we_die_the_old_or_the_new_content_is_found(tmp_path: Path) -> None:
    found: list[int] = []
    for changes_left in range(20):
        real = RealDisk(tmp_path / str(changes_left))
        replace_atomically(real, PATH, b"1")
        replace_atomically(real, PATH, b"2")
        dying: Disk = DyingDisk(real, changes_left)
        try:
            replace_atomically(dying, PATH, b"333")
        except Died:
            loaded = read_with_backup(real, PATH, number)
            assert loaded.value in (2, 333)
            found.append(loaded.value)
            replace_atomically(real, PATH, b"4")
            assert read_with_backup(real, PATH, number).value == 4, "leftovers do no harm"
        else:
            assert read_with_backup(real, PATH, number).value == 333
            break
    else:
        pytest.fail("the disk died at every step, even after the last")
    assert len(found) >= 5, "each change was a place to die"
    assert found == sorted(found), "old until one moment, new from then on"


def test_the_backup_answers_for_a_missing_file(disk: RealDisk) -> None:
    replace_atomically(disk, PATH, b"1")
    replace_atomically(disk, PATH, b"2")
    disk.remove(PATH)
    loaded = read_with_backup(disk, PATH, number)
    assert (loaded.value, loaded.source) == (1, Source.BACKUP)
    assert loaded.problem == "config/topics.json is missing"


@pytest.mark.parametrize("damage", [b"", b"\0\0\0", b"not a number"])
def test_the_backup_answers_for_a_damaged_file(
    disk: RealDisk, damage: bytes, tmp_path: Path
) -> None:
    replace_atomically(disk, PATH, b"1")
    replace_atomically(disk, PATH, b"2")
    (tmp_path / PATH).write_bytes(damage)
    loaded = read_with_backup(disk, PATH, number)
    assert (loaded.value, loaded.source) == (1, Source.BACKUP)
    assert loaded.problem is not None
    assert loaded.problem.startswith("config/topics.json")


def test_an_empty_file_does_not_push_out_a_good_backup(disk: RealDisk, tmp_path: Path) -> None:
    replace_atomically(disk, PATH, b"1")
    replace_atomically(disk, PATH, b"2")
    (tmp_path / PATH).write_bytes(b"")
    replace_atomically(disk, PATH, b"3")
    assert disk.read_file(PATH + ".bak") == b"1"


def test_dying_while_a_damaged_file_is_replaced_still_leaves_something(tmp_path: Path) -> None:
    for changes_left in range(20):
        real = RealDisk(tmp_path / str(changes_left))
        replace_atomically(real, PATH, b"1")
        replace_atomically(real, PATH, b"2")
        (tmp_path / str(changes_left) / PATH).write_bytes(b"damaged")
        dying: Disk = DyingDisk(real, changes_left)
        try:
            replace_atomically(dying, PATH, b"333")
        except Died:
            assert read_with_backup(real, PATH, number).value in (1, 333)
        else:
            assert read_with_backup(real, PATH, number).value == 333
            return
    pytest.fail("the disk died at every step, even after the last")


def test_with_neither_file_there_is_no_value(disk: RealDisk) -> None:
    loaded = read_with_backup(disk, PATH, number)
    assert (loaded.value, loaded.source, loaded.problem) == (None, Source.NEITHER, None)


@pytest.mark.parametrize("damage", [b"", bytes(100), b" \n"])
@pytest.mark.parametrize("has_backup", [False, True])
def test_files_without_any_content_stop_the_start(
    disk: RealDisk, tmp_path: Path, damage: bytes, has_backup: bool
) -> None:
    """A power failure leaves such files: what they said is lost, and nobody may go on as if it had
    been nothing."""
    (tmp_path / "config").mkdir()
    (tmp_path / PATH).write_bytes(damage)
    if has_backup:
        (tmp_path / (PATH + ".bak")).write_bytes(damage)
    with pytest.raises(TableEmpty, match=r"topics\.json is empty.*; repair the file, or remove it"):
        read_with_backup(disk, PATH, number)


def test_two_damaged_files_stop_the_start(disk: RealDisk, tmp_path: Path) -> None:
    replace_atomically(disk, PATH, b"1")
    replace_atomically(disk, PATH, b"2")
    (tmp_path / PATH).write_bytes(b"x")
    (tmp_path / (PATH + ".bak")).write_bytes(b"y")
    with pytest.raises(
        StoreUnusable, match=r"topics\.json: .*topics\.json\.bak: .*repair the file"
    ):
        read_with_backup(disk, PATH, number)
