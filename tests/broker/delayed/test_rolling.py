"""What waits holds no old log: it moves on when a segment has to go, and comes all the same."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.delayed.feature import Delays
from aerobee.broker.delayed.hold import ROLL_TIMEOUT_S, ROLLED_AT_ONCE
from aerobee.broker.timers.entries import Removed, Source
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.retention.retention_ledger import Candidate
from aerobee.store.engine.retention.retention_policy import Cause, CleanRequest
from aerobee.v1 import broker_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.delayed import SetClock, delivered, send_later, settled, until_delivered
from tests.support.retention import write_times
from tests.support.waiting import until

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
SEGMENT = 64 * 1024
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture(params=[FlushMode.ASYNC, FlushMode.SYNC])
def small(request: Any) -> StoreConfig:
    return StoreConfig(
        segment_bytes=SEGMENT,
        disk_free_bytes_min=0,
        checkpoint_interval_ms=20,
        flush_mode=request.param,
        retention=RetentionConfig(enabled=False, delete_pause_ms=0),
    )


async def cleaned(broker: RunningBroker) -> int:
    """Removes all segments but the last one; where the log begins then."""
    last = broker.store.log.segments()[-1].base

    async def has_cleaned() -> bool:
        write_times(broker.config.store_root, LONG_AGO_MS)
        await broker.admin.CleanStore(broker_pb2.CleanStoreRequest(force=True))
        return bool(broker.store.min_offset >= last)

    await until(has_cleaned, "everything old is removed")
    return int(broker.store.min_offset)


async def test_a_message_due_in_a_year_holds_no_year_of_log(
    start_broker: StartBroker, small: StoreConfig
) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock, store=small)
    due_ms = clock.now_ms() + YEAR_MS
    names = [b"%d" % number for number in range(40)]
    send_later(broker, "t", names, deliver_ms=due_ms)
    send_later(broker, "t", [b"level"], queue_id=1, level=18)
    handle = (await broker.feature(Delays).schedule.search(key="KEY7", limit=1)).messages
    for number in range(3):
        send_later(broker, "t", [b"x" * 900] * 150, queue_id=2, deliver_ms=clock.now_ms() + 1)
        await until_delivered(broker, "t", 150 * (number + 1), queue_id=2)
    await settled(broker)
    assert await cleaned(broker) > 2 * SEGMENT
    assert delivered(broker, "t") == []
    if handle:
        await broker.feature(Delays).schedule.recall(handle[0].handle)
        names.remove(b"7")

    await broker.stop()
    again = await start_broker(clock=clock, store=small)
    clock.ahead_ms += YEAR_MS + 1_000
    assert len(await until_delivered(again, "t", 1, queue_id=1)) == 1
    messages = await until_delivered(again, "t", len(names))
    await settled(again)
    assert sorted(each.body for each in messages) == sorted(names)
    assert len(delivered(again, "t")) == len(names)
    assert messages[0].properties["TIMER_ROLL_TIMES"] == "1"


async def test_what_is_done_lets_the_log_go_at_once(
    start_broker: StartBroker, small: StoreConfig
) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock, store=small)
    for number in range(3):
        send_later(broker, "t", [b"x" * 900] * 150, deliver_ms=clock.now_ms() + 1)
        await until_delivered(broker, "t", 150 * (number + 1))
    await settled(broker)
    timers = broker.store.queues.bounds("rmq_sys_wheel_timer", 0).max_offset
    assert await cleaned(broker) > 2 * SEGMENT
    assert broker.store.queues.bounds("rmq_sys_wheel_timer", 0).max_offset == timers, "none rolled"


@pytest.mark.parametrize("level", [0, 18])
async def test_a_recall_that_came_to_nothing_while_messages_moved_on_loses_none(
    start_broker: StartBroker, small: StoreConfig, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock, store=small)
    names = [b"%d" % number for number in range(10)]
    send_later(broker, "t", names, deliver_ms=clock.now_ms() + YEAR_MS, level=level)
    for number in range(3):
        send_later(broker, "t", [b"x" * 900] * 150, queue_id=2, deliver_ms=clock.now_ms() + 1)
        await until_delivered(broker, "t", 150 * (number + 1), queue_id=2)
    await settled(broker)
    recalled = (await broker.feature(Delays).schedule.search(limit=10)).messages[4]
    delays = broker.feature(Delays)
    term = delays.mover.term
    assert term is not None
    find, roll = delays.finder.oldest, delays.mover.act_out_of_turn
    recalls = [Removed((Source(level, 4, recalled.deliver_ms),))]
    is_decided = False

    async def find_while_a_recall_is_decided(*some: Any) -> Any:
        """It is known at once ..."""
        nonlocal is_decided
        if not is_decided:
            is_decided = True
            term.progress.apply(recalls)
        return await find(*some)

    async def roll_once_the_log_has_refused_it(*some: Any, **how: Any) -> Any:
        """... and not any more when the log has refused it."""
        monkeypatch.setattr(delays.mover, "act_out_of_turn", roll)
        assert is_decided
        term.dropped(())
        return await roll(*some, **how)

    monkeypatch.setattr(delays.finder, "oldest", find_while_a_recall_is_decided)
    monkeypatch.setattr(delays.mover, "act_out_of_turn", roll_once_the_log_has_refused_it)
    await cleaned(broker)
    clock.ahead_ms += YEAR_MS + 1_000
    await settled(broker)
    assert sorted(each.body for each in delivered(broker, "t")) == names


class SlowClock(SetClock):
    """Time passes where a test says so."""

    __slots__ = ("passed_s",)

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.passed_s


async def no_upkeep(work: object) -> None:
    """Nothing that waits needs any."""


async def test_a_removal_waits_no_longer_than_it_may_for_what_moves_on(
    start_broker: StartBroker, small: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SlowClock()
    broker = await start_broker(clock=clock, store=small)
    count = 3 * ROLLED_AT_ONCE
    names = [b"%d" % number for number in range(count)]
    due_ms = clock.now_ms() + YEAR_MS
    send_later(broker, "t", names, deliver_ms=due_ms)
    delays = broker.feature(Delays)
    await until(lambda: delays.feeder.index.fed_end == count)
    roll = delays.mover.act_out_of_turn

    async def roll_slowly(*some: Any, **how: Any) -> Any:
        clock.passed_s += 0.6 * ROLL_TIMEOUT_S
        return await roll(*some, **how)

    monkeypatch.setattr(delays.mover, "act_out_of_turn", roll_slowly)
    candidate = Candidate(0, broker.store.appended_end, Cause.DISK, 0, CleanRequest())
    need = await delays.holds[0].need(candidate, no_upkeep)
    assert need is not None
    assert delays.progress().of(0).floor == 2 * ROLLED_AT_ONCE, "the third part is for later"
