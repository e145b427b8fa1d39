"""The clock jumps an hour back and an hour forward, while a broker runs and between runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.broker.app import serve_broker
from aerobee.broker.config import BrokerConfig, SessionConfig
from aerobee.runtime.clock import ManualClock, SystemClock, system_random
from aerobee.runtime.supervise import Lifecycle
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.time_search import Boundary
from aerobee.v1 import broker_pb2, common_pb2
from tests.faults.members import Member
from tests.faults.serving import Client, write_topics
from tests.support.stores import (
    SMALL,
    append,
    check_agreement,
    crashed_copy,
    flush,
    log_records,
    open_store,
    read_queue,
    search_by_time,
)

HOUR_MS = 3_600_000
JUMPS = [-HOUR_MS, HOUR_MS]


def fill(store: MessageStore, clock: ManualClock, first: int, count: int = 10) -> None:
    """Messages over two queues, 100 ms apart."""
    for number in range(first, first + count):
        append(store, "t", number % 2, b"%d" % number * 50)
        clock.advance_ms(100)
        if number % 4 == 0:
            flush(store)


def times_of(store: MessageStore) -> list[int]:
    return [record.store_timestamp_ms for record in log_records(store)]


def check(store: MessageStore, count: int) -> None:
    """All messages, store times in the log's order, and every search by time as a scan has it."""
    check_agreement(store)
    for queue_id in range(2):
        wanted = [b"%d" % number * 50 for number in range(count) if number % 2 == queue_id]
        assert read_queue(store, "t", queue_id) == wanted
    times = times_of(store)
    assert times == sorted(times)
    for queue_id in range(2):
        of_queue = [
            record.store_timestamp_ms
            for record in log_records(store)
            if record.queue_id == queue_id
        ]
        for timestamp_ms in {*of_queue, of_queue[0] - 1, of_queue[-1] + 1, of_queue[3] + 50}:
            first = next(
                (at for at, stored in enumerate(of_queue) if stored >= timestamp_ms), len(of_queue)
            )
            assert search_by_time(store, "t", queue_id, timestamp_ms, Boundary.LOWER) == first


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_while_the_store_runs_its_times_never_decrease_and_searches_by_time_hold(
    tmp_path: Path, jump_ms: int
) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    fill(store, clock, 0)
    clock.step_wall_ms(jump_ms)
    fill(store, clock, 10)
    clock.step_wall_ms(-jump_ms)
    fill(store, clock, 20)
    check(store, 30)
    store.close()
    reopened = open_store(tmp_path, clock=clock)
    assert reopened.recovery.clean
    check(reopened, 30)
    reopened.close()


@pytest.mark.parametrize("left", ["closed", "crashed"])
@pytest.mark.parametrize("jump_ms", JUMPS)
def test_between_two_runs_nothing_is_lost_and_times_go_on_from_the_last(
    tmp_path: Path, jump_ms: int, left: str
) -> None:
    clock = ManualClock()
    store = open_store(tmp_path / "first", clock=clock)
    fill(store, clock, 0)
    clock.step_wall_ms(jump_ms)
    fill(store, clock, 10)
    root = tmp_path / "first"
    if left == "crashed":
        root = crashed_copy(root, tmp_path / "crashed")
    store.close()
    clock.step_wall_ms(-2 * jump_ms)
    reopened = open_store(root, clock=clock)
    assert reopened.recovery.clean == (left == "closed")
    check(reopened, 20)
    fill(reopened, clock, 20)
    check(reopened, 30)
    reopened.close()


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_checkpoints_and_flushes_go_on_at_their_pace(tmp_path: Path, jump_ms: int) -> None:
    """They count spans, not times of day."""
    clock = ManualClock()
    store = open_store(tmp_path, replace(SMALL, checkpoint_interval_ms=1_000), clock)
    append(store, "t", 0, b"a")
    flush(store)
    before = store.statistics().checkpoints
    clock.step_wall_ms(jump_ms)
    append(store, "t", 0, b"b")
    flush(store)
    assert store.statistics().checkpoints == before
    clock.advance_ms(1_001)
    append(store, "t", 0, b"c")
    flush(store)
    assert store.statistics().checkpoints == before + 1
    store.close()


