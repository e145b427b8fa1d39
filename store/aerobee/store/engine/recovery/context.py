"""What the steps of a recovery share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.log.log_walk import LogWalk, WalkedChunk
from aerobee.store.engine.log.segment import Segment
from aerobee.store.engine.recovery.batch_topics import BatchTopics
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.tags import TagsCodes


@dataclass(slots=True)
class RecoveryContext:
    """`segments` are the log as known so far: all files count as full until the log is cut."""

    disk: Disk
    config: StoreConfig
    read_only: bool
    segments: list[Segment]
    checkpoint: Checkpoint
    on_read: Callable[[], None] = lambda: None
    """Called for every chunk of the log read for any purpose: recovery is making progress."""
    warnings: list[str] = field(default_factory=list)
    misplaced_records: int = 0
    """Records that did not continue where their queue ended."""
    batch_topics: BatchTopics = field(init=False)

    def __post_init__(self) -> None:
        self.batch_topics = BatchTopics(self.disk)

    @property
    def log_min_offset(self) -> int:
        return self.segments[0].base

    @property
    def log_files_end(self) -> int:
        """The position after the last byte of the last file, used or not."""
        return self.segments[-1].base + self.config.segment_bytes

    def index_of(self, offset: int) -> int:
        """Index of the segment that contains the log offset."""
        return (offset - self.segments[0].base) // self.config.segment_bytes

    def walk(
        self,
        start: int,
        *,
        check_crc: bool = False,
        is_record_start: bool = False,
        end: int | None = None,
        torn_from: int | None = None,
    ) -> LogWalk:
        """A walk from the segment that contains `start`, or from `start` itself if a record begins
        there; see LogWalk."""
        return LogWalk(
            self.disk,
            self.segments,
            self.index_of(start),
            tags=TagsCodes(delays_ms=self.config.delay_levels_ms),
            check_crc=check_crc,
            chunk_bytes=self.config.recovery_chunk_bytes,
            start=start if is_record_start else None,
            end=end,
            torn_from=torn_from,
            on_read=self.on_read,
        )


class DerivedRecovery(Protocol):
    """Recovery of something derived from the log. The steps come in this order."""

    def load(self, *, clean: bool) -> None:
        """Examine the files and decide; nothing is written before `complete`. `clean`: the last
        user closed the folder."""
        ...

    def begin_scan(self, start: int) -> None:
        """The log is about to be walked from the log offset `start` on."""
        ...

    def feed(self, chunk: WalkedChunk) -> None:
        """The walk's next records: take what is derived from them, only in memory."""
        ...

    def complete(self, start: int, end: int) -> None:
        """The log ends at `end`, and what was past it is gone: make the files match. `start` is
        where the walk began. Raises OSError."""
        ...

    def drop_all(self) -> None:
        """Called instead of the others: there is no log, so nothing is derived from it."""
        ...
