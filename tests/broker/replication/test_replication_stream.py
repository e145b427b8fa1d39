"""A slave copies its master's log over real gRPC: from the start, live, and after every break."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import BeginAnew, Cut
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import NotMaster
from aerobee.store.engine.config import FlushMode
from aerobee.store.engine.retention.retention_config import RetentionConfig
from tests.support.cold_disk import ColdDisk
from tests.support.fault_disk import FaultDisk
from tests.support.replicas import check_equal, log_bytes
from tests.support.replication_streams import (
    KIB,
    MIB,
    STORE,
    Master,
    Slave,
    running_master,
    running_slave,
)
from tests.support.retention import expire, finish, take_removal
from tests.support.stores import batch_of
from tests.support.waiting import until

SMALL_SEGMENTS = replace(STORE, segment_bytes=256 * KIB)


def fill(master: Master, batches: int, *, body_bytes: int = 1000, each: int = 8) -> None:
    """Without a word to anybody."""
    for number in range(batches):
        bodies = [bytes([number % 256]) * body_bytes] * each
        master.store.append(batch_of("t", *bodies), queue_id=number % 4)
    master.roles.advance()


def has_all(slave: Slave, master: Master) -> bool:
    """Stored, and visible to consumers."""
    return slave.store.confirmed_end == master.store.appended_end


async def catch_up(slave: Slave, master: Master) -> None:
    def has_caught_up() -> bool:
        slave.follow_on()
        return has_all(slave, master)

    await until(has_caught_up)


# ------------------------------------------------------------------------------------ copying


async def test_a_fresh_slave_gets_the_whole_log_queues_and_index(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        fill(master, 1_200)
        assert master.store.appended_end > 2 * STORE.segment_bytes
        slave.follow(master.address)
        await catch_up(slave, master)
        check_equal(master.store, slave.store)
        assert slave.adopted == [master.roles.history]
        assert slave.follower.is_connected
        assert not slave.follower.trouble
        assert slave.follower.master_end == master.store.appended_end


async def test_each_append_reaches_the_slave_at_once(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        slave.follow(master.address)
        await until(lambda: slave.follower.is_connected)
        for number in range(50):
            master.append(batch_of("t", b"x" * (1 + number * 37)))
            # Far less than a heartbeat.
            await until(lambda: has_all(slave, master), timeout_s=0.4)
        check_equal(master.store, slave.store)


async def test_two_slaves_copy_at_the_same_time(tmp_path: Path) -> None:
    async with (
        running_master(tmp_path / "m", SMALL_SEGMENTS) as master,
        running_slave(tmp_path / "s", SMALL_SEGMENTS) as one,
        running_slave(tmp_path / "z", SMALL_SEGMENTS, broker_id=2) as other,
    ):
        fill(master, 200)
        one.follow(master.address)
        other.follow(master.address)
        for number in range(100):
            master.append(batch_of("t", bytes([number]) * 5_000))
            await asyncio.sleep(0)
        await catch_up(one, master)
        await catch_up(other, master)
        assert master.sender.connected == [1, 2]
        check_equal(master.store, one.store)
        check_equal(master.store, other.store)


async def test_sealed_segments_that_are_not_in_memory_are_read_by_other_threads(
    tmp_path: Path,
) -> None:
    disk = ColdDisk(tmp_path / "m")
    (tmp_path / "m").mkdir()
    async with (
        running_master(disk, SMALL_SEGMENTS) as master,
        running_slave(tmp_path / "s", SMALL_SEGMENTS) as slave,
    ):
        fill(master, 200)
        disk.gate.clear()
        slave.follow(master.address)
        await until(lambda: bool(disk.reading_threads))
        # The loop goes on: what is appended meanwhile is only waiting for its turn.
        master.append(batch_of("t", b"meanwhile"))
        assert slave.store.appended_end == 0
        disk.gate.set()
        await catch_up(slave, master)
        assert all("MainThread" not in name for name in disk.reading_threads)
        assert not master.counters.cold_reads_waiting
        check_equal(master.store, slave.store)


async def test_a_slave_hears_what_is_confirmed_although_nothing_else_happens(
    tmp_path: Path,
) -> None:
    """The in-sync set holds another replica that is late."""
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        late = ReplicaName(2, "late")
        term = master.roles.begin_term(in_sync=(late,))
        slave.follow(master.address)
        await until(lambda: slave.follower.is_connected)
        end = master.append(batch_of("t", b"x"))
        await until(lambda: slave.store.appended_end == end)
        assert slave.store.confirmed_end == 0
        term.joined(late, end, end, 0.0)
        master.roles.advance()
        await until(lambda: slave.store.confirmed_end == end, timeout_s=0.4)


async def test_a_restarted_slave_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m", SMALL_SEGMENTS) as master:
        history: EpochHistory | None = None
        for _ in range(4):
            async with running_slave(tmp_path / "s", SMALL_SEGMENTS) as slave:
                begun_at = slave.store.appended_end
                slave.history = history or slave.history
                slave.follow(master.address)
                fill(master, 60)
                master.appended()
                await catch_up(slave, master)
                check_equal(master.store, slave.store)
                history = slave.history
                assert begun_at < slave.store.appended_end


async def test_a_slave_that_is_cancelled_at_any_moment_goes_on_without_a_gap(
    tmp_path: Path,
) -> None:
    chance = random.Random(5)
    async with (
        running_master(tmp_path / "m", SMALL_SEGMENTS, chunk_bytes=10_007) as master,
        running_slave(tmp_path / "s", SMALL_SEGMENTS) as slave,
    ):
        fill(master, 300)
        rounds, longest_s = 0, 0.02
        while not has_all(slave, master):
            rounds += 1
            end = slave.store.appended_end
            slave.follow(master.address)
            await asyncio.sleep(chance.uniform(0, longest_s))
            await slave.stop()
            if slave.store.appended_end == end:
                longest_s *= 1.05  # on a busy machine no stream may begin so soon
            assert not slave.follower.is_connected
        assert rounds > 3
        check_equal(master.store, slave.store)
        # Each stream that joined has left, once.
        await until(lambda: not master.sender.connected)
        events = [event for event, _ in master.roles.events]
        assert events == ["joined", "left"] * (len(events) // 2)


@pytest.mark.parametrize("chunk_bytes", [1, 17, 4_096])
async def test_chunks_may_cut_records_and_blanks_anywhere(tmp_path: Path, chunk_bytes: int) -> None:
    config = replace(STORE, segment_bytes=4 * KIB)
    async with (
        running_master(tmp_path / "m", config, chunk_bytes=chunk_bytes) as master,
        running_slave(tmp_path / "s", config) as slave,
    ):
        fill(master, 8 if chunk_bytes == 1 else 40, body_bytes=300, each=3)
        slave.follow(master.address)
        await catch_up(slave, master)
        check_equal(master.store, slave.store)


# ------------------------------------------------------------------------------------ flow


class Watched:
    """Notes the most that was on its way."""

    def __init__(self, master: Master) -> None:
        self.bytes_max = 0
        sender, roles = master.sender, master.roles
        acknowledged = roles.replica_acknowledged

        def note(name: ReplicaName, end: int) -> None:
            for sent, stored in re.findall(r"sent_end=(\d+), acknowledged_end=(\d+)", repr(sender)):
                self.bytes_max = max(self.bytes_max, int(sent) - int(stored))
            acknowledged(name, end)

        roles.replica_acknowledged = note  # type: ignore[method-assign]


async def test_no_more_than_the_window_is_on_its_way(tmp_path: Path) -> None:
    async with (
        running_master(tmp_path / "m", chunk_bytes=16 * KIB) as master,
        running_slave(tmp_path / "s", window_bytes=64 * KIB) as slave,
    ):
        watched = Watched(master)
        fill(master, 300)
        slave.follow(master.address)
        await catch_up(slave, master)
        assert 0 < watched.bytes_max <= 64 * KIB


@pytest.mark.parametrize("window_bytes", [1, 100, 10_000])
async def test_a_window_smaller_than_a_record_stops_nothing(
    tmp_path: Path, window_bytes: int
) -> None:
    """Also not in front of a blank record, which is stored together with the next one."""
    async with (
        running_master(tmp_path / "m", SMALL_SEGMENTS, chunk_bytes=16 * KIB) as master,
        running_slave(tmp_path / "s", SMALL_SEGMENTS, window_bytes=window_bytes) as slave,
    ):
        for size in (60_000, 10, 90_000, 80_000, 200_000, 50_000, 10, 200_000):
            master.store.append(batch_of("t", b"x" * size), queue_id=0)
        master.roles.advance()
        slave.follow(master.address)
        await catch_up(slave, master)
        check_equal(master.store, slave.store)


async def test_a_slave_that_is_behind_keeps_to_its_rate_while_messages_come_in(
    tmp_path: Path,
) -> None:
    async with (
        running_master(
            tmp_path / "m", chunk_bytes=64 * KIB, catch_up_bytes_per_s=2 * MIB
        ) as master,
        running_slave(tmp_path / "s") as slave,
    ):
        fill(master, 500)
        clock = SystemClock()
        begun_s = clock.monotonic_s()
        slave.follow(master.address)
        while clock.monotonic_s() - begun_s < 0.8:
            master.counters.batches_in += 1
            await asyncio.sleep(0.01)
        elapsed_s = clock.monotonic_s() - begun_s
        assert 0.4 * MIB < slave.store.appended_end < (elapsed_s + 0.2) * 2 * MIB
        # Nobody sends any more, so nobody is hurt.
        await catch_up(slave, master)


async def test_a_slave_in_sync_keeps_to_no_rate(tmp_path: Path) -> None:
    async with (
        running_master(tmp_path / "m", catch_up_bytes_per_s=100 * KIB) as master,
        running_slave(tmp_path / "s") as slave,
    ):
        master.roles.begin_term(in_sync=(slave.name,))
        fill(master, 500)
        slave.follow(master.address)
        master.counters.batches_in += 1
        while not has_all(slave, master):
            master.counters.batches_in += 1
            await asyncio.sleep(0.01)
            assert slave.follower.is_connected or not slave.follower.trouble


# ------------------------------------------------------------------------------------ flushing


async def test_under_sync_flush_only_what_is_flushed_is_acknowledged(tmp_path: Path) -> None:
    config = replace(STORE, flush_mode=FlushMode.SYNC)
    async with (
        running_master(tmp_path / "m") as master,
        running_slave(tmp_path / "s", config) as slave,
    ):
        master.roles.begin_term(in_sync=(slave.name,))
        acknowledged = master.roles.replica_acknowledged
        claims: list[tuple[int, int]] = []

        def note(name: ReplicaName, end: int) -> None:
            claims.append((end, slave.store.flushed_end))
            acknowledged(name, end)

        master.roles.replica_acknowledged = note  # type: ignore[method-assign]
        slave.follow(master.address)
        for number in range(200):
            master.append(batch_of("t", b"x" * (number * 31 + 1)))
            await asyncio.sleep(0)
        await until(lambda: master.store.confirmed_end == master.store.appended_end)
        assert claims
        assert all(end <= flushed_end for end, flushed_end in claims)


async def test_under_sync_flush_a_slave_joins_with_what_is_flushed(tmp_path: Path) -> None:
    """The disk was late when the first stream broke."""
    config = replace(STORE, flush_mode=FlushMode.SYNC)
    async with (
        running_master(tmp_path / "m") as master,
        running_slave(tmp_path / "s", config) as slave,
    ):
        fill(master, 50)
        slave.follow(master.address)
        await catch_up(slave, master)
        await slave.stop()
        # Appended, and nobody has asked for a flush.
        end = slave.store.appended_end
        master.append(batch_of("t", b"x" * 100))
        slave.store.replicated.append(end, log_bytes(master.store, end))
        assert slave.store.flushed_end < slave.store.appended_end
        joined: list[tuple[int, int]] = []
        master.roles.replica_joined = (  # type: ignore[method-assign]
            lambda name, end: joined.append((end, slave.store.flushed_end))
        )
        slave.follow(master.address)
        await until(lambda: bool(joined))
        assert joined[0][0] == joined[0][1] == master.store.appended_end


# ------------------------------------------------------------------------------------ trouble


async def test_a_slave_with_a_full_disk_says_so_and_goes_on_when_there_is_space(
    tmp_path: Path,
) -> None:
    (tmp_path / "s").mkdir()
    disk = FaultDisk(tmp_path / "s")
    disk.free = 50 * MIB
    config = replace(SMALL_SEGMENTS, disk_free_bytes_min=10 * MIB)
    async with (
        running_master(tmp_path / "m", SMALL_SEGMENTS, heartbeat_interval_s=0.1) as master,
        running_slave(disk, config, heartbeat_interval_s=0.1) as slave,
    ):
        slave.follow(master.address)
        fill(master, 10)
        master.appended()
        await catch_up(slave, master)
        disk.free = 9 * MIB
        fill(master, 200)
        master.appended()
        await until(lambda: bool(slave.follower.trouble))
        assert "free" in slave.follower.trouble
        stopped_at = slave.store.appended_end
        assert stopped_at < master.store.appended_end
        await slave.stop()
        # It joins again, stays connected although it stores nothing, and so does not count as gone.
        following = slave.follow(master.address)
        await asyncio.sleep(1.7)
        assert not following.done()
        assert "free" in slave.follower.trouble
        assert master.sender.connected == [1]
        disk.free = 50 * MIB
        await until(lambda: has_all(slave, master))
        assert not slave.follower.trouble
        check_equal(master.store, slave.store)


async def test_the_end_of_a_term_ends_its_streams(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        following = slave.follow(master.address)
        await until(lambda: slave.follower.is_connected)
        master.roles.end_term()
        with pytest.raises(NotMaster, match="epoch 1 is over"):
            await following
        assert not slave.follower.is_connected
        with pytest.raises(NotMaster):
            await slave.follow(master.address)


# ------------------------------------------------------------------------------------ joining


async def test_a_slave_with_an_unconfirmed_tail_is_told_to_cut_it(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        fill(master, 20)
        slave.follow(master.address)
        await catch_up(slave, master)
        await slave.stop()
        end = master.store.appended_end
        # It was master itself for a moment, and another one was elected after it.
        slave.history = EpochHistory.of([(1, 0), (2, end)])
        slave.store.append(batch_of("t", b"nobody else has this"), queue_id=0)
        master.roles.history = EpochHistory.of([(1, 0), (3, end)])
        master.roles.begin_term(epoch=3)
        assert await slave.follow(master.address, epoch=3) == Cut(end)
        assert slave.adopted == [EpochHistory.of([(1, 0)])]


async def test_a_slave_behind_the_masters_beginning_is_told_to_begin_anew(tmp_path: Path) -> None:
    config = replace(SMALL_SEGMENTS, retention=RetentionConfig(), checkpoint_interval_ms=50)
    (tmp_path / "m").mkdir()
    disk = FaultDisk(tmp_path / "m")
    disk.free, disk.total = 50, 100
    async with (
        running_master(disk, config) as master,
        running_slave(tmp_path / "s", SMALL_SEGMENTS) as slave,
    ):
        fill(master, 200)
        expire(tmp_path / "m", SystemClock())
        # Everything that the segment's records stand for must be in files first.
        while (removal := take_removal(master.store)) is None:
            await asyncio.sleep(0.02)
        removal.run()
        finish(master.store, removal)
        assert master.store.min_offset == 256 * KIB
        assert await slave.follow(master.address) == BeginAnew(256 * KIB)
