"""An object store in a folder, such as a network file system.

Owns: what makes a file an object. It appears whole and durable under its name, or not at all: it is
written beside it, synced, and linked or renamed into place, and the folder is synced. The first put
of a process removes what interrupted writes left in `.incoming/` a day ago or earlier.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import TierUnavailable
from aerobee.runtime.private_files import FILE_MODE, make_private_folder
from aerobee.store.tier.objects import ObjectInfo, ObjectMissing

_INCOMING: Final = ".incoming"
_STALE_AFTER_MS: Final = 24 * 3_600_000


class FolderObjects:
    """[any thread] `Objects` in `place` below a folder that must be there, so that a file system
    that is not mounted is not mistaken for an empty one."""

    def __init__(self, root: Path | str, place: str, clock: Clock) -> None:
        self._clock = clock
        self._is_tidy = False
        self._mounted = os.fspath(root)
        self._root = os.path.join(self._mounted, place) if place else self._mounted

    def __str__(self) -> str:
        return self._root

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        with self._incoming(name) as path:
            self._tidy()
            _write(path, chunks)
            os.rename(path, self._make_place(name))
            _sync_folder(os.path.dirname(self._full(name)))

    def create(self, name: str, data: bytes) -> bool:
        with self._incoming(name) as path:
            _write(path, (data,))
            place = self._make_place(name)
            try:
                os.link(path, place)
            except FileExistsError:
                return False
            finally:
                os.unlink(path)
            _sync_folder(os.path.dirname(place))
        return True

    def read(self, name: str, start: int, size: int) -> bytes:
        with self._translated(f"reading {name}"):
            try:
                descriptor = os.open(self._full(name), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                self._check_mounted()
                raise ObjectMissing(name) from None
            try:
                return _read_all(descriptor, start, size)
            finally:
                os.close(descriptor)

    def list(self, prefix: str) -> list[ObjectInfo]:
        with self._translated(f"listing {prefix}"):
            self._check_mounted()
            found = list(self._walk(self._full(prefix.rstrip("/")), prefix.rstrip("/")))
        return sorted(found, key=lambda each: each.name)

    def remove(self, name: str) -> None:
        with self._translated(f"removing {name}"):
            path = self._full(name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                _sync_folder(os.path.dirname(path))
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(path))

    # ------------------------------------------------------------------------------ inside

    def _tidy(self) -> None:
        if self._is_tidy:
            return
        oldest_s = (self._clock.now_ms() - _STALE_AFTER_MS) / 1_000
        for entry in os.scandir(self._full(_INCOMING)):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < oldest_s:
                    os.unlink(entry.path)
        self._is_tidy = True

    def _check_mounted(self) -> None:
        os.stat(self._mounted)

    def _full(self, name: str) -> str:
        parts = name.split("/")
        assert not {"", ".", ".."} & set(parts), name
        return os.path.join(self._root, *parts)

    def _make_place(self, name: str) -> str:
        path = self._full(name)
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            make_private_folder(folder)
            while folder != self._mounted:
                folder = os.path.dirname(folder)
                _sync_folder(folder)
        return path

    @contextlib.contextmanager
    def _incoming(self, name: str) -> Iterator[str]:
        """A path to write to; what is still there in the end is removed."""
        with self._translated(f"writing {name}"):
            self._check_mounted()
            folder = self._full(_INCOMING)
            make_private_folder(folder)
            path = os.path.join(folder, secrets.token_hex(16))
            try:
                yield path
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    @contextlib.contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TierUnavailable(
                f"{doing} in the tier {self._root} failed: {error.strerror or error}; check the "
                "folder, its permissions and the space on its disk"
            ) from error

    def _walk(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        try:
            entries = os.scandir(folder)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                child = f"{name}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    yield from self._walk(entry.path, child)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        yield ObjectInfo(child, entry.stat().st_size)


def _write(path: str, chunks: Iterable[bytes]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, start: int, size: int) -> bytes:
    parts: list[bytes] = []
    wanted = size
    while wanted and (part := os.pread(descriptor, wanted, start + size - wanted)):
        parts.append(part)
        wanted -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # network file systems that have nothing to sync
            raise
    finally:
        os.close(descriptor)
