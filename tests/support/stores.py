"""Small stores for tests: make batches, read back, check that a store agrees with itself."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from aerobee.runtime.clock import Clock, ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk, RealDisk
from aerobee.store.engine.index.key_search import TIMESTAMP_MAX
from aerobee.store.engine.index.message_query import MessageQuery, QueryWanted
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.queues.reading import Filter, GetStatus, Located
from aerobee.store.engine.queues.time_search import Boundary
from aerobee.store.engine.read_work import ReadWork
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.consume_queue_entry import unpack_entries
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, Record, encode_record, iterate_records
from aerobee.store.format.tags import TagsCodes
from aerobee.store.format.topic_end import JOURNAL_TOPIC, topic_end_properties

BORN_HOST = HostAddress.parse("127.0.0.1:50000")

SMALL = StoreConfig(
    segment_bytes=4096,
    consume_queue_entries_per_file=10,
    index_slots_max=100,
    index_entries_max=50,
    disk_free_bytes_min=0,
    # Tests must not depend on how full this machine's disk is.
    retention=RetentionConfig(enabled=False),
)


def batch_of(
    topic: str,
    *bodies: bytes,
    tag: str = "",
    sys_flag: int = 0,
    properties: dict[str, str] | None = None,
) -> CheckedBatch:
    """A checked batch as passed in by the send path."""
    encoded = encode_properties({**({"TAGS": tag} if tag else {}), **(properties or {})})
    return batch_with(topic, [encoded] * len(bodies), bodies, sys_flag=sys_flag)


def batch_with(
    topic: str,
    properties: Sequence[bytes],
    bodies: Sequence[bytes] | None = None,
    *,
    sys_flag: int = 0,
) -> CheckedBatch:
    """The same with properties for each record, as bytes."""
    records = [
        encode_record(
            topic=topic.encode(),
            body=b"body" if bodies is None else bodies[index],
            properties=encoded,
            sys_flag=sys_flag,
            born_timestamp_ms=1,
            born_host=BORN_HOST,
        )
        for index, encoded in enumerate(properties)
    ]
    return check_batch(
        b"".join(records),
        [len(record) for record in records],
        topic=topic,
        limits=BatchLimits(),
        store_host_ipv6=False,
        tags=TagsCodes(),
    )


def open_store(
    root: Path | Disk,
    config: StoreConfig = SMALL,
    clock: Clock | None = None,
    *,
    read_only: bool = False,
) -> MessageStore:
    disk = RealDisk(root) if isinstance(root, Path) else root
    return MessageStore.open(disk, clock or ManualClock(), config, read_only=read_only)


def append(
    store: MessageStore, topic: str, queue_id: int, *bodies: bytes, tag: str = ""
) -> Appended:
    """Append one batch and let consumers see it at once."""
    appended = store.append(batch_of(topic, *bodies, tag=tag), queue_id=queue_id)
    store.confirm(store.appended_end)
    return appended


def topic_end_batch(topic: str) -> CheckedBatch:
    """The record that ends a topic."""
    return batch_with(JOURNAL_TOPIC, [topic_end_properties(topic)])


def end_topic(store: MessageStore, topic: str) -> Appended:
    """Append a topic's end; consumers see it after a confirm."""
    return store.append(topic_end_batch(topic), queue_id=0, ends_topic=topic)


def ended_topic(record: Record) -> str:
    """The topic that the record ends; empty: none."""
    if record.topic != JOURNAL_TOPIC:
        return ""
    return record.properties.get("AEROBEE_ENDED_TOPIC", "")


def flush(store: MessageStore, *, checkpoint: bool = True) -> None:
    """What the flush threads do, synchronously."""
    work = store.ledger.take_flush()
    if work is not None:
        work.run()
        store.ledger.finish_flush(work)
        if work.checkpoint is not None:
            assert checkpoint, "a checkpoint came along"
            work.checkpoint.run()
            store.ledger.finish_checkpoint(work.checkpoint)


