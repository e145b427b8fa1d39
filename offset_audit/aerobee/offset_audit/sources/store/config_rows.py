"""What a store says about itself, as the tables that checks read: brokers, topics, queues, commits,
epochs and segments of a broker whose files are read instead of asking it.

Null is what files cannot tell. A queue without files had no message if the log still has its first
byte; otherwise that is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final

from aerobee.offset_audit.sources.store.config_files import (
    Commit,
    read_commits,
    read_epochs,
    read_topics,
    read_writer,
)
from aerobee.offset_audit.sources.store.files import queue_files
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.log_tail import entries_until_ms, keys_until_ms
from aerobee.offset_audit.sources.store.plan import StorePiece
from aerobee.offset_audit.sources.store.queue_ends import QueueBounds, QueueEnds
from aerobee.offset_audit.sources.store.ranges_rows import RecordBatch, make_batch
from aerobee.runtime.clock import Clock

BATCH_ROWS: Final = 65_536

Row = Mapping[str, Any]


@dataclass(slots=True)
class ConfigReading:
    """What readers of stores' own tables need. Close it.

    The end of a log and what follows the last checkpoint are read once for all tables of a store.
    """

    clock: Clock
    record_bytes_max: int
    is_wanted: Callable[[str, int], bool]
    """By topic and queue id."""
    _logs: dict[StoreFolder, LogLookup] = field(default_factory=dict)
    _bounds: dict[StoreFolder, QueueBounds] = field(default_factory=dict)

    def log(self, store: StoreFolder) -> LogLookup:
        if store not in self._logs:
            self._logs[store] = LogLookup(store, self.record_bytes_max)
        return self._logs[store]

    def bounds(self, store: StoreFolder) -> QueueBounds:
        if store not in self._bounds:
            self._bounds[store] = QueueBounds(store, self.log(store))
        return self._bounds[store]

    def close(self) -> None:
        for log in self._logs.values():
            log.close()


def config_batches(table: str, piece: StorePiece, reading: ConfigReading) -> Iterator[RecordBatch]:
    """Of the table's columns, none of them empty."""
    rows = _ROWS[table](piece, reading)
    while some := list(islice(rows, BATCH_ROWS)):
        names = dict.fromkeys(name for row in some for name in row)
        columns = {name: [row.get(name) for row in some] for name in names}
        yield make_batch(table, piece.store, len(some), columns)


def _brokers(piece: StorePiece, reading: ConfigReading) -> Iterator[Row]:
    store = piece.store
    asked_at_ms = reading.clock.now_ms()
    writer = read_writer(store)
    epochs = read_epochs(store)
    log = reading.log(store)
    yield {
        "answered": True,
        "role": "STORE",
        "epoch": epochs[-1][0] if epochs else writer.epoch,
        "instance": writer.instance,
        "incarnation": writer.incarnation,
        "log_min_offset": log.begin,
        "appended_end": log.end,
        "commits_read_at_ms": asked_at_ms,
        "ends_read_at_ms": asked_at_ms,
        "asked_at_ms": asked_at_ms,
        "answered_at_ms": reading.clock.now_ms(),
        "entries_until_ms": entries_until_ms(store, log),
        "keys_until_ms": keys_until_ms(store, log),
    }


def _topics(piece: StorePiece, reading: ConfigReading) -> Iterator[Row]:
    topics, revision = read_topics(piece.store)
    for topic in topics:
        yield {
            "topic": topic.name,
            "read_queue_count": topic.read_queue_count,
            "write_queue_count": topic.write_queue_count,
            "perm": topic.perm,
            "revision": revision,
        }