class JumpingClock(SystemClock):
    """The machine's clock, but for what an operator did to its time of day."""

    __slots__ = ("jump_ms",)

    def __init__(self) -> None:
        self.jump_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jump_ms


@asynccontextmanager
async def broker_with(clock: JumpingClock, root: Path) -> AsyncIterator[Client]:
    """A broker in this process, with a second's patience for its members."""
    lifecycle = Lifecycle()
    config = BrokerConfig(
        listen="127.0.0.1:0",
        nameservers=(),
        store_root=root,
        stop_grace_ms=100,
        snapshot_interval_ms=100,
        store=replace(SMALL, segment_bytes=1 << 20),
        sessions=SessionConfig(timeout_min_ms=200),
    )
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            serve_broker(
                config,
                lifecycle,
                clock=clock,
                chance=system_random(),
                on_listening=port.set_result,
            )
        )
        async with Client(f"127.0.0.1:{await port}") as client:
            try:
                yield client
            finally:
                lifecycle.stop.set()


@pytest.mark.parametrize("jump_ms", JUMPS)
async def test_a_members_session_and_its_leases_are_not_touched(
    tmp_path: Path, jump_ms: int
) -> None:
    """Neither given up early, nor kept for an hour when it is dead."""
    write_topics(tmp_path, {"t": 1})
    clock = JumpingClock()
    async with broker_with(clock, tmp_path) as client:
        member = Member(client, group="g", client_id="m")
        await member.join(session_timeout_ms=1_000)
        epoch = (await member.acquire(0)).epoch
        clock.jump_ms = jump_ms
        assert (await client.send("t", 0, b"body")).code == common_pb2.OK
        await asyncio.sleep(0.5)
        await member.beat()
        await asyncio.sleep(0.7)  # longer than a session, with a heartbeat in it
        status = await client.commit("g", "t", 0, 1, epoch=epoch, member="m")
        assert status.code == common_pb2.OK
        member.vanish()
        heir = Member(client, group="g", client_id="heir")
        await heir.join(session_timeout_ms=1_000)
        async with asyncio.timeout(5):
            assert (await heir.acquire(0)).epoch > epoch
        await heir.leave()


@pytest.mark.parametrize("jump_ms", JUMPS)
async def test_a_broker_serves_on_and_its_receipts_name_times_in_order(
    tmp_path: Path, jump_ms: int
) -> None:
    write_topics(tmp_path, {"t": 1})
    clock = JumpingClock()
    async with broker_with(clock, tmp_path) as client:
        times = [(await client.send("t", 0, b"before")).store_timestamp_ms]
        clock.jump_ms = jump_ms
        times += [(await client.send("t", 0, b"after")).store_timestamp_ms]
        clock.jump_ms = 0
        times += [(await client.send("t", 0, b"again")).store_timestamp_ms]
        assert times == sorted(times)
        records = await client.records("t", 0)
        assert [record.store_timestamp_ms for record in records] == times
        response = await client.offsets.SearchByTimestamp(
            broker_pb2.SearchByTimestampRequest(
                queues=[broker_pb2.TopicQueue(topic="t", queue_id=0)], timestamp_ms=times[1]
            )
        )
        assert list(response.offsets) == [times.index(times[1])]
    # An hour earlier, by the clock, than what the log holds.
    clock.jump_ms = -HOUR_MS
    async with broker_with(clock, tmp_path) as client:
        later = (await client.send("t", 0, b"next run")).store_timestamp_ms
        assert later >= times[-1]
        assert len(await client.records("t", 0)) == 4
