"""The storage engine alone: a log that was never closed, and how fast it is recovered."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from aerobee.bench.measure import Stopwatch, Throughput
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import Busy
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import TagsCodes

BATCH_MESSAGES = 500
QUEUES = 4
HOST = HostAddress.parse("127.0.0.1:10911")


@dataclass(frozen=True, slots=True)
class Recovery:
    """Starts of one store. `crashed`: killed right after a checkpoint; `lost`: checkpoint, queues
    and index are gone too, as after a crash at the worst time. Bytes are those of the whole log."""

    clean_start_s: float
    crashed: Throughput
    lost: Throughput


def measure_recovery(*, body_bytes: int, total_bytes: int) -> Recovery:
    """Write a log, and start the store in the states of `Recovery`. After a crash every walked
    record is read and its CRC checked; what was lost is rewritten."""
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-store-") as name:
        root = Path(name) / "store"
        config = replace(StoreConfig(), disk_free_bytes_min=0, unflushed_bytes_max=1 << 40)
        messages = fill_store(root, config, body_bytes=body_bytes, total_bytes=total_bytes)
        clean = _start(root, config, messages)
        (root / "abort").touch()
        crashed = _start(root, config, messages)
        (root / "checkpoint").unlink()
        for derived in ("consumequeue", "index"):
            shutil.rmtree(root / derived, ignore_errors=True)
        (root / "abort").touch()
        lost = _start(root, config, messages)
    return Recovery(clean.elapsed_s, crashed, lost)


def _start(root: Path, config: StoreConfig, messages: int) -> Throughput:
    watch = Stopwatch()
    store = MessageStore.open(RealDisk(root), SystemClock(), config)
    elapsed_s = watch.elapsed_s()
    size = store.appended_end - store.min_offset
    store.close()
    return Throughput(messages=messages, bytes=size, elapsed_s=elapsed_s)


def _write_out(store: MessageStore) -> None:
    """As a broker's flush thread does: entries of queues leave the memory."""
    work = store.ledger.take_flush()
    if work is not None:
        work.run()
        store.ledger.finish_flush(work)
        if work.checkpoint is not None:
            work.checkpoint.run()
            store.ledger.finish_checkpoint(work.checkpoint)


def fill_store(root: Path, config: StoreConfig, *, body_bytes: int, total_bytes: int) -> int:
    """Append until `total_bytes` are stored; returns the number of messages."""
    store = MessageStore.open(RealDisk(root), SystemClock(), config)
    tags = TagsCodes()
    limits = BatchLimits()
    properties = encode_properties({"UNIQ_KEY": "0" * 32, "TAGS": "TagA"})
    records, sizes = encode_batch(
        topic=b"bench",
        bodies=[b"x" * body_bytes] * BATCH_MESSAGES,
        properties=[properties] * BATCH_MESSAGES,
        born_timestamp_ms=1,
        born_host=HOST,
    )
    messages = 0
    while store.appended_end < total_bytes:
        batch = check_batch(
            records, sizes, topic="bench", limits=limits, store_host_ipv6=False, tags=tags
        )
        try:
            appended = store.append(batch, queue_id=messages // BATCH_MESSAGES % QUEUES)
        except Busy:
            _write_out(store)
            continue
        store.confirm(appended.end)
        messages += BATCH_MESSAGES
    store.close()
    return messages
