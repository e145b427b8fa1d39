"""A broker that takes a folder of Apache's over delivers what waits in it, at its time and once:
not what Apache's broker delivered, and not what was recalled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aerobee.broker.delayed.feature import Delays
from aerobee.store.engine.config import StoreConfig, consume_queue_entries
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.format.timer_checkpoint import TimerCheckpoint
from aerobee.store.format.timer_files import timers_in_wheel
from aerobee.store.format.timer_recovery import recover_timer
from aerobee.store.format.timer_wheel import decode_wheel
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


def delivered_since(
    broker: RunningBroker, before: dict[tuple[str, int], int]
) -> list[tuple[str, int]]:
    """What was added to the topics since, in no order: unique keys, and when that was."""
    found = []
    for name in broker.store.queues.names():
        if name[0] not in (TIMER_TOPIC, SCHEDULE_TOPIC) and not name[0].startswith("AEROBEE_"):
            found += [
                (each.properties["UNIQ_KEY"], each.stored_ms)
                for each in delivered(broker, *name)
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
        names = broker.store.queues.names()
        before = {name: broker.store.queues.bounds(*name).max_offset for name in names}
        await settled(broker)
        assert delivered_since(broker, before) == []
        for at_ms in sorted(set(timers.values())):
            clock.set_to(at_ms + SLOT_MS)
            await settled(broker)
            came = {key for key, _ in delivered_since(broker, before)}
            assert {key for key, at in timers.items() if at <= at_ms} <= came, "at its time"
        clock.set_to(max(timers.values()) + DAY_MS)
        await settled(broker)
        found = delivered_since(broker, before)
        assert sorted(key for key, _ in found) == waiting
        assert all(stored_ms > timers.get(key, 0) for key, stored_ms in found), "none early"
        await broker.stop()
    async with running_broker(golden.root, store=store_config(golden), clock=clock) as broker:
        await settled(broker)
        assert sorted(key for key, _ in delivered_since(broker, before)) == waiting


def waiting_for_apache(golden: Any) -> tuple[list[str], list[str]]:
    """What Apache's broker would deliver from the files in the folder: of its timer, which has read
    all of its queue, and of the delay levels. By unique keys."""
    config = golden.root / "config"
    records = PlainStore(golden.root, golden.segment_bytes).records
    checkpoint = TimerCheckpoint.decode((config / "timercheck").read_bytes())
    by_position = {record.physical_offset: record for record in records}
    timers = [record for record in records if record.topic == TIMER_TOPIC]
    logs = sorted((golden.root / "timerlog").iterdir())
    size = int(golden.config["mappedFileSizeTimerLog"])
    assert {path.stat().st_size for path in logs} <= {size}
    found = timers_in_wheel(
        {int(path.name): path.read_bytes for path in logs},
        read_time_ms=checkpoint.last_read_time_ms,
    )
    recovered = recover_timer(
        checkpoint,
        decode_wheel((golden.root / "timerwheel").read_bytes()),
        {int(path.name): path.read_bytes for path in logs},
        file_bytes=size,
        queue_bounds=(0, len(timers)),
        find_queue_offset=lambda at, size: by_position[at].queue_offset,
    )
    assert recovered.queue_offset == max(record.queue_offset for record in timers) + 1
    assert not found.is_delete.any()
    offsets = json.loads((config / "delayOffset.json").read_bytes())["offsetTable"]
    levels = [
        record.properties["UNIQ_KEY"]
        for record in records
        if record.topic == SCHEDULE_TOPIC
        and record.queue_offset >= offsets.get(str(record.queue_id + 1), 0)
    ]
    keys = [by_position[position].properties["UNIQ_KEY"] for position in found.positions.tolist()]
    return sorted(keys), sorted(levels)


@pytest.mark.thorough
async def test_after_a_clean_stop_apache_goes_on_with_what_waits_and_repeats_nothing(
    golden: Any,
) -> None:
    timers, _ = waiting_in(golden)
    clock = SetClock()
    times = sorted(timers.values())
    for at_ms in (times[0], times[len(times) // 2], times[-1] + DAY_MS):
        clock.set_to(at_ms)
        async with running_broker(golden.root, store=store_config(golden), clock=clock) as broker:
            await settled(broker)
            delays = broker.feature(Delays)
            page = await delays.schedule.search(limit=1_000)
            waits = [each for each in page.messages if not each.level]
            levels_wait = [each.unique_key for each in page.messages if each.level]
            await broker.stop()
        assert waiting_for_apache(golden) == (
            sorted(each.unique_key for each in waits),
            sorted(levels_wait),
        )
    assert waiting_for_apache(golden) == ([], [])
