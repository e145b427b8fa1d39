"""Entries of a consume queue on their way from its files, off the loop.

A read holds what it needs of the queue at one moment, so it may wait for the disk on any thread
while the queue grows, and whatever the loop does meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from aerobee.broker.store.disk import Disk


class FilePiece(NamedTuple):
    """`size` bytes at byte `at` of a queue file."""

    path: str
    at: int
    size: int


class EntriesRead:
    """Made by `ConsumeQueue.plan_read`."""

    __slots__ = ("_check", "_disk", "_judge", "_pieces", "_tail")

    def __init__(
        self,
        disk: Disk,
        check: Callable[[Disk], None],
        pieces: Sequence[FilePiece],
        judge: Callable[[bytes], bytes],
        tail: bytes,
    ) -> None:
        """`check` looks at the queue's files before their first use; `judge` raises for entries
        that are none, and is given all that is in files."""
        self._disk = disk
        self._check = check
        self._pieces = pieces
        self._judge = judge
        self._tail = tail

    def run(self) -> bytes:
        """[any thread] The entries end to end. Raises QueueDamaged, OSError."""
        if not self._pieces:
            return self._tail
        self._check(self._disk)
        parts: list[bytes] = []
        wanted = 0
        for path, at, size in self._pieces:
            wanted += size
            try:
                file = self._disk.open_file(path, read_only=True)
            except FileNotFoundError:
                break
            parts.append(file.read_at(at, size))
            file.close()
        data = self._judge(b"".join(parts))
        return data + self._tail if len(data) == wanted else data
