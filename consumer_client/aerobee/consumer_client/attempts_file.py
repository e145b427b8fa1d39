"""The files in which consumers on this machine keep what their listeners have in hand.

Owns: finding a file that is not in use, and taking over those of processes that died. A process
holds a lock on its file; the kernel releases it however the process ends, so a file without a lock
belongs to nobody. A child of `fork` would share the lock and hold it longer than its parent, so it
releases the file at once. Two members of a group, even with the same client id, have separate
files. A file is never synced: it is there for the death of a process, not of the machine.
Invariant: all blocks of a file are allocated before it is mapped. A store into a hole of a mapped
file on a full disk ends the process with SIGBUS, which cannot be caught.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

from aerobee.consumer_client.attempts import SIZE, Attempts, counted_in
from aerobee.consumer_client.local_offsets import FOLDER_DEFAULT
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event
from aerobee.runtime.private_files import make_private_folder

log = logging.getLogger(__name__)

FOLDER = "attempts"
FILES_MAX = 256
LOOK_PAUSE_S = 1.0
"""Queues granted within this time share one search for processes that died."""


def attempts_folder(
    folder: Path, *, nameservers: str | Sequence[str], cluster: str, group: str, member: str = ""
) -> Path:
    """Where a group of a cluster has its files; `member` if each member reads everything."""
    addresses = nameservers if isinstance(nameservers, str) else ",".join(nameservers)
    place = hashlib.sha256(f"{cluster}\n{addresses}\n{member}".encode()).hexdigest()[:16]
    return folder / FOLDER / group / place


class AttemptsFile:
    """A consumer's own file, once it is open. Its calls block briefly."""

    def __init__(self, folder: Path, attempts: Attempts, *, group: str, clock: Clock) -> None:
        self._folder = folder
        self._attempts = attempts
        self._group = group
        self._clock = clock
        self._file: int | None = None
        self._path: Path | None = None
        self._next_look_s = float("-inf")

    def open(self) -> None:
        """Take a file and what dead processes have left; without a file, or without room for it on
        the disk, attempts are counted in memory."""
        try:
            self._path, self._file = self._take_one()
            os.ftruncate(self._file, SIZE)
            os.posix_fallocate(self._file, 0, SIZE)
            mapped = mmap.mmap(self._file, SIZE)
            left = counted_in(bytes(mapped))
            self._attempts.use(memoryview(mapped))
            self._attempts.inherit(left)
        except OSError as error:
            if self._file is not None:
                os.close(self._file)
            self._path = self._file = None
            log_event(
                log,
                "attempts are counted in memory only: a restart loses the count",
                level=logging.WARNING,
                group=self._group,
                folder=self._folder,
                reason=error,
            )
            return
        let_go = weakref.WeakMethod(self._let_go)
        # Python cannot unregister such a function: each consumer leaves a few hundred bytes.
        os.register_at_fork(after_in_child=lambda: (method := let_go()) and method())
        self.take_over()

    def _let_go(self) -> None:
        """In a child: the file belongs to the parent alone. Unlocking it would unlock the
        parent's."""
        file, self._file = self._file, None
        if file is not None:
            self._attempts.let_go()
            os.close(file)

    def take_over(self) -> None:
        """Continue the counts of processes that have died since."""
        now_s = self._clock.monotonic_s()
        if self._file is None or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + LOOK_PAUSE_S
        try:
            for path in sorted(self._folder.iterdir())[:FILES_MAX]:
                if path != self._path and (file := _locked(path, create=False)) is not None:
                    try:
                        self._attempts.inherit(counted_in(os.pread(file, SIZE + 1, 0)))
                        path.unlink()
                    finally:
                        os.close(file)
        except OSError as error:
            log_event(
                log,
                "attempts of a consumer that died cannot be read",
                level=logging.WARNING,
                group=self._group,
                folder=self._folder,
                reason=error,
            )

    def close(self) -> None:
        """Leave the file to the next consumer, or remove it if it is empty."""
        file, self._file = self._file, None
        if file is None or self._path is None:
            return
        try:
            if self._attempts.is_empty:
                self._path.unlink(missing_ok=True)
                _remove_if_empty(self._folder, self._folder.parent)
            # The mapping keeps the file open, and thus the lock.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)
        except OSError:
            return

    def _take_one(self) -> tuple[Path, int]:
        for number in range(FILES_MAX):
            # The last one removes the empty folder.
            make_private_folder(self._folder)
            path = self._folder / str(number)
            file = _locked(path, create=True)
            if file is not None:
                return path, file
        raise OSError(f"{FILES_MAX} consumers have files there")


def default_folder() -> Path:
    """Where all clients of this user keep their files."""
    try:
        return Path.home() / FOLDER_DEFAULT
    except RuntimeError:
        # A user without a home: no folder can be created there.
        return Path(os.devnull) / FOLDER_DEFAULT


def _remove_if_empty(*folders: Path) -> None:
    try:
        for folder in folders:
            folder.rmdir()
    except OSError:
        return


def _locked(path: Path, *, create: bool) -> int | None:
    """The file, if no other process holds its lock."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        file = os.open(path, flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its former owner may have removed it.
        if os.path.samestat(os.fstat(file), os.stat(path)):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(file)
    return None
