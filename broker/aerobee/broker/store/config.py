"""The store's settings, with Apache's sizes as defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from aerobee.broker.store.retention.retention_config import RetentionConfig
from aerobee.runtime.errors import InvalidArgument
from aerobee.store_format.record import HostAddress

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
ENTRY_BYTES = 20
RECORD_OVERHEAD_MAX = 64 * KIB
DEFAULT_STORE_HOST = HostAddress(bytes((127, 0, 0, 1)), 10911)


class FlushMode(StrEnum):
    """What an acknowledgement promises."""

    SYNC = "sync"  # acknowledged after fdatasync; survives a power failure of this machine
    ASYNC = "async"  # acknowledged from the page cache; a power failure loses flush_interval_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Sizes, limits and intervals of one store. Raises InvalidArgument for a value that cannot
    work.
    """

    # Geometry: must equal what the folder was written with.
    segment_bytes: int = 1 * GIB
    consume_queue_entries_per_file: int = 300_000
    index_slots_max: int = 5_000_000  # Apache's maxHashSlotNum
    index_entries_max: int = 20_000_000  # maxIndexNum

    index_enabled: bool = True  # without, messages are not found by key

    # Stamped into every record: this broker's address as clients reach it. The broker fills it in.
    store_host: HostAddress = field(default=DEFAULT_STORE_HOST, metadata={"key": False})

    # Flush.
    flush_mode: FlushMode = FlushMode.ASYNC
    flush_interval_ms: int = 500  # ASYNC: the most that a power failure takes
    flush_unflushed_bytes: int = 16 * MIB  # ASYNC: flush early when a burst brings this much
    checkpoint_interval_ms: int = 5_000  # consume queues to their files, then the checkpoint
    queue_tail_bytes_max: int = 8 * MIB  # the same, early, when entries in memory reach this
    index_pending_bytes_max: int = 16 * MIB  # the same for keys of the key index

    # Ahead of the appends: pages of the log in memory before bytes are written to them. It takes
    # that time from the loop and costs another core rather more of it.
    warm_up_segments: bool = False
    warm_up_ahead_bytes: int = 64 * MIB  # no more memory than this waits for bytes to come
    lock_segments_in_memory: bool = False  # mlock what was warmed up, until its segment is full

    # Back-pressure.
    unflushed_bytes_max: int = 256 * MIB  # Busy beyond
    disk_free_bytes_min: int = 256 * MIB  # NotWritable below; no new segment takes of it
    open_files_max: int = 512  # handles for reading sealed segments and queue files

    # What leaves the log again, and when the disk is too full for more.
    retention: RetentionConfig = field(default_factory=RetentionConfig)

    # Limits of one append; the codec checks bodies and properties.
    batch_bytes_max: int = 4 * MIB + RECORD_OVERHEAD_MAX

    # Reading.
    hot_tail_bytes: int = 256 * MIB  # this much of the log's end is meant to stay in memory
    evict_catch_up_reads: bool = True  # what a reader behind that brought in leaves memory again
    filter_scan_entries_max: int = 8_000  # entries one `locate` looks at when it filters by tag

    # Recovery.
    check_crc_on_recovery: bool = True
    recovery_chunk_bytes: int = 2 * MIB
    recovery_tail_bytes_max: int = 64 * MIB  # entries held while the log's end is not known yet
    queue_checks_at_start_max: int = 1_000  # queues whose files a start looks at unasked
    cut_damaged: bool = False  # repair: cut the log at the first damaged record, lose what follows

    # Deliver delay of each level of the schedule topic, level 1 first.
    delay_levels_ms: tuple[int, ...] = tuple(
        seconds * 1_000
        for seconds in (1, 5, 10, 30, *range(60, 601, 60), 1_200, 1_800, 3_600, 7_200)
    )

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
        _require(self.disk_free_bytes_min >= 0, "disk_free_bytes_min must not be negative")

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
