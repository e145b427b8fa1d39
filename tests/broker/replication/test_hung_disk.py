"""A disk that stops answering, and says no error: a master leaves its group to a replica in sync,
a slave leaves the in-sync set, and neither comes back before its disk has answered.

Real processes over real files; a sync waits while the test says so (`tests/support/hanging_disk`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.runtime import errors
from aerobee.runtime.clock import ManualClock
from aerobee.store.flush.disk_watch import SLOW_BYTES_PER_S, DiskWatch
from aerobee.v1 import common_pb2
from tests.support.etcd import running_etcd
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.waiting import until

HUNG_AFTER_S = 1.5
SETTINGS: dict[str, Any] = {"may_hang": True, "disk_hung_after_ms": int(HUNG_AFTER_S * 1_000)}


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


def test_a_write_that_takes_too_long_shows_a_hung_disk_until_it_is_said_to_answer() -> None:
    clock = ManualClock()
    watch = DiskWatch(clock, hung_after_s=5.0)
    slow, quick = watch.begin(), watch.begin()
    watch.end(quick)
    for _ in range(4):
        clock.advance_ms(1_000)
        watch.look()
        assert not watch.why
    clock.advance_ms(1_500)
    watch.look()
    assert watch.is_hung
    assert watch.why == "the disk has not answered for 6 s"
    watch.end(slow)
    watch.look()
    assert watch.is_hung, "nobody has seen it answer"
    assert watch.oldest_s == 0
    watch.answered()
    assert not watch.why


def test_a_large_flush_may_take_a_slow_disk_its_time() -> None:
    clock = ManualClock()
    watch = DiskWatch(clock, hung_after_s=5.0)
    watch.begin(size_bytes=10 * SLOW_BYTES_PER_S)
    for _ in range(14):
        clock.advance_ms(1_000)
        watch.look()
        assert not watch.why
    clock.advance_ms(1_000)
    watch.look()
    assert watch.is_hung


def test_a_process_that_stood_still_does_not_take_its_disk_for_hung() -> None:
    clock = ManualClock()
    watch = DiskWatch(clock, hung_after_s=5.0)
    number = watch.begin()
    clock.advance_ms(60_000)
    watch.look()
    assert not watch.is_hung
    assert watch.oldest_s == 60
    watch.end(number)


async def cut_off_senders(group: ReplicaGroup, topic: str, stop: asyncio.Event) -> list[bytes]:
    """Send until told to stop; returns what was acknowledged."""
    acknowledged = []
    number = 0
    while not stop.is_set():
        body = b"during-%d" % number
        number += 1
        await group.send_until_stored(topic, body)
        acknowledged.append(body)
    return acknowledged


@pytest.mark.slow
@pytest.mark.parametrize("flush", [pytest.param("async", marks=pytest.mark.thorough), "sync"])
async def test_a_master_whose_disk_hangs_hands_over_by_itself_and_returns_as_a_slave(
    tmp_path: Path, etcd: str, flush: str
) -> None:
    async with replica_group(tmp_path, etcd, (0, 1, 2), flush=flush, **SETTINGS) as group:
        await group.in_sync(0, 1, 2)
        await group.create_topic("orders")
        master = await group.master()
        others = [one for one in (0, 1, 2) if one != master]
        await group.send_until_stored("orders", b"before")
        stop = asyncio.Event()
        sending = asyncio.create_task(cut_off_senders(group, "orders", stop))
        await asyncio.sleep(0.3)
        hung = group.replicas[master]
        hung.hang_mark.touch()
        began_s = time.monotonic()
        heir = await group.master(not_id=master)
        # After the bound, which is looked at every second; far before it could be a broken lease,
        # for that is renewed all the time.
        assert time.monotonic() - began_s >= HUNG_AFTER_S
        await group.in_sync(*others)
        await asyncio.sleep(0.3)
        stop.set()
        acknowledged = [b"before", *await sending]
        assert "the disk hangs" in hung.log
        await until(lambda: "handed over because the disk hangs" in hung.log)
        assert "unclean" not in hung.log
        # It is up all the time, and must not be elected: not even when the new master dies.
        dead = group.replicas[heir]
        await dead.kill()
        (last,) = [one for one in others if one != heir]
        assert await group.master(not_id=heir) == last
        assert await group.send_until_stored("orders", b"after") == last
        hung.hang_mark.unlink()
        await dead.start()
        await group.in_sync(0, 1, 2)
        await group.logs_equal(0, 1, 2)
        stored = await group.pull_all(last, "orders")
        assert {*acknowledged, b"after"} <= set(stored)


@pytest.mark.slow
async def test_a_slave_whose_disk_hangs_leaves_the_set_and_returns_once_it_answers(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, (0, 1), **SETTINGS) as group:
        await group.in_sync(0, 1)
        await group.create_topic("orders")
        master = await group.master()
        slave = 1 - master
        group.replicas[slave].hang_mark.touch()
        await group.send_until_stored("orders", b"one")  # it acknowledges from memory at first
        await group.in_sync(master)
        await group.send_until_stored("orders", b"two")
        group.replicas[slave].hang_mark.unlink()
        await group.in_sync(0, 1)
        await group.logs_equal(0, 1)
        assert "the disk answers again" in group.replicas[slave].log
        assert await group.master() == master


@pytest.mark.thorough
@pytest.mark.slow
async def test_without_a_replica_in_sync_the_master_stays_and_refuses_at_once(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, (0, 1), **SETTINGS) as group:
        await group.in_sync(0, 1)
        await group.create_topic("orders")
        master = await group.master()
        await group.replicas[1 - master].kill()
        await group.in_sync(master)
        epoch = (await group.record()).epoch
        hung = group.replicas[master]
        hung.hang_mark.touch()
        await group.send_until_stored("orders", b"one")

        async def is_refused() -> bool:
            ack = await group.send(master, "orders", b"two")
            return ack.code == common_pb2.NOT_WRITABLE

        await until(is_refused)
        began_s = time.monotonic()
        ack = await group.send(master, "orders", b"three", timeout_ms=20_000)
        assert time.monotonic() - began_s < 5, "it is told at once, not at its deadline"
        assert ack.code == common_pb2.NOT_WRITABLE
        assert "the disk has not answered for" in ack.message
        assert "send to another broker group" in ack.message
        stats = await group.stats(master)
        assert "the disk has not answered" in stats.not_writable_reason
        stored = await group.pull_all(master, "orders")
        assert stored[0] == b"one", "what is there can be read"
        assert b"three" not in stored
        hung.hang_mark.unlink()
        await group.send_until_stored("orders", b"four")
        record = await group.record()
        assert (record.master_id, record.epoch) == (master, epoch)


@pytest.mark.slow
async def test_a_replica_that_is_elected_as_its_disk_hangs_gives_the_epoch_back(
    tmp_path: Path, etcd: str
) -> None:
    """It cannot write down that it leads, and is not known to hang yet."""
    async with replica_group(tmp_path, etcd, (0, 1, 2), **SETTINGS) as group:
        await group.in_sync(0, 1, 2)
        await group.create_topic("orders")
        master = await group.master()
        successor, third = (one for one in (0, 1, 2) if one != master)
        await group.send_until_stored("orders", b"one")
        hung = group.replicas[successor]
        hung.hang_mark.touch()
        with contextlib.suppress(errors.AerobeeError):
            # It is elected, and no other would be as long as it is registered.
            await group.hand_over(master, successor, timeout_ms=1_000)
        await group.send_until_stored("orders", b"two")
        assert await group.master() in (master, third)
        assert "the epoch is given back" in hung.log
        hung.hang_mark.unlink()
        await group.in_sync(0, 1, 2)
        stored = await group.pull_all(await group.master(), "orders")
        assert set(stored) >= {b"one", b"two"}
