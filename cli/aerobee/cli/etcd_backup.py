"""Snapshots of etcd as files: complete or not there, few enough to keep, and told of.

What always holds: a file named *.db was read to its end, agrees with the SHA-256 that etcd put
there, and is on the disk; older ones are removed only after that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from aerobee.runtime.errors import RegistryUnavailable

_PATTERN = "etcd-*.db"
_HASH_BYTES = 32


def save(folder: Path, name: str, pieces: Iterable[bytes]) -> Path:
    """Write a snapshot that a member sends into `folder`, as etcd-NAME.db.

    Raises:
        RegistryUnavailable: the member ended early, or what came is not what it sent.
        OSError: the folder cannot be written.
    """
    path = folder / f"etcd-{name}.db"
    unfinished = path.with_suffix(".part")
    try:
        # For its owner alone: it holds whatever etcd does.
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            _write(file.write, pieces)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return path


def _write(write: Callable[[bytes], object], pieces: Iterable[bytes]) -> None:
    """Raises RegistryUnavailable unless the last 32 bytes are the hash of what comes before."""
    digest, held = hashlib.sha256(), b""
    for piece in pieces:
        write(piece)
        held += piece
        digest.update(held[:-_HASH_BYTES])
        held = held[-_HASH_BYTES:]
    if not held or digest.digest() != held:
        raise RegistryUnavailable(
            "the snapshot is not what etcd sent: it ends early, or bytes changed on the way; "
            "try again, or take it from another member (--endpoints)"
        )


def remove_older(folder: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` snapshots; their names are their times."""
    gone = sorted(folder.glob(_PATTERN))[:-keep]
    for path in gone:
        path.unlink()
    return gone


def note_key(cluster: str, what: str) -> str:
    """Where nameservers read when `what` was last backed up (docs/internals/etcd-keys.md)."""
    return f"/aerobee/{cluster}/backups/{what}"


def note_value(at_ms: int) -> bytes:
    return json.dumps({"at": at_ms}, separators=(",", ":")).encode()
