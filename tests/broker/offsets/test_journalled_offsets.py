"""Committed offsets of a whole broker over real gRPC: what the journal in its log keeps, what an
acknowledged commit means, and what is answered when there can be none.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.broker.cluster.topic_directives import apply_topics
from aerobee.broker.offsets.entries import JOURNAL_TOPIC, OffsetEntry, decode_body
from aerobee.broker.offsets.merge import ChangeKind
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.tables.config_tables import (
    TOPICS_PATH,
    ConsumerOffsetTable,
    TopicConfig,
    TopicTable,
)
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.offsets.test_offsets import commit, committed, reset
from tests.broker.retention.test_cleaning import STORE, expire, fill
from tests.broker.sending.test_sync_flush import GatedDisk
from tests.support.fault_disk import FaultDisk
from tests.support.retention import roomy_disk
from tests.support.waiting import until

TOPIC = TopicConfig(name="t", read_queue_count=4, write_queue_count=4)
SEGMENT = StoreConfig(
    segment_bytes=1 << 20, disk_free_bytes_min=0, retention=RetentionConfig(enabled=False)
)


async def journal(broker: Any) -> list[Any]:
    """Every entry of the journal, as any reader can have it."""
    result = await broker.pull.Pull(
        broker_pb2.PullRequest(topic=JOURNAL_TOPIC, queue_id=0, max_bytes=4 << 20)
    )
    return [
        entry
        for record in iterate_records(result.records)
        for entry in decode_body(bytes(record.body))
    ]


def without_snapshot(root: Path, copy: Path) -> Path:
    """The folder as a killed broker leaves it, without its tables of offsets and leases."""
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("lock", "*.tmp"))
    for name in ("consumerOffset.json", "queueLeases.json"):
        for path in (copy / "config").glob(f"{name}*"):
            path.unlink()
    return copy


async def test_the_log_alone_knows_every_offset(start_broker: Any, tmp_path: Path) -> None:
    broker = await start_broker(snapshot_interval_ms=3_600_000)
    for queue_id in range(3):
        await broker.send_bodies("t", queue_id, *[b"x"] * 5)
    assert await commit(broker, ("t", 0, 4, 0), ("t", 1, 2, 0), ("t", 2, 1, 0)) == [1, 1, 1]
    await reset(broker, ("t", 0, 1))
    assert await commit(broker, ("t", 0, 2, 0)) == [common_pb2.OK]
    assert not (tmp_path / "store/config/consumerOffset.json").exists()
    copy = without_snapshot(tmp_path / "store", tmp_path / "copy")
    again = await start_broker(root=copy)
    assert await committed(again) == await committed(broker)
    assert await committed(again, 0, 1) == {0: (common_pb2.OK, 2), 1: (common_pb2.OK, 2)}


async def test_the_journal_tells_who_committed_what(broker: Any) -> None:
    await broker.send_bodies("t", 0, *[b"x"] * 5)
    await commit(broker, ("t", 0, 4, 0))
    await commit(broker, ("t", 0, 4, 0))
    await reset(broker, ("t", 0, 0))
    entries = [entry for entry in await journal(broker) if isinstance(entry, OffsetEntry)]
    assert [(entry.key, entry.change[:2], entry.client_id) for entry in entries] == [
        (("g", "t", 0), (ChangeKind.COMMIT, 4), "c"),
        (("g", "t", 0), (ChangeKind.RESET, 0), ""),
    ]


async def test_a_lower_commit_is_acknowledged_and_changes_nothing(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that has gone back commits lower offsets until it has come to where it was."""
    await broker.send_bodies("t", 0, *[b"x"] * 5)
    await commit(broker, ("t", 0, 4, 0))
    with caplog.at_level(logging.INFO):
        for offset in (1, 2, 3, 4):
            assert await commit(broker, ("t", 0, offset, 0)) == [common_pb2.OK]
            assert await committed(broker, 0) == {0: (common_pb2.OK, 4)}
    lines = [record for record in caplog.records if "below the committed" in record.message]
    assert len(lines) == 1
    assert await commit(broker, ("t", 0, 5, 0)) == [common_pb2.OK]
    assert await committed(broker, 0) == {0: (common_pb2.OK, 5)}


