"""The log: all records of all topics, in segments of one size, appended only.

Owns: the segments, the end of the log, the spare segment. Invariants: segments are contiguous;
every segment but the last is used to its end; `end` moves only after the bytes are written; a
record never crosses a segment, and at least 8 bytes stay free behind it for the blank record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aerobee.broker.store.disk import BytesLike, Disk, DiskFile
from aerobee.broker.store.file_cache import FileCache
from aerobee.broker.store.log.preallocation import (
    DISK_FULL,
    SPARE_PREFIX,
    PrepareWork,
    Spare,
    create_spare,
)
from aerobee.broker.store.log.segment import (
    BLANK_BYTES_MIN,
    COMMIT_LOG_DIRECTORY,
    Segment,
    SegmentInfo,
)
from aerobee.runtime.errors import MessageNotFound, MessageTooLarge, NotWritable
from aerobee.store_format.names import file_name
from aerobee.store_format.record import blank_record

Run = tuple[int, int]

_SCRATCH_BYTES = 1024 * 1024


class CommitLog:
    """Made by recovery from the segments that it found whole up to their `wrote`."""

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
        """`store_timestamp_ms` is that of the last record, or 0. No segment is added that would
        leave the disk less than `keep_free_bytes`."""
        self._disk = disk
        self._files = files
        self._segment_bytes = segment_bytes
        self._keep_free_bytes = keep_free_bytes
        # Replaced, never changed in place: readers on other threads take it once and keep it.
        self._segments = tuple(segments)
        self._spare: Spare | None = None
        self._spares_made = 0
        self._sealed_unsynced: list[DiskFile] = []
        self._names_changed = False
        self._scratch = memoryview(bytearray(0))
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
        """Where the next `size` bytes will lie; rolls to a new segment if they do not fit.

        Raises MessageTooLarge if no segment could hold them, NotWritable if the disk has no room
        for another segment, OSError if the disk fails. The end of the log moves only by a roll.
        """
        if self.end + size + BLANK_BYTES_MIN > self._room_end:
            if size + BLANK_BYTES_MIN > self._segment_bytes:
                raise MessageTooLarge(
                    f"{size} bytes do not fit into a log segment of {self._segment_bytes}; "
                    "send smaller batches or raise segment_bytes"
                )
            self._roll()
        return self.end

    def next_store_timestamp_ms(self, now_ms: int) -> int:
        """For the next records: never before that of the last one, whatever the clock does."""
        return max(now_ms, self.store_timestamp_ms)

    def write(self, buffer: BytesLike, store_timestamp_ms: int) -> None:
        """Append what `make_room` made room for. OSError leaves the end where it was."""
        active = self._segments[-1]
        file = active.file
        assert file is not None
        file.write_at(active.wrote, (buffer,))
        size = len(buffer)
        active.wrote += size
        self.end += size
        self.store_timestamp_ms = store_timestamp_ms

    def _roll(self) -> None:
        base = self._room_end
        segment = Segment(base, self._segment_bytes, 0)
        spare = self._spare or self._create_spare_now()
        self._spare = spare
        try:
            if not self._segments:
                self._disk.make_directory(COMMIT_LOG_DIRECTORY)
            self._disk.rename(spare.path, segment.path)
        except OSError as error:
            raise self._not_writable(error) from error
        self._spare = None
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

    def _create_spare_now(self) -> Spare:
        try:
            return create_spare(
                self._disk,
                self._next_spare_path(),
                self._segment_bytes,
                keep_free_bytes=self._keep_free_bytes,
            )
        except OSError as error:
            raise self._not_writable(error) from error

    def _not_writable(self, error: OSError) -> Exception:
        if error.errno in DISK_FULL:
            return NotWritable(
                "the disk has no room for another log segment of "
                f"{self._segment_bytes} bytes beside the {self._keep_free_bytes} that must stay; "
                "free space or add a broker"
            )
        return error

    # ------------------------------------------------------------------------------ the spare

    @property
    def spare_wanted(self) -> bool:
        """Whether the active segment is half full and its successor not yet prepared."""
        if self._spare is not None or not self._segments:
            return False
        return self._segments[-1].wrote * 2 >= self._segment_bytes

    def prepare_work(self) -> PrepareWork:
        return PrepareWork(
            self._disk,
            self._next_spare_path(),
            self._segment_bytes,
            keep_free_bytes=self._keep_free_bytes,
        )

    def take_spare(self, spare: Spare) -> None:
        """Keep what was prepared; a second one is dropped."""
        if self._spare is None:
            self._spare = spare
        else:
            self._drop(spare)

    def drop_spare(self) -> None:
        if self._spare is not None:
            self._drop(self._spare)
            self._spare = None

    def _drop(self, spare: Spare) -> None:
        spare.file.close()
        self._disk.remove(spare.path)

    def _next_spare_path(self) -> str:
        self._spares_made += 1
        return f"{SPARE_PREFIX}{self._spares_made}"

    # ------------------------------------------------------------------------------ syncing

    def unsynced_files(self) -> list[DiskFile]:
        """The files whose datasync makes everything up to `end` durable."""
        files = list(self._sealed_unsynced)
        if self._segments and (active := self._segments[-1].file) is not None:
            files.append(active)
        return files

    def take_unsynced(self) -> tuple[list[DiskFile], list[str]]:
        """The same with the directories to sync before; the caller answers for them from now on."""
        files = self.unsynced_files()
        self._sealed_unsynced.clear()
        directories = [COMMIT_LOG_DIRECTORY, ""] if self._names_changed else []
        self._names_changed = False
        return files, directories

    # ------------------------------------------------------------------------------ reading

    def read_nowait(self, runs: Sequence[Run]) -> bytes | None:
        """[loop] The bytes of all runs end to end; None if any of them is not in the page cache.

        Raises MessageNotFound for a run outside the log.
        """
        total = 0
        for _, size in runs:
            total += size
        scratch = self._scratch_of(total)
        filled = 0
        for position, size in runs:
            segment = self._segment_at(position, size)
            file = segment.file or self._files.get(segment.path)
            target = scratch[filled : filled + size]
            if not file.read_into_nowait(position - segment.base, target):
                return None
            filled += size
        return bytes(scratch[:total])

    def read(self, runs: Sequence[Run]) -> bytes:
        """[any thread] The same, waiting for the disk."""
        parts = []
        for position, size in runs:
            segment = self._segment_at(position, size)
            file = segment.file or self._open(segment)
            part = file.read_at(position - segment.base, size)
            if len(part) != size:
                raise MessageNotFound(
                    f"the log segment {segment.path} is shorter than it should be"
                )
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _open(self, segment: Segment) -> DiskFile:
        try:
            return self._disk.open_file(segment.path, read_only=True)
        except FileNotFoundError:
            raise MessageNotFound(f"the log segment {segment.path} was removed") from None

    def walk(self, start: int, chunk_bytes: int) -> Iterator[tuple[int, bytes]]:
        """Pieces of the used part of the log from `start` on, each within one segment.

        Yields (position, bytes); pieces end anywhere, also inside a record.
        """
        for segment in self._segments:
            position = max(start, segment.base)
            while position < segment.end:
                size = min(chunk_bytes, segment.end - position)
                yield position, self.read(((position, size),))
                position += size

    def _scratch_of(self, size: int) -> memoryview:
        if size > _SCRATCH_BYTES:
            return memoryview(bytearray(size))
        if not len(self._scratch):
            self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        return self._scratch

    def _segment_at(self, position: int, size: int) -> Segment:
        segments = self._segments
        if segments and position >= segments[0].base:
            index = (position - segments[0].base) // self._segment_bytes
            if index < len(segments) and 0 < size <= segments[index].end - position:
                return segments[index]
        raise MessageNotFound(
            f"there is no record at physical offset {position}: the log holds "
            f"{self.min_offset} to {self.end}"
        )