def crashed_copy(root: Path, target: Path) -> Path:
    """What the next process finds after kill -9: every byte written, nothing closed."""
    shutil.copytree(root, target)
    return target


def locate(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int,
    *,
    max_messages: int = 32,
    max_bytes: int = 65_536,
    filter: Filter | None = None,
) -> Located:
    """How a read at an offset ends, and where its messages are; waits for the disk."""
    wanted = QueueRead(topic, queue_id, offset, max_bytes, max_messages, filter)
    found = store.reads.read(wanted)
    if isinstance(found, ReadWork):
        found.run()
        found = store.reads.finish(wanted, found)
    return found.located


def search_by_time(
    store: MessageStore,
    topic: str,
    queue_id: int,
    timestamp_ms: int,
    boundary: Boundary = Boundary.LOWER,
) -> int:
    """The offset found by a search by store time."""
    search = store.reads.plan_time_search(topic, queue_id)
    assert search is not None
    return search.run(timestamp_ms, boundary)


def find_by_key(
    store: MessageStore, topic: str, key: str, begin_ms: int = 0, end_ms: int = TIMESTAMP_MAX
) -> list[bytes]:
    """The records with a key, newest first."""
    wanted = QueryWanted(topic, key, begin_ms, end_ms)
    return list(MessageQuery(store.index, store.log, wanted).records())


def read_queue(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """All bodies from minimum to maximum, read as a consumer does; offsets are checked."""
    bounds = store.queues.bounds(topic, queue_id)
    offset = bounds.min_offset
    bodies: list[bytes] = []
    while offset < bounds.max_offset:
        located = locate(store, topic, queue_id, offset, max_messages=7, max_bytes=2000)
        assert located.status is GetStatus.FOUND
        data = store.log.read(located.runs)
        for record in iterate_records(data):
            assert (record.topic, record.queue_id, record.queue_offset) == (topic, queue_id, offset)
            record.check()
            bodies.append(record.body)
            offset += 1
        assert offset == located.next_offset
    return bodies


def log_records(store: MessageStore) -> list[Record]:
    """Every record of the log, found without derived files."""
    found: list[Record] = []
    for segment in store.log.segments():
        at = segment.base
        end = segment.base + segment.wrote_position
        while at < end:
            size = int.from_bytes(store.log.record_at(at, 4), "big")
            if store.log.record_at(at + 4, 4) == bytes.fromhex("cbd43194"):
                break
            record = Record(store.log.record_at(at, size), 0, size)
            record.check()
            assert record.physical_offset == at
            found.append(record)
            at += size
    return found


def _is_empty(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Whether retention has removed all messages of the queue."""
    bounds = store.queues.bounds(topic, queue_id)
    return bounds.min_offset == bounds.max_offset


def check_agreement(store: MessageStore) -> None:
    """The queues have exactly the log's records, in order, each at its own offset; for a topic that
    ended, those of its last life."""
    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for record in log_records(store):
        ended = ended_topic(record)
        expected = {name: entries for name, entries in expected.items() if name[0] != ended}
        if record.sys_flag & 0xC not in (0x4, 0xC):
            expected.setdefault((record.topic, record.queue_id), []).append(
                (record.queue_offset, record.physical_offset, record.size)
            )
    names = [name for name in store.queues.names() if not _is_empty(store, *name)]
    assert names == sorted(expected)
    for (topic, queue_id), entries in expected.items():
        bounds = store.queues.bounds(topic, queue_id)
        count = bounds.max_offset - bounds.min_offset
        positions, sizes, _ = unpack_entries(
            store.queues.read_entries(topic, queue_id, bounds.min_offset, count)
        )
        offsets = range(bounds.min_offset, bounds.max_offset)
        assert list(zip(offsets, positions.tolist(), sizes.tolist(), strict=True)) == entries
    assert store.dispatched_end == store.appended_end
