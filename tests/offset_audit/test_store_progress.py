"""The broker's own files of progress are checked as what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.broker.journal import state_file
from aerobee.rocketmq_api.times import timestamp
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.progress_file import (
    CHECKS,
    POP_PROGRESS,
    SCHEDULE_PROGRESS,
    TIMER_PROGRESS,
    TIMER_SEEN,
)
from aerobee.v1 import broker_pb2, broker_pb2_grpc
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import running_broker
from tests.offset_audit.store_rows import store_rows
from tests.support.v2_calls import V2, codes, sent_message
from tests.support.waiting import until

WRITTEN = (POP_PROGRESS, TIMER_PROGRESS, SCHEDULE_PROGRESS)


def topic(name: str, kind: str) -> TopicConfig:
    attributes = {"message.type": kind}
    return TopicConfig(name=name, read_queue_count=1, write_queue_count=1, attributes=attributes)


async def used_store(root: Path) -> None:
    """A store whose broker served POP, a timer, a transaction and a schedule, and was stopped."""
    kinds = {"t": "NORMAL", "later": "DELAY", "tx": "TRANSACTION"}
    topics = {name: topic(name, kind) for name, kind in kinds.items()}
    async with running_broker(root, topics=topics) as broker:
        client = V2(broker.channel)
        assert codes((await client.send(sent_message("t"))).entries) == [v2.OK]
        assert len((await client.receive("t", "billing")).messages) == 1
        due = timestamp(SystemClock().now_ms() + 300)
        delayed = sent_message("later", message_type=v2.DELAY, delivery_timestamp=due)
        assert codes((await client.send(delayed)).entries) == [v2.OK]
        half = sent_message("tx", message_type=v2.TRANSACTION)
        assert codes((await client.send(half)).entries) == [v2.OK]
        schedule = broker_pb2.ScheduleDefinition(
            name="daily", topic="t", body=b"report", every_ms=86_400_000
        )
        recurring = broker_pb2_grpc.RecurringServiceStub(broker.channel)
        await recurring.PutSchedule(broker_pb2.PutScheduleRequest(definition=schedule))
        for name in WRITTEN:
            await until((root / "config" / name).exists)
        await broker.stop()


async def test_a_store_with_pop_timers_transactions_and_schedules_has_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_file, "SAVED_AFTER_RECORDS", 1)
    await used_store(tmp_path / "store")
    names = {each.name for each in (tmp_path / "store" / "config").iterdir()}
    assert names >= set(WRITTEN)
    (tmp_path / "store" / "config" / TIMER_SEEN).write_bytes(b"0011aabb 00000000\n")
    assert store_rows("faults", tmp_path / "store") == []
    for name in CHECKS:
        file = tmp_path / "store" / "config" / name
        sound = file.read_bytes()
        flipped = bytes([sound[0] ^ 0x40]) + sound[1:]
        for damaged in (sound[:-2], flipped, b"{}", b"\xff" * 9):
            file.write_bytes(damaged)
            (fault,) = store_rows("faults", tmp_path / "store")
            assert (fault["kind"], fault["file"]) == ("BAD_CONFIG", f"config/{name}")
        file.write_bytes(sound)
    assert store_rows("faults", tmp_path / "store") == []
