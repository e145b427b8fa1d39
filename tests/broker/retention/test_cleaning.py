"""Retention as a broker's users meet it: over real gRPC, on real files, with a disk made full."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.runtime.errors import StoreFailed
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import CONSUMER_OFFSETS_PATH, TopicConfig
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.fault_disk import FaultDisk
from tests.support.retention import RESERVED_MS, roomy_disk, write_times
from tests.support.waiting import until

ALWAYS = ";".join(map(str, range(24)))
NEVER_BY_TIME = RetentionConfig(first_clean_ms=3_600_000, delete_pause_ms=0)
STORE = StoreConfig(
    segment_bytes=4096,
    consume_queue_entries_per_file=10,
    disk_free_bytes_min=0,
    checkpoint_interval_ms=50,
    flush_interval_ms=20,
    retention=NEVER_BY_TIME,
)
BODY = b"x" * 600


def store_config(**retention: Any) -> StoreConfig:
    return replace(STORE, retention=replace(NEVER_BY_TIME, **retention))


async def fill(broker: Any, messages: int, *, topic: str = "t") -> None:
    """Five or so fill a segment; returns once all is where a removal wants it: the log on the disk,
    and its places in the files of their queue."""
    for _ in range(messages):
        ack = await broker.send_bodies(topic, 0, BODY)
        assert ack.code == common_pb2.OK, ack
    await until(lambda: broker.store.ledger.is_settled, "everything in its files")


def expire(root: Path) -> None:
    write_times(root, int(time.time() * 1_000) - RESERVED_MS - 1_000)


async def commit(broker: Any, group: str, topic: str, queue_id: int, offset: int) -> None:
    response = await broker.offsets.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(
            group=group,
            client_id="c",
            offsets=[broker_pb2.QueueOffset(topic=topic, queue_id=queue_id, offset=offset)],
        )
    )
    assert response.results[0].code == common_pb2.OK, response


async def join(broker: Any, group: str, *, broadcasting: bool = False) -> Any:
    call = broker.groups.Membership()
    await call.write(
        broker_pb2.MemberEvent(
            join=broker_pb2.Join(
                group=group,
                client_id="c",
                instance="1",
                subscriptions=[broker_pb2.Subscription(topic="t")],
                session_timeout_ms=60_000,
                broadcasting=broadcasting,
            )
        )
    )
    assert (await call.read()).WhichOneof("event") == "joined"
    return call


async def clean(broker: Any, **options: bool) -> Any:
    return await broker.admin.CleanStore(broker_pb2.CleanStoreRequest(**options))


async def stats(broker: Any) -> Any:
    return await broker.admin.GetStats(broker_pb2.GetStatsRequest())


async def pull(broker: Any, offset: int) -> Any:
    return await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0, offset=offset))


async def minimum(broker: Any) -> int:
    response = await broker.offsets.QueryBounds(
        broker_pb2.QueryBoundsRequest(queues=[broker_pb2.TopicQueue(topic="t", queue_id=0)])
    )
    return int(response.bounds[0].min_offset)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


async def test_a_command_removes_expired_segments_whatever_the_hour(
    start_broker: Any, root: Path
) -> None:
    broker = await start_broker(store=STORE, disk=roomy_disk(root))
    await fill(broker, 23)
    none = await clean(broker)
    assert (none.removed_segments, none.kept_because) == (0, "")
    expire(root)
    done = await clean(broker)
    assert done.removed_segments == 4
    assert done.removed_bytes == 4 * 4096
    assert done.log_min_offset == 4 * 4096
    assert len(os.listdir(root / "commitlog")) == 1
    first = await minimum(broker)
    result = await pull(broker, 0)
    assert (result.code, result.next_offset) == (common_pb2.OFFSET_TOO_SMALL, first)
    found = await pull(broker, first)
    assert found.record_count == 23 - first
    now = await stats(broker)
    assert (now.removed_segments, now.removed_bytes) == (4, 4 * 4096)
    assert now.log_segments == 1
    assert 0 < now.disk_free_bytes <= now.disk_total_bytes


async def test_expired_segments_go_by_themselves_at_their_hour(
    start_broker: Any, root: Path
) -> None:
    config = store_config(first_clean_ms=0, clean_interval_ms=50, delete_when=ALWAYS)
    broker = await start_broker(store=config, disk=roomy_disk(root))
    await fill(broker, 23)
    assert (await stats(broker)).removed_segments == 0
    expire(root)

    async def removed() -> bool:
        return bool((await stats(broker)).removed_segments == 4)

    await until(removed, "all expired segments are gone")


async def test_what_a_group_has_not_read_stays_until_it_has(start_broker: Any, root: Path) -> None:
    broker = await start_broker(store=STORE, disk=roomy_disk(root))
    await fill(broker, 23)
    await commit(broker, "billing", "t", 0, 3)
    expire(root)
    kept = await clean(broker)
    assert kept.removed_segments == 0
    for word in ("billing", "topic t", "queue 0", "offset 3"):
        assert word in kept.kept_because
    await commit(broker, "billing", "t", 0, 12)
    assert (await clean(broker)).removed_segments == 2
    assert await minimum(broker) <= 12
    await commit(broker, "billing", "t", 0, 23)
    done = await clean(broker)
    assert (done.removed_segments, done.kept_because) == (2, "")
    assert (await stats(broker)).removed_unread_messages == 0


async def test_a_command_for_unread_messages_says_what_each_group_lost(
    start_broker: Any, root: Path
) -> None:
    broker = await start_broker(store=STORE, disk=roomy_disk(root))
    await fill(broker, 23)
    await commit(broker, "billing", "t", 0, 3)
    await commit(broker, "audit", "t", 0, 0)
    await commit(broker, "done", "t", 0, 23)
    expire(root)
    done = await clean(broker, unread=True)
    first = await minimum(broker)
    lost = [
        broker_pb2.UnreadRemoval(group="audit", topic="t", queue_id=0, messages=first),
        broker_pb2.UnreadRemoval(group="billing", topic="t", queue_id=0, messages=first - 3),
    ]
    assert list(done.removed_unread) == lost
    now = await stats(broker)
    assert list(now.removed_unread) == lost
    assert now.removed_unread_messages == 2 * first - 3


async def test_a_topics_ceiling_lets_unread_messages_go(start_broker: Any, root: Path) -> None:
    topics = {
        "t": TopicConfig(
            name="t",
            read_queue_count=1,
            write_queue_count=1,
            attributes={"keep_unread_max_bytes": "8192"},
        )
    }
    broker = await start_broker(store=STORE, topics=topics, disk=roomy_disk(root))
    await commit(broker, "billing", "t", 0, 0)
    await fill(broker, 23)
    expire(root)
    done = await clean(broker)
    end = (await stats(broker)).log_appended_end
    assert end - 8192 - 4096 < done.log_min_offset <= end - 8192 + 4096
    assert done.removed_unread[0].messages == await minimum(broker) > 0


async def test_a_live_group_that_never_committed_holds_everything_and_broadcasting_nothing(
    start_broker: Any, root: Path
) -> None:
    broker = await start_broker(store=STORE, disk=roomy_disk(root))
    listening = await join(broker, "radio", broadcasting=True)
    await fill(broker, 23)
    expire(root)
    member = await join(broker, "billing")
    kept = await clean(broker)
    assert kept.removed_segments == 0
    assert "billing" in kept.kept_because
    await member.write(broker_pb2.MemberEvent(leave=broker_pb2.Leave()))

    async def gone() -> bool:
        return bool((await stats(broker)).members == 1)

    await until(gone, "the member has left")
    assert (await clean(broker)).removed_segments == 4
    listening.cancel()


async def test_offsets_of_topics_that_are_gone_and_of_the_systems_hold_nothing(
    start_broker: Any, root: Path
) -> None:
    topics = {
        name: TopicConfig(name=name, read_queue_count=1, write_queue_count=1)
        for name in ("t", "gone", "BenchmarkTest")
    }
    broker = await start_broker(store=STORE, topics=topics, disk=roomy_disk(root))
    for name in ("gone", "BenchmarkTest"):
        await broker.send_bodies(name, 0, BODY)
    await fill(broker, 23)
    await broker.stop()
    table = ConsumerOffsetTable()
    for name in ("gone", "BenchmarkTest"):
        table.commit("billing", name, 0, 0)
    table.commit("TOOLS_CONSUMER", "t", 0, 0)
    replace_atomically(FaultDisk(root), CONSUMER_OFFSETS_PATH, table.snapshot_bytes(1))
    del topics["gone"]
    broker = await start_broker(store=STORE, topics=topics, disk=roomy_disk(root))
    expire(root)
    assert (await clean(broker)).removed_segments == 4


async def test_a_full_disk_refuses_sends_names_who_holds_it_and_resumes_once_they_have_read(
    start_broker: Any, root: Path
) -> None:
    disk = roomy_disk(root)
    config = store_config(first_clean_ms=0, clean_interval_ms=50)
    broker = await start_broker(store=config, disk=disk)
    await fill(broker, 23)
    await commit(broker, "billing", "t", 0, 3)
    disk.free, disk.total = 9, 100

    async def refused() -> bool:
        message = (await broker.send_bodies("t", 0, BODY)).message
        return "billing" in message

    await until(refused, "sends are refused")
    ack = await broker.send_bodies("t", 0, BODY)
    assert ack.code == common_pb2.NOT_WRITABLE
    for word in ("91.0 % full", "topic t", "queue 0", "offset 3", "clean --unread"):
        assert word in ack.message
    now = await stats(broker)
    assert not now.writable
    assert "billing" in now.not_writable_reason
    assert now.removed_segments == 0
    # Reading and committing go on; what was read is removed, which brings the space back.
    assert (await pull(broker, 3)).record_count > 0
    end = (await pull(broker, 3)).max_offset
    await commit(broker, "billing", "t", 0, end)

    async def removed() -> bool:
        return bool((await stats(broker)).removed_segments > 0)

    await until(removed, "what was read is removed")
    disk.free = 50

    async def taken() -> bool:
        return bool((await broker.send_bodies("t", 0, BODY)).code == common_pb2.OK)

    await until(taken, "sends are taken again")


async def test_a_command_that_is_given_up_leaves_everything_in_order(
    start_broker: Any, root: Path
) -> None:
    broker = await start_broker(store=store_config(delete_pause_ms=400), disk=roomy_disk(root))
    await fill(broker, 23)
    expire(root)
    with pytest.raises(grpc.aio.AioRpcError) as given_up:
        await broker.admin.CleanStore(broker_pb2.CleanStoreRequest(), timeout=0.2)
    assert given_up.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    before = (await stats(broker)).removed_segments
    assert 1 <= before < 4
    assert (await clean(broker)).removed_segments == 4 - before
    first = await minimum(broker)
    assert (await pull(broker, first)).record_count == 23 - first
    await broker.stop()
    broker = await start_broker(store=STORE, disk=roomy_disk(root))
    assert await minimum(broker) == first


async def test_a_reader_meanwhile_gets_every_message_that_is_still_there(
    start_broker: Any, root: Path
) -> None:
    """It begins at the oldest message and is overtaken by the removal, perhaps more than once."""
    config = store_config(first_clean_ms=0, clean_interval_ms=20, delete_when=ALWAYS)
    broker = await start_broker(store=config, disk=roomy_disk(root))
    await fill(broker, 60)
    end = (await pull(broker, 0)).max_offset
    seen: list[int] = []
    offset = 0
    expire(root)
    while offset < end:
        result = await broker.pull.Pull(
            broker_pb2.PullRequest(topic="t", queue_id=0, offset=offset, max_messages=1)
        )
        if result.code == common_pb2.OK:
            seen.append(offset)
        else:
            assert result.code in (common_pb2.OFFSET_TOO_SMALL, common_pb2.MESSAGE_REMOVED), result
        assert result.next_offset > offset
        offset = result.next_offset
    await clean(broker)  # a run under way has ended: the queue begins where the log does
    first = await minimum(broker)
    assert set(range(first, end)) <= set(seen)


class StuckDisk(FaultDisk):
    """Removing a log segment fails."""

    error: OSError | None = None

    def remove(self, path: str) -> None:
        if self.error is not None and path.startswith("commitlog/"):
            raise self.error
        super().remove(path)


async def test_a_segment_that_must_not_be_touched_stays_and_the_broker_goes_on(
    start_broker: Any, root: Path
) -> None:
    disk = StuckDisk(root)
    disk.free, disk.total = 50, 100
    broker = await start_broker(store=STORE, disk=disk)
    await fill(broker, 23)
    expire(root)
    disk.error = OSError(errno.EPERM, os.strerror(errno.EPERM))
    kept = await clean(broker)
    assert kept.removed_segments == 0
    assert "cannot be removed: Operation not permitted" in kept.kept_because
    assert (await pull(broker, 0)).record_count == 23
    disk.error = None
    assert (await clean(broker)).removed_segments == 4


class GuardedDisk(FaultDisk):
    """Queue files and index files must not be removed."""

    def remove(self, path: str) -> None:
        if path.startswith(("consumequeue/", "index/")):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        super().remove(path)


async def test_derived_files_that_must_not_be_touched_are_told_once_and_stop_nothing(
    start_broker: Any, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = GuardedDisk(root)
    disk.free, disk.total = 50, 100
    broker = await start_broker(store=STORE, disk=disk)
    for _ in range(2):
        await fill(broker, 23)
        expire(root)
        done = await clean(broker)
        assert done.removed_segments >= 4
        assert "cannot be removed: Operation not permitted" in done.kept_because
    told = [each for each in caplog.records if "cannot handle" in each.getMessage()]
    assert len(told) == 1
    assert (await pull(broker, await minimum(broker))).record_count > 0


def test_a_percentage_that_is_moved_is_told_as_a_risk(root: Path) -> None:
    """Which the broker's command logs at its start."""
    (risk,) = BrokerConfig(store_root=root, store=store_config(disk_refuse_percent=98)).risks()
    assert risk.keys == ("store.retention.disk_refuse_percent",)
    assert "90 is used" in risk.sentence


async def test_a_disk_that_fails_during_a_removal_ends_the_broker(
    start_broker: Any, root: Path
) -> None:
    disk = StuckDisk(root)
    disk.free, disk.total = 50, 100
    broker = await start_broker(store=STORE, disk=disk)
    await fill(broker, 23)
    expire(root)
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(grpc.aio.AioRpcError):
        await clean(broker)
    with pytest.raises(ExceptionGroup) as ended:
        await broker.task
    assert ended.group_contains(StoreFailed, match="Input/output error")
