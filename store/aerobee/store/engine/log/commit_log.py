"""The log: all records of all topics, in segments of one size, appended only.

Owns: the segments, the end of the log, the spare segments. Invariants: segments are contiguous;
every segment but the last is used to its end; `end` moves only after the bytes are written; a
record never crosses a segment, and at least 8 bytes stay free after it for the blank record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from aerobee.runtime.errors import MessageNotFound, MessageTooLarge, NotWritable
from aerobee.runtime.place import Place
from aerobee.store.engine.disk import Advice, BytesLike, Disk, DiskFile
from aerobee.store.engine.errors import DISK_FULL
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.log.segment import (
    BLANK_BYTES_MIN,
    COMMIT_LOG_DIRECTORY,
    RecordRemoved,
    Segment,
    SegmentHandle,
    SegmentInfo,
)
from aerobee.store.engine.log.segment_supply import Spares
from aerobee.store.format.names import file_name
from aerobee.store.format.record import blank_record

Run = tuple[int, int]


class CommitLog:
    """Created by recovery, from the segments that it found intact up to their `wrote`."""

    def __init__(
        self,
        disk: Disk,
        files: FileCache,
        segment_bytes: int,
        segments: Sequence[Segment],
        *,
        store_timestamp_ms: int,
        keep_free_bytes: int,
    ) -> None:
        """`store_timestamp_ms` is that of the last record, or 0. No segment is added if that would
        leave the disk less than `keep_free_bytes`."""
        self._disk = disk
        self._files = files
        self._segment_bytes = segment_bytes
        self._keep_free_bytes = keep_free_bytes
        # Replaced, never modified: readers on other threads take it once and keep it.
        self._segments = tuple(segments)
        self.spares = Spares(disk, segment_bytes, keep_free_bytes=keep_free_bytes)
        self._sealed_unsynced: list[DiskFile] = []
        self._names_changed = False
        self.end = segments[-1].end if segments else 0
        self.store_timestamp_ms = store_timestamp_ms
        self._room_end = segments[-1].base + segment_bytes if segments else 0

    def __repr__(self) -> str:
        return f"CommitLog({self.min_offset}..{self.end}, {len(self._segments)} segments)"

    @property
    def min_offset(self) -> int:
        return self._segments[0].base if self._segments else 0

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def segments(self) -> list[SegmentInfo]:
        return [
            SegmentInfo(file_name(segment.base), segment.base, segment.wrote)
            for segment in self._segments
        ]

    # ------------------------------------------------------------------------------ appending

    def make_room(self, size: int) -> int:
        """The position of the next `size` bytes; rolls to a new segment if they do not fit.

        Raises MessageTooLarge if no segment could hold them, NotWritable if the disk has no room
        for another segment, OSError if the disk fails. The end of the log moves only by a roll.
        """
        if self.end + size + BLANK_BYTES_MIN > self._room_end:
            if size + BLANK_BYTES_MIN > self._segment_bytes:
                raise MessageTooLarge(
                    f"{size} bytes do not fit into a log segment of {self._segment_bytes}; "
                    "send smaller batches or raise segment_bytes"
                )
            self.roll()
        return self.end

    def fits(self, size: int) -> bool:
        """Whether this many bytes fit without a new segment."""
        return self.end + size + BLANK_BYTES_MIN <= self._room_end

    def next_store_timestamp_ms(self, now_ms: int) -> int:
        """For the next records: never before the last record's, whatever the clock does."""
        return max(now_ms, self.store_timestamp_ms)

    def write(self, buffer: BytesLike, store_timestamp_ms: int) -> None:
        """Append what `make_room` made room for. OSError leaves the end unchanged."""
        active = self._segments[-1]
        file = active.file
        assert file is not None
        file.write_at(active.wrote, (buffer,))
        size = len(buffer)
        active.wrote += size
        self.end += size
        self.store_timestamp_ms = store_timestamp_ms

    @property
    def room_end(self) -> int:
        """Where the active segment's file ends and the next segment begins; 0 if there is none."""
        return self._room_end

    def roll(self) -> None:
        """Fill the active segment with a blank record and begin the next one. Raises as
        `make_room`."""
        base = self._room_end
        segment = Segment(base, self._segment_bytes, 0)
        try:
            spare = self.spares.first(is_late=bool(self._segments))
            if not self._segments:
                self._disk.make_directory(COMMIT_LOG_DIRECTORY)
            self._disk.rename(spare.path, segment.path)
        except OSError as error:
            raise self._not_writable(error) from error
        self.spares.pop_first()
        self._names_changed = True
        if self._segments:
            self._seal(self._segments[-1])
        segment.file = spare.file
        self._segments = (*self._segments, segment)
        self.end = base
        self._room_end = base + self._segment_bytes

    def _seal(self, active: Segment) -> None:
        file = active.file
        assert file is not None
        file.write_at(active.wrote, (blank_record(active.size - active.wrote),))
        active.wrote = active.size
        active.file = None
        self._sealed_unsynced.append(file)

    def _not_writable(self, error: OSError) -> Exception:
        if error.errno in DISK_FULL:
            return NotWritable(
                "the disk has no room for another log segment of "
                f"{self._segment_bytes} bytes beside the {self._keep_free_bytes} that must stay; "
                "free space or add a broker"
            )
        return error

    # ------------------------------------------------------------------------------ ahead

    @property
    def spare_wanted(self) -> bool:
        """Whether another segment should be prepared now."""
        if not self._segments:
            return False
        is_half_full = self._segments[-1].wrote * 2 >= self._segment_bytes
        return self.spares.wanted(is_half_full=is_half_full)

    def place_ahead(self, position: int) -> tuple[DiskFile, int, int] | None:
        """Where the byte at `position`, at or after the end, will be: the file, the offset in it,
        and how much of the file follows. None if there is no file for it yet."""
        if not self._segments:
            return None
        beyond = position - self._room_end
        if beyond < 0:
            file = self._segments[-1].file
            return None if file is None else (file, self._segment_bytes + beyond, -beyond)
        index, offset = divmod(beyond, self._segment_bytes)
        if index >= len(self.spares):
            return None
        return self.spares.file(index), offset, self._segment_bytes - offset

    # ------------------------------------------------------------------------------ removing

    @property
    def oldest_sealed(self) -> Segment | None:
        """The first segment, unless it is the active one."""
        return self._segments[0] if len(self._segments) > 1 else None

    def drop_oldest(self) -> Segment:
        """Let the log begin with its second segment; the caller removes the first one's file. From
        now on readers are refused it, except those that have it open."""
        oldest = self._segments[0]
        assert len(self._segments) > 1, "the active segment stays"
        self._segments = self._segments[1:]
        self._files.forget(oldest.path)
        return oldest

    def restore_oldest(self, segment: Segment) -> None:
        """The file of the last dropped segment could not be removed."""
        assert segment.end == self._segments[0].base
        self._segments = (segment, *self._segments)

    # ------------------------------------------------------------------------------ syncing

    def unsynced_files(self) -> list[DiskFile]:
        """The files whose datasync makes everything up to `end` durable."""
        files = list(self._sealed_unsynced)
        if self._segments and (active := self._segments[-1].file) is not None:
            files.append(active)
        return files

    def take_unsynced(self) -> tuple[list[DiskFile], list[str]]:
        """The same, with the directories to sync first; the caller is responsible for both."""
        files = self.unsynced_files()
        self._sealed_unsynced.clear()
        directories = [COMMIT_LOG_DIRECTORY, ""] if self._names_changed else []
        self._names_changed = False
        return files, directories

    # ------------------------------------------------------------------------------ reading

    def read_nowait(self, runs: Sequence[Run]) -> bytes | None:
        """[loop] The concatenated bytes of all runs; None if any of them is not in the page cache.

        Raises MessageNotFound for a run outside the log, RecordRemoved before its beginning.
        """
        total = 0
        for _, size in runs:
            total += size
        place = Place(total)
        for position, size in runs:
            segment = self._segment_at(position, size)
            try:
                file = segment.file or self._files.get(segment.path, Advice.RANDOM)
            except FileNotFoundError:
                raise _removed(segment) from None
            if not file.read_into_nowait(position - segment.base, place.room(size)):
                return None
            place.filled += size
        return place.message()

    def read(self, runs: Sequence[Run], handle: SegmentHandle | None = None) -> bytes:
        """[any thread] The same, waiting for the disk. `handle` serves a reader's next read."""
        parts = []
        for position, size in runs:
            segment = self._segment_at(position, size)
            file = segment.file or self._open(segment, handle)
            part = file.read_at(position - segment.base, size)
            if len(part) != size:
                raise MessageNotFound(
                    f"the log segment {segment.path} is shorter than it should be"
                )
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def record_at(self, position: int, size: int) -> bytes:
        """[any thread] The bytes of one run."""
        return self.read(((position, size),))

    def _open(self, segment: Segment, handle: SegmentHandle | None) -> DiskFile:
        file = None if handle is None else handle.get(segment.base)
        if file is None:
            try:
                file = self._disk.open_file(segment.path, read_only=True)
            except FileNotFoundError:
                raise _removed(segment) from None
            if handle is not None:
                # The store, which knows its readers, decides what to read ahead.
                file.advise(0, 0, Advice.RANDOM)
                handle.keep(segment.base, file)
        return file

    def advise(
        self, start: int, end: int, advice: Advice, handle: SegmentHandle | None = None
    ) -> None:
        """[any thread] Advise the kernel about a part of the log's sealed segments; what is not
        sealed or already gone is skipped."""
        for segment in self._segments:
            size = min(end, segment.end) - max(start, segment.base)
            if size > 0 and segment.file is None:
                with contextlib.suppress(RecordRemoved):
                    file = self._open(segment, handle)
                    file.advise(max(start, segment.base) - segment.base, size, advice)

    def contiguous_end(self, position: int) -> int:
        """The end of the run that a single read from `position` can cover: the end of the used part
        of its segment; `position` itself at the end of the log. Raises as `read`."""
        if position == self.end:
            return position
        return self._segment_at(position, 1).end

    def _segment_at(self, position: int, size: int) -> Segment:
        segments = self._segments
        if segments and position >= segments[0].base:
            index = (position - segments[0].base) // self._segment_bytes
            if index < len(segments) and 0 < size <= segments[index].end - position:
                return segments[index]
        message = (
            f"there is no record at physical offset {position}: the log holds "
            f"{self.min_offset} to {self.end}"
        )
        if segments and position < segments[0].base:
            raise RecordRemoved(message, removed_from=0, readable_from=segments[0].base)
        raise MessageNotFound(message)


def _removed(segment: Segment) -> RecordRemoved:
    return RecordRemoved(
        f"the log segment {segment.path} was removed",
        removed_from=segment.base,
        readable_from=segment.base + segment.size,
    )
