"""A broker that takes a folder of Apache's over delivers what waits in it, at its time and once:
not what Apache's broker delivered, and not what was recalled."""

from __future__ import annotations

from typing import Any

from aerobee.broker.store.config import StoreConfig, consume_queue_entries
from aerobee.broker.store.retention.retention_config import RetentionConfig
from tests.broker.conftest import RunningBroker, running_broker
from tests.support.delayed import SetClock, delivered, settled
from tests.support.plain_store import PlainStore

TIMER_TOPIC = "rmq_sys_wheel_timer"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELETE = 4
SLOT_MS = 1_000
DAY_MS = 86_400_000


def store_config(golden: Any) -> StoreConfig:
    return StoreConfig(
        segment_bytes=golden.segment_bytes,
        consume_queue_entries_per_file=consume_queue_entries(
            int(golden.config["mappedFileSizeConsumeQueue"])
        ),
        index_slots_max=int(golden.config["maxHashSlotNum"]),
        index_entries_max=int(golden.config["maxIndexNum"]),
        disk_free_bytes_min=0,
        retention=RetentionConfig(enabled=False),
    )


def waiting_in(golden: Any) -> tuple[dict[str, int], list[str]]:
    """As the manifest has it: the messages of the timer that wait, each with the last time before
    it may be delivered, the begin of its slot; and those of delay levels. By their unique keys."""
    timer = golden.manifest["timer"]
    read_ms = timer["checkpoint"]["lastReadTimeMs"]
    plain = PlainStore(golden.root, golden.segment_bytes).records
    records = {record.physical_offset: record for record in plain}
    timers: dict[str, int] = {}
    dropped = set()
    for entry in timer["log"]:
        record = records.get(entry["physicalOffset"])
        if entry["writeTime"] + entry["delayMs"] < read_ms or record is None:
            continue
        if entry["magic"] & DELETE:
            dropped.add(record.properties["TIMER_DEL_UNIQKEY"].rpartition("+")[2])
        else:
            timers[record.properties["UNIQ_KEY"]] = int(record.properties["TIMER_OUT_MS"])
    offsets = golden.manifest["delayOffsets"]
    levels = [
        record.properties["UNIQ_KEY"]
        for record in plain
        if record.topic == SCHEDULE_TOPIC
        and record.queue_offset >= offsets.get(str(record.queue_id + 1), 0)
    ]
    assert dropped & timers.keys(), "one is recalled"
    return {key: at_ms for key, at_ms in timers.items() if key not in dropped}, levels


def delivered_keys(broker: RunningBroker, golden: Any, before: dict[Any, int]) -> list[str]:
    """Unique keys of what was added to the topics since, in no order."""
    found = []
    for name in broker.wiring.store.queues.names():
        if name[0] in (TIMER_TOPIC, SCHEDULE_TOPIC) or name[0].startswith("AEROBEE_"):
            continue
        added = delivered(broker.wiring, *name)
        found += [
            each.properties["UNIQ_KEY"]
            for each in added
            if each.queue_offset >= before.get(name, 0)
        ]
    return found


async def test_what_waits_in_apaches_store_comes_at_its_time_and_once(golden: Any) -> None:
    timers, levels = waiting_in(golden)
    waiting = sorted([*timers, *levels])
    assert len(timers) >= 36
    assert len(levels) > 0
    clock = SetClock()
    clock.set_to(golden.manifest["timer"]["checkpoint"]["lastReadTimeMs"])
    async with running_broker(golden.root, store=store_config(golden), clock=clock) as broker:
        wiring = broker.wiring
        names = wiring.store.queues.names()
        before = {name: wiring.store.queues.bounds(*name).max_offset for name in names}
        await settled(wiring)
        assert delivered_keys(broker, golden, before) == []
        for at_ms in sorted(set(timers.values())):
            came = set(delivered_keys(broker, golden, before))
            clock.set_to(at_ms)
            await settled(wiring)
            early = set(delivered_keys(broker, golden, before)) - came
            assert not early & {key for key, at in timers.items() if at >= at_ms}, "never early"
            clock.set_to(at_ms + SLOT_MS)
            await settled(wiring)
            came = set(delivered_keys(broker, golden, before))
            assert {key for key, at in timers.items() if at <= at_ms} <= came, "at its time"
        clock.set_to(max(timers.values()) + DAY_MS)
        await settled(wiring)
        assert sorted(delivered_keys(broker, golden, before)) == waiting
        await broker.stop()
    async with running_broker(golden.root, store=store_config(golden), clock=clock) as broker:
        await settled(broker.wiring)
        assert sorted(delivered_keys(broker, golden, before)) == waiting
