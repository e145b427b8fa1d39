"""A store with very many queues: its start time, memory, and checkpoints.

Each step runs in its own process, so that memory and caches of one do not favour the next. Only the
store is measured: no cluster, no network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aerobee.bench.measure import Stopwatch
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import TagsCodes

QUEUES_PER_TOPIC = 8
MESSAGES_PER_QUEUE = 3
FEW_QUEUES = 100
HOST = HostAddress.parse("127.0.0.1:10911")
CONFIG = StoreConfig(disk_free_bytes_min=0, unflushed_bytes_max=1 << 40, warm_up_segments=False)


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a process with the store; memory is resident, of the whole process."""

    open_s: float
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class CheckpointCost:
    """`taken_s` is the loop's share, `written_s` the thread's, for `queues` queues."""

    queues: int
    taken_s: float
    written_s: float
    finished_s: float


@dataclass(frozen=True, slots=True)
class ManyQueues:
    """Measurements with `queues` queues of a few messages each."""

    queues: int
    clean: Start
    crashed: Start
    crashed_all: Start
    all_new: CheckpointCost
    all_queues: CheckpointCost
    few_queues: CheckpointCost


def measure_many_queues(topics: int) -> ManyQueues:
    """Build, stop, start, crash, start. Blocks for about a minute with 10,000 topics."""
    queues = topics * QUEUES_PER_TOPIC
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-queues-") as root:
        (all_new,) = _run("build", root, topics)
        clean = _start_in_process(root, topics)
        all_queues, few_queues = _run("checkpoints", root, topics)
        _run("crash_few", root, topics)
        crashed = _start_in_process(root, topics)
        _run("crash_all", root, topics)
        crashed_all = _start_in_process(root, topics)
    return ManyQueues(
        queues,
        clean,
        crashed,
        crashed_all,
        CheckpointCost(**all_new),
        CheckpointCost(**all_queues),
        CheckpointCost(**few_queues),
    )


@dataclass(frozen=True, slots=True)
class Starts:
    """A store that was built and started once."""

    all_new: CheckpointCost
    clean: Start


def measure_starts(topics: int) -> Starts:
    """Build, stop, start. Blocks."""
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-queues-") as root:
        (all_new,) = _run("build", root, topics)
        return Starts(CheckpointCost(**all_new), _start_in_process(root, topics))


def _start_in_process(root: str, topics: int) -> Start:
    (figures,) = _run("start", root, topics)
    return Start(**figures)


def _run(step: str, root: str, topics: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "aerobee.bench.many_queues", step, root, str(topics)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures: list[dict[str, Any]] = json.loads(output)
    return figures


# ---------------------------------------------------------------------------------- the steps


def _open(root: Path) -> MessageStore:
    return MessageStore.open(RealDisk(root), SystemClock(), CONFIG)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _append(store: MessageStore, topics: int, count: int) -> int:
    """Append `count` messages to each of the topics' queues; returns the number of queues."""
    tags = TagsCodes()
    limits = BatchLimits()
    for number in range(topics):
        topic = f"many-queues-{number:05d}"
        records, sizes = encode_batch(
            topic=topic.encode(),
            bodies=[b"a few bytes"] * count,
            properties=[b""] * count,
            born_timestamp_ms=1,
            born_host=HOST,
        )
        for queue_id in range(QUEUES_PER_TOPIC):
            batch = check_batch(
                records, sizes, topic=topic, limits=limits, store_host_ipv6=False, tags=tags
            )
            store.append(batch, queue_id=queue_id)
    store.confirm(store.appended_end)
    return topics * QUEUES_PER_TOPIC


def _checkpoint(store: MessageStore, queues: int) -> CheckpointCost:
    """Waits until the next checkpoint is due, and runs it."""
    _flush_log(store)
    while not store.ledger.checkpoint_due:
        time.sleep(0.05)
    watch = Stopwatch()
    work = store.ledger.take_flush()
    taken_s = watch.elapsed_s()
    assert work is not None
    assert work.checkpoint is not None
    work.run()
    store.ledger.finish_flush(work)
    watch = Stopwatch()
    work.checkpoint.run()
    written_s = watch.elapsed_s()
    watch = Stopwatch()
    store.ledger.finish_checkpoint(work.checkpoint)
    return CheckpointCost(queues, taken_s, written_s, watch.elapsed_s())


def _flush_log(store: MessageStore) -> None:
    if store.ledger.checkpoint_due:
        return
    work = store.ledger.take_flush()
    if work is not None:
        work.run()
        store.ledger.finish_flush(work)


def _build(root: Path, topics: int) -> list[CheckpointCost]:
    store = _open(root)
    cost = _checkpoint(store, _append(store, topics, MESSAGES_PER_QUEUE))
    store.close()
    return [cost]


def _start(root: Path) -> list[Start]:
    before = _resident_bytes()
    watch = Stopwatch()
    store = _open(root)
    start = Start(watch.elapsed_s(), before, _resident_bytes())
    store.close()
    return [start]


def _checkpoints(root: Path, topics: int) -> list[CheckpointCost]:
    store = _open(root)
    few = min(topics, FEW_QUEUES // QUEUES_PER_TOPIC)
    costs = [
        _checkpoint(store, _append(store, topics, 1)),
        _checkpoint(store, _append(store, few, 1)),
    ]
    store.close()
    return costs


def _crash(root: Path, topics: int) -> None:
    store = _open(root)
    _append(store, topics, 1)
    _flush_log(store)
    print("[]", flush=True)
    os._exit(0)


def _main(step: str, root: Path, topics: int) -> None:
    figures: list[CheckpointCost] | list[Start] = []
    if step == "build":
        figures = _build(root, topics)
    elif step == "start":
        figures = _start(root)
    elif step == "checkpoints":
        figures = _checkpoints(root, topics)
    else:
        _crash(root, topics if step == "crash_all" else min(topics, FEW_QUEUES // QUEUES_PER_TOPIC))
    print(json.dumps([asdict(figure) for figure in figures]))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
