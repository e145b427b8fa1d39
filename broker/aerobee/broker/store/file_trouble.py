"""A file that could not be removed or read, while the disk as such goes on.

For files that nothing is lost with: queue files and index files follow from the log, and a log
segment that stays may go later. Whoever meets such a file leaves it, and says so.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

# Somebody keeps the file from being removed, or there is no room to write down that it is gone;
# the disk is sound.
LEFT_ALONE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
)


@dataclass(frozen=True, slots=True)
class FileTrouble:
    """`done_to_it`: "removed" or "read"."""

    done_to_it: str
    path: str
    error: OSError

    @property
    def cause(self) -> tuple[str, int | None]:
        """The same for all files that the same thing is wrong with."""
        return self.done_to_it, self.error.errno

    def __str__(self) -> str:
        return f"{self.path} cannot be {self.done_to_it}: {self.error.strerror or self.error}"
