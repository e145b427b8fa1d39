"""Why a store, or one queue of it, cannot serve.

`StoreUnusable` and its kind end a start-up with one sentence for the operator; they never cross the
wire, so they are not part of the `AerobeeError` tree.

Nothing is lost with a single file that cannot be removed or read while the disk as such continues:
queue files and index files follow from the log, and a log segment that stays may go later. Such a
file is left, and a `FileTrouble` says so.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from aerobee.runtime.errors import AerobeeError

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Something keeps the file from being removed, or there is no room to write down that it is gone;
# the disk is sound.
LEFT_ALONE = DISK_FULL | {errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS}


class StoreUnusable(Exception):
    """The folder cannot serve as a store as it is; the message says why and what to do."""


class StoreLocked(StoreUnusable):
    """Another process has the store open."""


class StoreDamaged(StoreUnusable):
    """A record that was once safely on disk is no longer whole.

    `segment` is the file below the store's root, `position` the byte offset of the record in the
    whole log. Nothing was changed: the operator decides (restore a copy, or cut the log there).
    """

    def __init__(self, message: str, *, segment: str, position: int) -> None:
        super().__init__(message)
        self.segment = segment
        self.position = position


class TableEmpty(StoreUnusable):
    """A table's files are there and nothing is in them, as a power failure may leave them."""


class QueueDamaged(AerobeeError):
    """A consume queue's files turned out to be wrong while the broker runs.

    The log is whole, and other queues are not concerned. The queue takes messages but serves none
    until the next start, which builds it again from the log.
    """

    def __init__(self, topic: str, queue_id: int, reason: str) -> None:
        super().__init__(
            f"queue {queue_id} of topic {topic} is damaged on disk ({reason}); its messages are "
            "safe in the log: restart the broker, which builds the queue again"
        )


class EntryMismatch(AerobeeError):
    """A consume queue's entry leads to bytes that are no record of this queue.

    Either a bit flipped in the queue's file, or the log is damaged there; nothing is served.
    """

    def __init__(self, topic: str, queue_id: int, where: str) -> None:
        super().__init__(
            f"queue {queue_id} of topic {topic} points to something that is not its record "
            f"({where}): stop the broker, see what is damaged with `aerobee store verify` and "
            "repair it with `aerobee store repair`"
        )


@dataclass(frozen=True, slots=True)
class FileTrouble:
    """One such file. `done_to_it`: "removed" or "read"."""

    done_to_it: str
    path: str
    error: OSError

    @property
    def cause(self) -> tuple[str, int | None]:
        """The same for all files that the same thing is wrong with."""
        return self.done_to_it, self.error.errno

    def __str__(self) -> str:
        return f"{self.path} cannot be {self.done_to_it}: {self.error.strerror or self.error}"
