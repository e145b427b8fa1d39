"""One queue: message n of a topic's queue -> where its record is in the log.

Owns: the entries that are not yet in the queue's files (the tail) and the bounds of the queue. The
files hold entries [.., written_end), the tail [written_end, end); readers see both as one. Files
are written on another thread from a copy of the tail, and the tail is trimmed once they are
durable.

A store may have very many queues, most of them idle. So a queue holds no file open, and the list of
queue ends is trusted about its files until they are first used. Files that turn out to be wrong
make the queue damaged: from then on it neither serves nor writes anything, it only counts, and the
next start rebuilds it from the log.

Invariants: first_offset <= min_offset <= served_from <= end <= next_offset; physical offsets rise
with the offset; the queue never has an entry that the log does not cover; wrong entries are never
served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import QueueDamaged
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.queues.queue_ends import QueueEnd
from aerobee.store.engine.queues.reading import QueueBounds
from aerobee.store.engine.queues.sound_entries import FileClaim, are_sound, look_at_files
from aerobee.store.format.consume_queue_entry import (
    ENTRY_SIZE,
    PRE_BLANK_ENTRY,
    unpack_entry,
)
from aerobee.store.format.names import file_name

CONSUME_QUEUE_DIRECTORY = "consumequeue"

# A value of `claimed_end`: the files were checked, or never need to be.
CHECKED = -1


def queue_directory(topic: str, queue_id: int) -> str:
    return f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue_id}"


class FilePiece(NamedTuple):
    """`size` bytes at byte `at` of a queue file."""

    path: str
    at: int
    size: int


class EntriesRead:
    """A read of entries from the files, off the loop. Holds what it needs of the queue at one
    moment, so it may wait for the disk while the queue grows. Made by `ConsumeQueue.plan_read`."""

    __slots__ = ("_check", "_disk", "_judge", "_pieces", "_tail")

    def __init__(
        self,
        disk: Disk,
        check: Callable[[Disk], None],
        pieces: Sequence[FilePiece],
        judge: Callable[[bytes], bytes],
        tail: bytes,
    ) -> None:
        """`check` checks the queue's files before their first use; `judge` gets everything read
        from files, and raises for invalid entries."""
        self._disk = disk
        self._check = check
        self._pieces = pieces
        self._judge = judge
        self._tail = tail

    def run(self) -> bytes:
        """[any thread] The concatenated entries. Raises QueueDamaged, OSError."""
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


class ConsumeQueue:
    """All methods are for the loop thread, except those marked [any thread]: they too may set
    `claimed_end` to CHECKED, and `damage`."""

    __slots__ = (
        "claimed_end",
        "damage",
        "end",
        "entries_per_file",
        "first_offset",
        "is_gone",
        "is_trimmed",
        "kept_from",
        "min_offset",
        "min_position",
        "next_offset",
        "number",
        "physical_end",
        "queue_id",
        "tail",
        "topic",
        "written_end",
    )

    def __init__(self, topic: str, queue_id: int, entries_per_file: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.entries_per_file = entries_per_file
        # Where the queue's first file begins; messages may begin later.
        self.first_offset = 0
        self.min_offset = 0
        # Its topic keeps nothing older, although the log may still have it.
        self.kept_from = 0
        # Log position of the first message's record; -1 if unknown.
        self.min_position = -1
        self.written_end = 0
        self.end = 0
        self.physical_end = 0
        self.tail: bytes | bytearray = b""
        # Offset of the next record appended to the log; it is dispatched here later.
        self.next_offset = 0
        # Its number in the list of queue ends; -1 until the queue is listed.
        self.number = -1
        # Where the last entry in the files must end in the log, until the files are checked.
        self.claimed_end = CHECKED
        self.damage = ""
        # Files at the beginning may be being removed: what is missing there is not damage.
        self.is_trimmed = False
        # Its topic was deleted, and its files belong to another queue from now on.
        self.is_gone = False

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, {self.min_offset}..{self.end})"

    @classmethod
    def listed(cls, end: QueueEnd, entries_per_file: int) -> Self:
        """A queue as given in the list of queue ends; its files have not been checked."""
        queue = cls(end.topic, end.queue_id, entries_per_file)
        queue.first_offset = end.first_offset
        queue.min_offset = end.min_offset
        queue.min_position = end.min_position
        queue.written_end = end.written_end
        queue.end = queue.next_offset = end.end
        queue.physical_end = queue.claimed_end = end.physical_end
        # Only blank entries before a queue's first message are never in a file.
        queue.tail = PRE_BLANK_ENTRY * (end.end - end.written_end)
        return queue

    @property
    def directory(self) -> str:
        return queue_directory(self.topic, self.queue_id)

    @property
    def served_from(self) -> int:
        """The first message that exists for readers: of those in the log, the first that the topic
        keeps."""
        if self.kept_from <= self.min_offset:
            return self.min_offset
        return min(self.kept_from, self.end)

    @property
    def bounds(self) -> QueueBounds:
        return QueueBounds(self.served_from, self.end, self.physical_end)

    @property
    def bounds_in_log(self) -> QueueBounds:
        """The same, with what the topic no longer keeps."""
        return QueueBounds(self.min_offset, self.end, self.physical_end)

    @property
    def has_unwritten(self) -> bool:
        """Whether any entry is only in memory. Blank ones alone are not worth a file."""
        return bool(self.tail) and not self.tail.endswith(PRE_BLANK_ENTRY)

    @property
    def tail_position(self) -> int:
        """The position of the oldest record whose entry is only in memory, or an earlier one."""
        return int.from_bytes(self.tail[:8], "big")

    def append(self, entries: bytes, count: int, physical_end: int) -> None:
        """Add `count` entries at the end of the queue."""
        if self.min_offset == self.end:
            self.min_position = int.from_bytes(entries[:8], "big")
        if self.damage:
            self.written_end = self.end + count
        elif isinstance(self.tail, bytearray):
            self.tail += entries
        elif self.tail:
            self.tail = bytearray(self.tail + entries)
        else:
            self.tail = bytearray(entries)
        self.end += count
        self.physical_end = physical_end
        if self.next_offset < self.end:
            self.next_offset = self.end

    def begin_at(self, offset: int) -> int:
        """Let an empty queue begin at `offset`; returns the number of blank entries before it."""
        assert self.end == 0
        assert not self.tail
        blank = offset % self.entries_per_file
        self.first_offset = offset - blank
        self.written_end = offset - blank
        self.tail = bytearray(PRE_BLANK_ENTRY * blank)
        self.min_offset = offset
        self.end = offset
        self.next_offset = max(self.next_offset, offset)
        return blank

    def begin_behind_trim(self, first_offset: int, min_offset: int, min_position: int) -> None:
        """Files before `first_offset` are gone, messages before `min_offset` are no longer served;
        neither moves back. `min_position` is -1 if unknown."""
        self.first_offset = max(self.first_offset, first_offset)
        if min_offset >= self.min_offset:
            self.min_offset = min_offset
            self.min_position = min_position

    # ------------------------------------------------------------------------------ files

    def take_write(self) -> QueueWrite:
        data = bytes(self.tail) if self.has_unwritten else b""
        return QueueWrite(
            self,
            self.written_end,
            data,
            self.first_offset,
            self.min_offset,
            self.min_position,
            self.end,
            self.physical_end,
            self.take_claim() if data else None,
        )

    def finish_write(self, write: QueueWrite) -> int:
        """What `write` contains is durable: drop it. Returns the number of bytes freed."""
        if self.damage:
            size = len(self.tail)
            self.tail = b""
            self.written_end = self.end
            return size
        size = len(write.data)
        assert write.first_entry == self.written_end
        if size and self.claimed_end != CHECKED:
            position, record_size, _ = unpack_entry(write.data, size - ENTRY_SIZE)
            self.claimed_end = position + record_size
        self.written_end += size // ENTRY_SIZE
        if size == len(self.tail):
            self.tail = b""
        elif size:
            self.tail = self.tail[size:]
        return size

    def take_claim(self) -> FileClaim | None:
        """What the files must hold, for `check_files`; None once they were checked."""
        if self.claimed_end == CHECKED:
            return None
        claim = FileClaim(
            self.directory,
            self.entries_per_file,
            self.first_offset,
            self.min_offset,
            self.min_position,
            self.written_end,
            self.claimed_end,
            self.is_trimmed,
        )
        # Another thread may have checked meanwhile.
        return None if claim.physical_end == CHECKED else claim

    def check_files(self, disk: Disk, claim: FileClaim | None) -> None:
        """[any thread] Check the files unless that was done before; `claim` is from the loop.

        Raises QueueDamaged, this time and always after, if they are not what they should be;
        OSError.
        """
        if claim is not None and self.claimed_end != CHECKED and not self.damage:
            found = look_at_files(disk, claim)
            if not found.reason:
                self.claimed_end = CHECKED
            elif self._is_trimmed_since(claim):
                # Only the last file can be judged now; the next check looks at all of them.
                found = look_at_files(disk, claim, last_file_only=True)
            if found.reason and self.claimed_end != CHECKED:
                self.damage = found.reason
        if self.damage:
            raise QueueDamaged(self.topic, self.queue_id, self.damage)

    def _is_trimmed_since(self, claim: FileClaim) -> bool:
        """[any thread] Whether files at the beginning may have been removed. Reads the fields in
        the reverse of the order in which the end of a trim sets them."""
        return claim.is_trimmed or self.is_trimmed or self.first_offset != claim.first_offset

    # ------------------------------------------------------------------------------ reading

    def read_entries(self, files: FileCache, start: int, count: int) -> bytes:
        """Entries [start, start + count), cut at the end of the queue; may block on a cold file.

        Returns fewer only below the minimum offset, where files may be gone. Raises QueueDamaged.
        """
        end = min(start + count, self.end)
        if start >= self.written_end:
            return self._from_tail(start, end)
        self.check_files(files.disk, self.take_claim())
        parts: list[bytes] = []
        for path, at, size in self._file_pieces(start, end):
            try:
                parts.append(files.get(path).read_at(at, size))
            except FileNotFoundError:
                break
        return self._with_tail(b"".join(parts), start, end)

    def read_entries_nowait(self, files: FileCache, start: int, count: int) -> bytes | None:
        """The same without ever waiting for the disk: None if any of it is not in the page cache,
        or if the queue's files were never used. Use `plan_read` then.
        """
        end = min(start + count, self.end)
        if start >= self.written_end:
            return self._from_tail(start, end)
        if self.damage:
            raise QueueDamaged(self.topic, self.queue_id, self.damage)
        if self.claimed_end != CHECKED:
            return None
        parts: list[bytes] = []
        for path, at, size in self._file_pieces(start, end):
            part = bytearray(size)
            try:
                if not files.get(path).read_into_nowait(at, memoryview(part)):
                    return None
            except FileNotFoundError:
                break
            parts.append(bytes(part))
        return self._with_tail(b"".join(parts), start, end)

    def plan_read(self, disk: Disk, start: int, count: int) -> EntriesRead:
        """The same read, to run on any thread while the queue keeps growing."""
        end = min(start + count, self.end)
        in_files_end = min(end, self.written_end)
        claim = self.take_claim()
        return EntriesRead(
            disk,
            lambda disk: self.check_files(disk, claim),
            list(self._file_pieces(start, end)),
            lambda data: self._judged(data, start, in_files_end),
            self._from_tail(max(start, self.written_end), end),
        )

    def file_path(self, entry: int) -> str:
        """The file that contains `entry`."""
        base = (entry - entry % self.entries_per_file) * ENTRY_SIZE
        return f"{self.directory}/{file_name(base)}"

    def _file_pieces(self, start: int, end: int) -> Iterator[FilePiece]:
        """Where entries [start, end) are, as far as they are in files."""
        position = start
        end = min(end, self.written_end)
        while position < end:
            in_file = position % self.entries_per_file
            piece_end = min(end, position - in_file + self.entries_per_file)
            size = (piece_end - position) * ENTRY_SIZE
            yield FilePiece(self.file_path(position), in_file * ENTRY_SIZE, size)
            position = piece_end

    def _with_tail(self, data: bytes, start: int, end: int) -> bytes:
        """`data` is what the files have of [start, end)."""
        in_files_end = min(end, self.written_end)
        data = self._judged(data, start, in_files_end)
        if end == in_files_end or len(data) < (in_files_end - start) * ENTRY_SIZE:
            return data
        return data + self._from_tail(in_files_end, end)

    def _judged(self, data: bytes, start: int, end: int) -> bytes:
        """[any thread] `data` if it may be entries [start, end) of the files. Raises QueueDamaged,
        this time and always after, unless they are where files may be being removed."""
        whole = len(data) == (end - start) * ENTRY_SIZE
        data = data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]
        if (whole or self.is_trimmed) and are_sound(data):
            return data
        if start < self.min_offset:
            return data
        self.damage = f"its entries from {start} on are not valid entries"
        raise QueueDamaged(self.topic, self.queue_id, self.damage)

    def _from_tail(self, start: int, end: int) -> bytes:
        first = self.written_end
        return bytes(self.tail[(start - first) * ENTRY_SIZE : max(0, end - first) * ENTRY_SIZE])


class QueueWrite(NamedTuple):
    """A queue at one moment, and entries to write to its files: `data` begins with entry
    `first_entry`."""

    queue: ConsumeQueue
    first_entry: int
    data: bytes
    first_offset: int
    min_offset: int
    min_position: int
    end: int
    physical_end: int
    claim: FileClaim | None
