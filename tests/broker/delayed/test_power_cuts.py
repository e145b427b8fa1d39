"""With synchronous flush, a power failure loses no acknowledged message that waits, and delivers
none twice, whatever of the unflushed writes was lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from aerobee.broker.delayed.feature import Delays
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from tests.broker.conftest import StartBroker
from tests.support.delayed import SetClock, delivered, send_later, settled
from tests.support.fault_disk import FaultDisk
from tests.support.waiting import until

STORE = StoreConfig(
    segment_bytes=256 * 1024,
    disk_free_bytes_min=0,
    checkpoint_interval_ms=20,
    flush_mode=FlushMode.SYNC,
    retention=RetentionConfig(enabled=False),
)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
async def test_what_was_acknowledged_comes_once(
    start_broker: StartBroker, tmp_path: Path, seed: int
) -> None:
    chance, clock = random.Random(seed), SetClock()
    (tmp_path / "before").mkdir()
    disk = FaultDisk(tmp_path / "before")
    broker = await start_broker(root=tmp_path / "before", clock=clock, store=STORE, disk=disk)
    acknowledged: list[bytes] = []
    for number in range(chance.randint(3, 30)):
        names = [b"%d-%d" % (number, each) for each in range(20)]
        if chance.random() < 0.3:
            send_later(broker, "t", names, level=chance.randint(1, 3))
        else:
            send_later(broker, "t", names, deliver_ms=clock.now_ms() + chance.randint(1, 20_000))
        if chance.random() < 0.7:
            end = broker.store.appended_end
            await until(lambda end=end: broker.store.flushed_end >= end)
            acknowledged += names
        clock.ahead_ms += chance.randint(0, 1_500)
        broker.feature(Delays).mover.wake()
        await asyncio.sleep(chance.random() * 0.02)
    seen = [each.body for each in delivered(broker, "t")]
    disk.cut_power(tmp_path / "after", chance)

    again = await start_broker(root=tmp_path / "after", clock=clock, store=STORE)
    clock.ahead_ms += 60_000
    await settled(again)
    counts = Counter(each.body for each in delivered(again, "t"))
    assert set(acknowledged) <= counts.keys(), "none is lost"
    assert max(counts.values(), default=1) == 1, "none comes twice"
    assert set(seen) <= counts.keys(), "what consumers saw is there"
