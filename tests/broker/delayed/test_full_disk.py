"""Messages come due while the disk is full: they come once there is room, each once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aerobee.broker.delayed.feature import Delays
from aerobee.runtime.errors import Busy, NotWritable
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.delayed import SetClock, delivered, send_later, settled
from tests.support.fault_disk import FaultDisk, no_space
from tests.support.waiting import until

HOUR_MS = 3_600_000
COUNT = 400
BODY = b"%04d" + b"x" * 900


@pytest.mark.thorough
@pytest.mark.parametrize("flush_mode", [FlushMode.ASYNC, FlushMode.SYNC])
@pytest.mark.parametrize("level", [0, 17])
async def test_what_comes_due_on_a_full_disk_comes_once_there_is_room(
    start_broker: StartBroker, tmp_path: Path, flush_mode: FlushMode, level: int
) -> None:
    store = StoreConfig(
        segment_bytes=128 * 1024,
        disk_free_bytes_min=0,
        checkpoint_interval_ms=20,
        flush_mode=flush_mode,
        retention=RetentionConfig(enabled=False),
    )
    root, clock = tmp_path / "store", SetClock()
    root.mkdir()
    disk = FaultDisk(root)
    broker = await start_broker(root=root, clock=clock, store=store, disk=disk)
    names = [BODY % number for number in range(COUNT)]
    send_later(broker, "t", names, deliver_ms=clock.now_ms() + HOUR_MS, level=level)
    await until(lambda: is_known(broker, level))
    disk.allocate_error = no_space()

    def is_full() -> bool:
        """The disk gives the log no segment any more."""
        try:
            while True:
                broker.writes.append("t", 1, BODY % 9_999)
        except NotWritable:
            return True
        except Busy:
            return False

    await until(is_full)
    clock.ahead_ms += HOUR_MS + 1
    broker.feature(Delays).mover.wake()
    await asyncio.sleep(0.6)  # it is tried again, each RETRY_S
    before = [each.body for each in delivered(broker, "t")]
    assert len(before) < COUNT
    assert len(set(before)) == len(before)

    disk.allocate_error = None
    await until(lambda: len(delivered(broker, "t")) >= COUNT)
    await settled(broker)
    assert sorted(each.body for each in delivered(broker, "t")) == names
    await broker.stop()
    again = await start_broker(root=root, clock=clock, store=store)
    await settled(again)
    assert sorted(each.body for each in delivered(again, "t")) == names


def is_known(broker: RunningBroker, level: int) -> bool:
    feeder = broker.feature(Delays).feeder
    known: int = feeder.levels[level].queue_end if level else feeder.index.fed_end
    return known == COUNT