async def test_clients_neither_write_the_journal_nor_does_a_nameserver_take_it_away(
    broker: Any, make_batch: Any, tmp_path: Path
) -> None:
    await broker.send_bodies("t", 0, b"x")
    await commit(broker, ("t", 0, 1, 0))
    frame = broker_pb2.SendFrame(batches=[make_batch(JOURNAL_TOPIC, 0, b"[]")])
    (ack,) = await broker.exchange(frame)
    assert ack.code == common_pb2.NOT_WRITABLE_TOPIC
    await broker.stop()
    table = TopicTable.load(RealDisk(tmp_path / "store").read_file(TOPICS_PATH))
    assert apply_topics(table, [], metadata_revision=9, is_complete=True) == []
    config = table.get(JOURNAL_TOPIC)
    assert config is not None
    assert (config.read_queue_count, config.perm, config.revision) == (1, 4, 0)


# ------------------------------------------------------------------------------ what is promised


async def test_what_the_disk_does_not_confirm_in_time_is_neither_acknowledged_nor_told(
    start_broker: Any, sync_flush: StoreConfig, tmp_path: Path
) -> None:
    disk = GatedDisk(tmp_path / "store")
    broker = await start_broker(disk=disk, store=sync_flush)
    await broker.send_bodies("t", 0, *[b"x"] * 5)
    await commit(broker, ("t", 0, 1, 0))
    disk.gate.clear()
    request = broker_pb2.CommitOffsetsRequest(
        group="g",
        client_id="c",
        offsets=[
            broker_pb2.QueueOffset(topic="t", queue_id=0, offset=3),
            broker_pb2.QueueOffset(topic="t", queue_id=1, offset=9),
        ],
    )
    response = await broker.offsets.CommitOffsets(request, timeout=1)
    assert [result.code for result in response.results] == [
        common_pb2.DEADLINE_EXCEEDED,
        common_pb2.INVALID_ARGUMENT,
    ]
    assert await committed(broker, 0) == {0: (common_pb2.OK, 1)}
    again = asyncio.ensure_future(commit(broker, ("t", 0, 3, 0)))
    await asyncio.sleep(0.1)
    assert not again.done(), "what waits already is not acknowledged by asking again"
    disk.gate.set()
    assert await again == [common_pb2.OK]
    assert await committed(broker, 0) == {0: (common_pb2.OK, 3)}


