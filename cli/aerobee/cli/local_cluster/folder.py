"""The data folder: made, checked, and locked against a second cluster; and documents on disk.

The lock is the kernel's (flock): it ends with the process that holds it, however that ends, so a
killed `aerobee up` never leaves a lock behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from aerobee.cli.failures import EnvironmentFailure
from aerobee.runtime.private_files import close_to_others, make_private_folder, private_opener

LOCK_NAME = "up.lock"


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[Path]:
    """Make `folder` if needed and hold its lock; the file holds the owner's process id.

    Raises:
        EnvironmentFailure: it cannot be made or written, or another process holds the lock.
    """
    lock = _open_lock(folder)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
            raise EnvironmentFailure(
                f"the data folder {folder} is in use by another cluster"
                f"{f' (process {owner})' if owner else ''}; stop it or choose another --data"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode("ascii"), 0)
        yield folder
    finally:
        os.close(lock)


def _open_lock(folder: Path) -> int:
    try:
        make_private_folder(folder)
        for name in ("etcd", "etcd-peer", "brokers", "logs"):
            # etcd insists on a folder that only its owner can read.
            make_private_folder(folder / name)
        # The folder itself may be one that others have work in, as a home is.
        for name in ("etcd", "etcd-peer", "brokers", "logs", "access", "audit-log", "tls"):
            close_to_others(folder / name)
        return os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EnvironmentFailure(
            f"cannot write to the data folder {folder}: {error.strerror}; "
            "choose another --data or change its permissions"
        ) from error


def write_document(path: Path, document: Mapping[str, object], *, advice: str) -> None:
    """Write JSON atomically, so that a reader never sees half of it; for its owner alone.

    Raises EnvironmentFailure, with `advice`, when the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(json.dumps(document, indent=2) + "\n")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise EnvironmentFailure(f"cannot write {path}: {error.strerror}; {advice}") from error
