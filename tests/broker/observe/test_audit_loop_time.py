"""An audit of a broker with very many commits leaves the loop to everybody else."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    ConsumerOffsetTable,
    TopicConfig,
)
from aerobee.store.engine.tables.last_changes import LastChange
from aerobee.v1 import audit_pb2, audit_pb2_grpc
from tests.broker.conftest import StartBroker

pytestmark = pytest.mark.slow

TOPICS, QUEUES, GROUPS = 2_000, 8, 5
STEP_S = 0.02
"""What a reading may take at once of the loop, most of the time; this machine has other work."""


def write_offsets(root: Path) -> None:
    """A broker's file with a commit of every group on every queue."""
    table = ConsumerOffsetTable()
    for group in range(GROUPS):
        for topic in range(TOPICS):
            for queue_id in range(QUEUES):
                name = f"group-{group}", f"topic-{topic}", queue_id
                table.put(*name, 0, 5)
                table.note_change(*name, LastChange(1_700_000_000_000, f"client-{group}"))
    root.mkdir(parents=True)
    replace_atomically(RealDisk(root), CONSUMER_OFFSETS_PATH, table.snapshot_bytes(1))


async def test_80_000_commits_are_read_in_steps_of_milliseconds(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_offsets(tmp_path / "many")
    topics = {
        f"topic-{number}": TopicConfig(
            name=f"topic-{number}", read_queue_count=QUEUES, write_queue_count=QUEUES
        )
        for number in range(TOPICS)
    }
    broker = await start_broker(root=tmp_path / "many", topics=topics)
    late_s: list[float] = []
    done = asyncio.Event()

    async def watch_loop() -> None:
        while not done.is_set():
            # Of this thread alone: other processes on the machine do not count.
            before_s = time.thread_time()
            await asyncio.sleep(0)
            late_s.append(time.thread_time() - before_s)

    watching = asyncio.create_task(watch_loop())
    stub = audit_pb2_grpc.AuditServiceStub(broker.channel)
    rows = 0
    async for part in stub.Snapshot(audit_pb2.SnapshotRequest(with_matching_unread=True)):
        rows += len(part.commits.queue_ids)
    done.set()
    await watching
    assert rows == TOPICS * QUEUES * GROUPS
    late_s.sort()
    # The client is in this loop, too, and takes its messages apart here.
    assert late_s[len(late_s) * 99 // 100] < STEP_S, late_s[-10:]