async def test_many_commits_at_once_take_few_syncs(
    start_broker: Any, sync_flush: StoreConfig, tmp_path: Path
) -> None:
    disk = GatedDisk(tmp_path / "store")
    broker = await start_broker(disk=disk, store=sync_flush)
    for queue_id in range(4):
        await broker.send_bodies("t", queue_id, *[b"x"] * 50)
    before = disk.syncs_begun
    # While the disk is busy with the first, the others gather behind it, however slow all is.
    disk.gate.clear()
    commits = asyncio.gather(
        *(commit(broker, ("t", number % 4, number // 4 + 1, 0)) for number in range(200))
    )
    await asyncio.sleep(1)
    disk.gate.set()
    assert await commits == [[common_pb2.OK]] * 200
    assert disk.syncs_begun - before < 100
    assert await committed(broker) == dict.fromkeys(range(4), (common_pb2.OK, 50))


async def test_a_disk_too_full_for_messages_takes_commits_and_resets(
    start_broker: Any, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    disk = FaultDisk(tmp_path / "store")
    config = replace(SEGMENT, disk_free_bytes_min=1_000)
    topics = {"t": TOPIC}
    broker = await start_broker(disk=disk, store=config, topics=topics)
    ack = await broker.send_bodies("t", 0, *[b"x"] * 5)
    disk.free = 10

    async def refused() -> bool:
        nonlocal ack
        ack = await broker.send_bodies("t", 0, b"x")
        return bool(ack.code == common_pb2.NOT_WRITABLE)

    await until(refused, "sends are refused")
    assert await commit(broker, ("t", 0, 4, 0)) == [common_pb2.OK]
    await reset(broker, ("t", 0, 2))
    assert await committed(broker, 0) == {0: (common_pb2.OK, 2)}


async def test_a_log_without_any_room_refuses_commits_with_what_to_do(
    start_broker: Any, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    disk = FaultDisk(tmp_path / "store")
    config = replace(SEGMENT, segment_bytes=2_048)
    broker = await start_broker(disk=disk, store=config, topics={"t": TOPIC})
    await broker.send_bodies("t", 0, *[b"x"] * 3)
    assert await commit(broker, ("t", 0, 1, 0)) == [common_pb2.OK]
    disk.allocate_error = OSError(28, "No space left on device")
    codes: list[int] = []
    for number in range(40):
        response = await broker.offsets.CommitOffsets(
            broker_pb2.CommitOffsetsRequest(
                group=f"g-{number}",
                client_id="c",
                offsets=[broker_pb2.QueueOffset(topic="t", queue_id=0, offset=1)],
            )
        )
        codes.append(response.results[0].code)
        if codes[-1] == common_pb2.NOT_WRITABLE:
            assert "free space" in response.results[0].message
    assert codes[-1] == common_pb2.NOT_WRITABLE
    disk.allocate_error = None

    async def taken() -> bool:
        return await commit(broker, ("t", 0, 2, 0)) == [common_pb2.OK]

    await until(taken, "commits are taken again")


# ------------------------------------------------------------------------------ retention


async def test_the_log_that_is_left_still_knows_offsets_that_were_committed_long_ago(
    start_broker: Any, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    topics = {name: replace(TOPIC, name=name) for name in ("t", "u")}
    broker = await start_broker(store=STORE, disk=roomy_disk(root), topics=topics)
    await fill(broker, 3)
    end = (await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0))).max_offset
    assert await commit(broker, ("t", 0, end, 0)) == [common_pb2.OK]
    await fill(broker, 20, topic="u")
    expire(root)
    response = await broker.admin.CleanStore(broker_pb2.CleanStoreRequest(), timeout=10)
    assert response.removed_segments > 0, response
    assert (await broker.admin.GetStats(broker_pb2.GetStatsRequest())).log_min_offset > 0
    copy = without_snapshot(root, tmp_path / "copy")
    again = await start_broker(root=copy, store=STORE)
    assert await committed(again, 0) == {0: (common_pb2.OK, end)}


async def test_a_snapshot_says_how_far_the_journal_is_in_it(
    start_broker: Any, tmp_path: Path
) -> None:
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"x")
    for group in ("a", "b"):
        await broker.offsets.CommitOffsets(
            broker_pb2.CommitOffsetsRequest(
                group=group, offsets=[broker_pb2.QueueOffset(topic="t", queue_id=0, offset=1)]
            )
        )
    await broker.stop()
    path = tmp_path / "store/config/consumerOffset.json"
    document = json.loads(path.read_bytes())
    assert document["offsetTable"] == {"t@a": {"0": 1}, "t@b": {"0": 1}}
    assert document["aerobeeJournal"]["nextOffset"] == 2
    mark = ConsumerOffsetTable.load(path.read_bytes()).mark
    assert mark is not None
    assert (mark.next_offset, mark.is_whole) == (2, True)


async def test_a_client_that_goes_away_does_not_take_its_commit_with_it(
    start_broker: Any, sync_flush: StoreConfig, tmp_path: Path
) -> None:
    disk = GatedDisk(tmp_path / "store")
    broker = await start_broker(disk=disk, store=sync_flush)
    await broker.send_bodies("t", 0, b"x")
    disk.gate.clear()
    call = broker.offsets.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(
            group="g", offsets=[broker_pb2.QueueOffset(topic="t", queue_id=0, offset=1)]
        )
    )
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
        await call
    disk.gate.set()

    async def counts() -> bool:
        return await committed(broker, 0) == {0: (common_pb2.OK, 1)}

    await until(counts, "the commit counts")