def _queues(piece: StorePiece, reading: ConfigReading) -> Iterator[Row]:
    store = piece.store
    found: set[tuple[str, int]] = set()
    log = reading.log(store)
    bounds = reading.bounds(store)
    for number, queue in enumerate(queue_files(store, reading.is_wanted)):
        name = queue.topic, queue.queue_id
        found.add(name)
        if number % piece.shares == piece.share:
            yield _queue_row(name, bounds.of(name, queue), log, reading)
    if piece.share == 0:
        never = QueueEnds(0, 0, -1) if log.begin == 0 else None
        for name in sorted({*bounds.names, *_configured_queues(store)} - found):
            if reading.is_wanted(*name):
                yield _queue_row(name, bounds.of(name, None) or never, log, reading)


def _queue_row(
    name: tuple[str, int], ends: QueueEnds | None, log: LogLookup, reading: ConfigReading
) -> Row:
    has_message = ends is not None and ends.last_position >= 0
    return {
        "topic": name[0],
        "queue_id": name[1],
        "min_offset": None if ends is None else ends.min_offset,
        "max_offset": None if ends is None else ends.max_offset,
        "last_store_ms": log.store_ms(ends.last_position) if ends and has_message else None,
        "read_at_ms": reading.clock.now_ms(),
    }


def _configured_queues(store: StoreFolder) -> Iterator[tuple[str, int]]:
    topics, _ = read_topics(store)
    for topic in topics:
        if not topic.is_batch:
            for queue_id in range(max(topic.read_queue_count or 0, topic.write_queue_count or 0)):
                yield topic.name, queue_id


def _commits(piece: StorePiece, reading: ConfigReading) -> Iterator[Row]:
    commits = sorted(
        (
            commit
            for commit in read_commits(piece.store)
            if reading.is_wanted(commit.topic, commit.queue_id)
        ),
        key=attrgetter("topic", "queue_id", "group"),
    )
    wanted = {(commit.topic, commit.queue_id) for commit in commits}
    queues = {
        (queue.topic, queue.queue_id): queue
        for queue in queue_files(piece.store, lambda *name: name in wanted)
    }
    read_at_ms = reading.clock.now_ms()
    log = reading.log(piece.store)
    bounds = reading.bounds(piece.store)
    for name, of_queue in groupby(commits, attrgetter("topic", "queue_id")):
        queue = queues.get(name)
        ends = bounds.of(name, queue)
        for commit in of_queue:
            first_unread_ms = None
            if ends is not None and commit.offset < ends.max_offset:
                first = max(commit.offset, ends.min_offset)
                position = bounds.position_of(name, queue, first)
                first_unread_ms = None if position is None else log.store_ms(position)
            yield _commit_row(commit, first_unread_ms, read_at_ms)


def _commit_row(commit: Commit, first_unread_ms: int | None, read_at_ms: int) -> Row:
    return {
        "group": commit.group,
        "topic": commit.topic,
        "queue_id": commit.queue_id,
        "offset": commit.offset,
        "lease_epoch": commit.lease_epoch,
        "committed_at_ms": commit.committed_at_ms,
        "client_id": commit.client_id,
        "is_reset": commit.is_reset,
        "first_unread_ms": first_unread_ms,
        "read_at_ms": read_at_ms,
    }


def _epochs(piece: StorePiece, reading: ConfigReading) -> Iterator[Row]:
    for epoch, start_offset in read_epochs(piece.store):
        yield {"epoch": epoch, "start_offset": start_offset}


def _segments(piece: StorePiece, reading: ConfigReading) -> Iterator[Row]:
    log = reading.log(piece.store)
    for segment in log.files:
        yield {
            "position": segment.base,
            "size": min(segment.end, log.end) - segment.base,
            "first_store_ms": log.first_store_ms(segment),
        }


_ROWS: Final[Mapping[str, Callable[[StorePiece, ConfigReading], Iterator[Row]]]] = {
    "brokers": _brokers,
    "topics": _topics,
    "queues": _queues,
    "commits": _commits,
    "epochs": _epochs,
    "segments": _segments,
}
CONFIG_TABLES: Final = tuple(_ROWS)
