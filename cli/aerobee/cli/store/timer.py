"""Apache's timer files in a store folder, and what its broker would make of them at its start."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from aerobee.cli.store.folder import TIMER_LOG_DIRECTORY
from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.delayed_records import TIMER_TOPIC
from aerobee.store.format.names import file_name, is_file_name, parse_file_name
from aerobee.store.format.record import Record, RecordCorrupt
from aerobee.store.format.timer_checkpoint import TimerCheckpoint, TimerCheckpointIllegal
from aerobee.store.format.timer_log import TIMER_RECORD_SIZE, TimerRecord, scan_timer_log
from aerobee.store.format.timer_recovery import RecoveredTimer, recover_timer
from aerobee.store.format.timer_wheel import TimerSlot, TimerWheelCorrupt, decode_wheel

TIMER_WHEEL_FILE = "timerwheel"
TIMER_CHECKPOINT_FILE = "config/timercheck"


class TimerFiles:
    """Read once, then asked. Raises StoreUnusable for files of a wrong length."""

    def __init__(self, disk: Disk, file_bytes: int) -> None:
        """`file_bytes` is the length of a timer log file."""
        self._disk = disk
        self._file_bytes = file_bytes
        self._bases: list[int] = []
        for entry in disk.list(TIMER_LOG_DIRECTORY):
            if entry.is_directory or not is_file_name(entry.name):
                continue
            if entry.size_bytes != file_bytes:
                raise StoreUnusable(
                    f"{TIMER_LOG_DIRECTORY}/{entry.name} has {entry.size_bytes} bytes, not "
                    f"{file_bytes}: give the mappedFileSizeTimerLog that the store was written "
                    "with"
                )
            self._bases.append(parse_file_name(entry.name))
        try:
            self.checkpoint = TimerCheckpoint.decode(disk.read_file(TIMER_CHECKPOINT_FILE))
            self.wheel = self._read_wheel()
        except (TimerCheckpointIllegal, TimerWheelCorrupt) as error:
            raise StoreUnusable(f"{error}") from error
        except FileNotFoundError:
            # No timer ever ran here, or one that never saved anything.
            self.checkpoint = TimerCheckpoint()
            self.wheel = self._read_wheel()

    def _read_wheel(self) -> list[TimerSlot]:
        if not self._disk.exists(TIMER_WHEEL_FILE):
            return []
        return decode_wheel(self._disk.read_file(TIMER_WHEEL_FILE))

    def records(self) -> Iterator[tuple[int, TimerRecord]]:
        """The log's records with their positions, as far as they are whole."""
        for base in self._bases:
            scan = scan_timer_log(self._read(base))
            for number, record in enumerate(scan):
                yield base + number * TIMER_RECORD_SIZE, record
            if not scan.is_full:
                return

    def recovered(self, store: MessageStore) -> RecoveredTimer:
        """As Apache's broker would begin with."""
        bounds = store.queues.bounds(TIMER_TOPIC, 0)
        return recover_timer(
            self.checkpoint,
            self.wheel,
            {base: partial(self._read, base) for base in self._bases},
            file_bytes=self._file_bytes,
            queue_bounds=(bounds.min_offset, bounds.max_offset),
            find_queue_offset=partial(_queue_offset, store),
        )

    def _read(self, base: int) -> bytes:
        return self._disk.read_file(f"{TIMER_LOG_DIRECTORY}/{file_name(base)}")


def _queue_offset(store: MessageStore, commit_offset: int, size: int) -> int | None:
    try:
        return Record(store.log.record_at(commit_offset, size)).queue_offset
    except (MessageNotFound, RecordCorrupt):
        return None


def describe_timer(disk: Disk, store: MessageStore, file_bytes: int) -> dict[str, Any]:
    """The section `timer`; only its `problem` if the files cannot be read."""
    try:
        files = TimerFiles(disk, file_bytes)
        recovered = files.recovered(store)
    except (StoreUnusable, ValueError) as error:
        return {"problem": str(error)}
    checkpoint = files.checkpoint
    return {
        "checkpoint": {
            "lastReadTimeMs": checkpoint.last_read_time_ms,
            "lastTimerLogFlushPos": checkpoint.last_log_flushed_position,
            "lastTimerQueueOffset": checkpoint.last_queue_offset,
            "masterTimerQueueOffset": checkpoint.master_queue_offset,
            "stateVersion": checkpoint.state_version,
            "timestamp": checkpoint.changed_ms,
            "counter": checkpoint.counter,
        },
        "slots": [_slot(slot) for slot in files.wheel],
        "log": (_record(position, record) for position, record in files.records()),
        "recovered": {
            "queueOffset": recovered.queue_offset,
            "slots": [_slot(slot) for slot in recovered.slots],
        },
    }


def _slot(slot: TimerSlot) -> dict[str, int]:
    return {
        "time": slot.time_ms,
        "first": slot.first_position,
        "last": slot.last_position,
        "num": slot.count,
        "magic": slot.magic,
    }


def _record(position: int, record: TimerRecord) -> dict[str, int]:
    return {
        "position": position,
        "previous": record.previous_position,
        "magic": record.magic,
        "writeTime": record.write_time_ms,
        "delayMs": record.delay_ms,
        "physicalOffset": record.commit_offset,
        "size": record.size,
        "topicHash": record.topic_hash,
    }
