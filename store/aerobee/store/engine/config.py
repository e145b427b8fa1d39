"""The store's settings, with Apache's sizes as defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from aerobee.runtime.config import Change
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.format.delay_levels import LEVELS_MAX, DelayLevels
from aerobee.store.format.record import HostAddress

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
ENTRY_BYTES = 20
RECORD_OVERHEAD_MAX = 64 * KIB
FIXED = {"change": Change.NEVER}
DEFAULT_STORE_HOST = HostAddress(bytes((127, 0, 0, 1)), 10911)


class FlushMode(StrEnum):
    """What an acknowledgement promises."""

    SYNC = "sync"  # acknowledged after fdatasync; survives a power failure of this machine
    ASYNC = "async"  # acknowledged from the page cache; a power failure loses flush_interval_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Sizes, limits and intervals of one store.

    Raises InvalidArgument for a value that cannot work.
    """

    # Geometry: must equal what the folder was written with.
    segment_bytes: int = field(default=1 * GIB, metadata=FIXED)
    """Size of a log file, which is allocated in advance; equal on all replicas of a group.

    Costs: up to two of them are on the disk without messages; retention removes only whole files.
    """
    consume_queue_entries_per_file: int = field(default=300_000, metadata=FIXED)
    """Entries in one file of a queue, 20 bytes each.

    Unit: entries
    Costs: each queue that is used takes at least one file, even if it is not full.
    """
    index_slots_max: int = field(default=5_000_000, metadata=FIXED)
    """Hash slots of an index file (Apache's maxHashSlotNum).

    Unit: slots
    Costs: 4 bytes of the file each; with fewer, chains of keys are longer and searches slower.
    """
    index_entries_max: int = field(default=20_000_000, metadata=FIXED)
    """Keys in one index file (maxIndexNum).

    Unit: keys
    Costs: 20 bytes of the file each.
    """

    index_enabled: bool = True
    """Whether messages can be found by their keys.

    Costs: 20 bytes on the disk for each key, and time of the thread that writes them.
    """

    # Stamped into every record: this broker's address as clients reach it. The broker fills it in.
    store_host: HostAddress = field(default=DEFAULT_STORE_HOST, metadata={"key": False})

    # Flush.
    flush_mode: FlushMode = FlushMode.ASYNC
    """What an acknowledgement promises. `sync`: the message is on this machine's disk; `async`: it
    is in the page cache, which survives the process but not a power cut.

    Costs: `sync` waits for the disk, once for all messages that arrived meanwhile.
    """
    flush_interval_ms: int = 500
    """Async: longest time between two flushes.

    Costs: longer: a power failure takes more messages; shorter: more flushes.
    """
    flush_unflushed_bytes: int = 16 * MIB
    """Async: flush early when this much is unflushed.

    Costs: smaller: more flushes.
    """
    checkpoint_interval_ms: int = 5_000
    """How often consume queues and keys are written to their files, and then the checkpoint.

    Costs: longer: more memory, and more of the log to read after a crash.
    """
    queue_tail_bytes_max: int = 8 * MIB
    """A checkpoint comes early when queue entries in memory reach this.

    Costs: that much memory, or four times as much while the disk cannot keep up; beyond that,
    senders get BUSY.
    """
    index_pending_bytes_max: int = 16 * MIB
    """The same for keys of the key index.

    Costs: as above.
    """

    # Ahead of the appends: pages of the log in memory before bytes are written to them.
    warm_up_segments: bool = False
    """Bring the pages of a new segment into memory before they are written (warmMapedFileEnable).

    Costs: the event loop saves that time, but another core spends rather more of it.
    """
    warm_up_ahead_bytes: int = 64 * MIB
    """How far past the log's end pages are brought into memory.

    Costs: that much memory, before it is needed.
    """
    lock_segments_in_memory: bool = False
    """Keep warmed-up pages in memory with `mlock` until their segment is full; implies
    `warm_up_segments`.

    Costs: memory that no other process can use, up to one segment; RLIMIT_MEMLOCK must allow it.
    """

    # Back-pressure.
    unflushed_bytes_max: int = 256 * MIB
    """Senders get BUSY when this much is waiting for the disk and the replicas.

    Costs: dirty pages of the page cache, and the time of the flush that writes them.
    """
    disk_hung_after_ms: int = 5_000
    """The disk counts as hung when a flush, or the write of a small file, has taken this long; a
    large write may take 1 s longer for each 16 MiB. The broker then takes no messages, a master
    hands over, and a slave stops following; 0: never.

    Costs: shorter: a slow disk is mistaken for a hung one; longer: senders wait.
    """
    disk_free_bytes_min: int = 256 * MIB
    """With less free space than this, the broker takes no messages (NOT_WRITABLE); no new segment
    uses it.

    Costs: that much of the disk is reserved for tables, queues, and repairs by hand.
    """
    open_files_max: int = 512
    """Files kept open for reading: sealed segments, queue files, index files.

    Unit: files
    Costs: one file descriptor each; with fewer, files are opened more often.
    """

    # What leaves the log again, and when the disk is too full for more.
    retention: RetentionConfig = field(default_factory=RetentionConfig)

    # Limits of one append; the codec checks bodies and properties.
    batch_bytes_max: int = 4 * MIB + RECORD_OVERHEAD_MAX
    """Largest batch that is stored, and so the largest message.

    Costs: memory for each sender; one batch is stored in one step of the event loop.
    """

    # Reading.
    hot_tail_bytes: int = 256 * MIB
    """How much of the log's end stays in the page cache; readers of earlier messages do not push it
    out.

    Costs: page cache; the next reader of the same messages reads them from the disk again.
    """
    evict_catch_up_reads: bool = True
    """Whether pages that were brought into the page cache for a reader far behind are dropped
    again.

    Costs: a second reader of the same old messages reads them from the disk again.
    """
    filter_scan_entries_max: int = 8_000
    """How many queue entries are read, at most, in one step of a pull that filters by tag.

    Unit: entries
    Costs: higher: each step takes more time of the event loop; lower: more steps for rare tags.
    """

    # Recovery.
    check_crc_on_recovery: bool = True
    """Whether recovery checks the body of every record that it reads.

    Costs: start time after a crash; without it, a torn body is found only when it is read.
    """
    recovery_chunk_bytes: int = 2 * MIB
    """How much of the log is read at a time during recovery.

    Costs: memory while it runs.
    """
    recovery_tail_bytes_max: int = 64 * MIB
    """How many bytes of queue entries, and of keys, recovery holds until it has found the log's
    end.

    Costs: memory while it runs; with less, part of the log is read twice.
    """
    queue_checks_at_start_max: int = 1_000
    """How many queues are checked at the start, at most; the others are checked when they are first
    used.

    Unit: queues
    Costs: start time.
    """
    cut_damaged: bool = False
    """Repair: cut the log at the first damaged record. Meant for a single start, as a flag.

    Costs: every message after the damage is lost.
    """

    # Deliver delay of each level of the schedule topic, level 1 first.
    delay_levels_ms: tuple[int, ...] = DelayLevels.parse().delays_ms
    """Delay of each level of Apache's schedule topic, level 1 first (messageDelayLevel). Equal on
    all replicas of a group.

    Costs: nothing; a queue entry of that topic has the time that was computed when the message was
    stored.
    """

    def __post_init__(self) -> None:
        _require(self.segment_bytes >= 1 * KIB, "segment_bytes must be at least 1024")
        _require(
            self.consume_queue_entries_per_file >= 1,
            "consume_queue_entries_per_file must be at least 1",
        )
        _require(self.index_entries_max >= 2, "index_entries_max must be at least 2")
        for name in (
            "flush_interval_ms",
            "flush_unflushed_bytes",
            "checkpoint_interval_ms",
            "queue_tail_bytes_max",
            "index_pending_bytes_max",
            "index_slots_max",
            "warm_up_ahead_bytes",
            "unflushed_bytes_max",
            "open_files_max",
            "batch_bytes_max",
            "hot_tail_bytes",
            "filter_scan_entries_max",
            "recovery_chunk_bytes",
            "recovery_tail_bytes_max",
        ):
            _require(getattr(self, name) > 0, f"{name} must be greater than 0")
        _require(self.queue_checks_at_start_max >= 0, "queue_checks_at_start_max is negative")
        _require(self.disk_hung_after_ms >= 0, "disk_hung_after_ms must not be negative")
        _require(self.disk_free_bytes_min >= 0, "disk_free_bytes_min must not be negative")
        _require(
            0 < len(self.delay_levels_ms) <= LEVELS_MAX,
            f"delay_levels_ms must have 1 to {LEVELS_MAX} levels",
        )
        _require(min(self.delay_levels_ms) >= 0, "delay_levels_ms must not be negative")

    @property
    def consume_queue_file_bytes(self) -> int:
        return self.consume_queue_entries_per_file * ENTRY_BYTES


def consume_queue_entries(file_bytes: int) -> int:
    """Entries per file for Apache's mappedFileSizeConsumeQueue, which is rounded up to whole
    entries.
    """
    return -(-file_bytes // ENTRY_BYTES)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidArgument(f"store configuration: {message}")
