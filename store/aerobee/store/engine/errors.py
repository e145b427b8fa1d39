"""Why a store, or one queue of it, cannot serve.

`StoreUnusable` and its subclasses end a start-up with one sentence for the operator; they never
cross the wire, so they are not part of the `AerobeeError` tree.

If the disk as such works, a single file that cannot be removed or read loses nothing: queue files
and index files are derived from the log, and a log segment can be removed later. Such a file is
left in place, and a `FileTrouble` reports it.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from aerobee.runtime.errors import AerobeeError

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Something keeps the file from being removed, or there is no room to record that it is gone; the
# disk itself works.
LEFT_ALONE = DISK_FULL | {errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS}


class StoreUnusable(Exception):
    """The folder cannot serve as a store as it is; the message says why and what to do."""


class StoreLocked(StoreUnusable):
    """Another process has the store open."""


class StoreDamaged(StoreUnusable):
    """A record that was once safely on disk is damaged.

    `segment` is the file below the store's root, `position` the byte offset of the record in the
    whole log. Nothing was changed: the operator decides (restore a copy, or cut the log there).
    """

    def __init__(self, message: str, *, segment: str, position: int) -> None:
        super().__init__(message)
        self.segment = segment
        self.position = position


class TableEmpty(StoreUnusable):
    """A table's files exist but are empty, as a power failure may leave them."""


class QueueDamaged(AerobeeError):
    """A consume queue's files were found to be wrong while the broker runs.

    The log is intact, and other queues are unaffected. The queue takes messages but serves none
    until the next start, which rebuilds it from the log.
    """

    def __init__(self, topic: str, queue_id: int, reason: str) -> None:
        super().__init__(
            f"queue {queue_id} of topic {topic} is damaged on disk ({reason}); its messages are "
            "safe in the log: restart the broker, which builds the queue again"
        )


class EntryMismatch(AerobeeError):
    """A consume queue's entry points to bytes that are not a record of this queue.

    Either the queue's file has a flipped bit, or the log is damaged there; nothing is served.
    """

    def __init__(self, topic: str, queue_id: int, where: str) -> None:
        super().__init__(
            f"queue {queue_id} of topic {topic} points to something that is not its record "
            f"({where}): stop the broker, see what is damaged with `aerobee store verify` and "
            "repair it with `aerobee store repair`"
        )


@dataclass(frozen=True, slots=True)
class FileTrouble:
    """A file left in place. `done_to_it`: "removed" or "read"."""

    done_to_it: str
    path: str
    error: OSError

    @property
    def cause(self) -> tuple[str, int | None]:
        """Equal for all files with the same problem."""
        return self.done_to_it, self.error.errno

    def __str__(self) -> str:
        return f"{self.path} cannot be {self.done_to_it}: {self.error.strerror or self.error}"
