"""Sending back over real gRPC: what waits, what is dead, what a group does not get again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.rpc.own_protocol import code_of
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.read_work import ReadOutcome
from aerobee.store.engine.tables.config_tables import SubscriptionGroupTable
from aerobee.store.format.dead_letter_fields import read_dead_letter
from aerobee.store.format.record import iterate_records
from aerobee.store.format.record_view import Record
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import RunningBroker
from tests.support.grpcio_client import error_from_rpc
from tests.support.waiting import until


async def send_back(
    broker: Any,
    *offsets: int,
    topic: str = "t",
    level: int = 0,
    retries_max: int | None = None,
    group: str = "g",
    lease_epoch: int = 0,
) -> list[broker_pb2.SentBackMessage]:
    response = await broker.offsets.SendBack(
        broker_pb2.SendBackRequest(
            group=group,
            client_id="member",
            topic=topic,
            lease_epoch=lease_epoch,
            retries_max=retries_max,
            messages=[
                broker_pb2.FailedMessage(
                    offset=offset,
                    level=level,
                    reason_class="ValueError",
                    reason=f"cannot\nread {offset}",
                )
                for offset in offsets
            ],
        )
    )
    return list(response.results)


def codes(results: Sequence[broker_pb2.SentBackMessage]) -> list[int]:
    return [result.status.code for result in results]


async def pulled(
    broker: Any, topic: str = "t", *, group: str = "g", offset: int = 0
) -> list[Record]:
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic=topic, group=group, offset=offset))
    return list(iterate_records(result.records))


def waiting(broker: RunningBroker, level: int) -> list[Record]:
    """The copies that wait for a delay level."""
    wanted = QueueRead("SCHEDULE_TOPIC_XXXX", level - 1, 0, 1 << 20, 100)
    found = broker.store.reads.read(wanted)
    assert isinstance(found, ReadOutcome)
    return list(iterate_records(found.records))


async def test_a_message_that_is_sent_back_waits_once_and_is_finished_where_it_was(
    broker: RunningBroker,
) -> None:
    await broker.send_bodies("t", 0, b"0", b"1", b"2")
    for _ in range(2):  # the first answer may have been lost
        (result,) = await send_back(broker, 1)
        assert result.status.code == common_pb2.OK
    (copy,) = waiting(broker, 3)
    assert bytes(copy.body) == b"1"
    assert copy.reconsume_times == 1
    assert copy.property_value("REAL_TOPIC") == "%RETRY%g"
    assert copy.property_value("RETRY_TOPIC") == "t"
    assert [bytes(record.body) for record in await pulled(broker)] == [b"0", b"2"]
    others = await pulled(broker, group="other")
    assert [bytes(record.body) for record in others] == [b"0", b"1", b"2"]


async def test_the_answer_says_for_how_long_it_waits(broker: RunningBroker) -> None:
    await broker.send_bodies("t", 0, b"0", b"1")
    first, second = await send_back(broker, 0, 1, level=7)
    assert (first.level, first.dead_letter) == (second.level, second.dead_letter) == (7, False)
    assert len(waiting(broker, 7)) == 2
    assert (first.attempts_max, first.delay_ms) == (17, 180_000)


async def test_after_the_last_attempt_there_is_one_dead_letter(broker: RunningBroker) -> None:
    await broker.send_bodies("t", 0, b"0", b"1")
    for _ in range(2):
        (result,) = await send_back(broker, 1, retries_max=0)
        assert result.status.code == common_pb2.OK
    (letter,) = await pulled(broker, "%DLQ%g", group="")
    told = read_dead_letter(letter)
    assert bytes(letter.body) == b"1"
    assert told.origin[:3] == ("t", 0, 1)
    assert (told.death.group, told.death.attempts, told.death.member) == ("g", 1, "member")
    assert (told.death.reason_class, told.death.reason) == ("ValueError", "cannot read 1")
    assert [bytes(record.body) for record in await pulled(broker)] == [b"0"]


async def test_a_member_may_give_up_at_once(broker: RunningBroker) -> None:
    await broker.send_bodies("t", 0, b"0")
    (result,) = await send_back(broker, 0, level=-1)
    assert result.dead_letter
    assert len(await pulled(broker, "%DLQ%g", group="")) == 1


async def test_what_is_not_the_members_is_refused_and_stays(broker: RunningBroker) -> None:
    await broker.send_bodies("t", 0, b"0", b"1")
    offset = broker_pb2.QueueOffset(topic="t", queue_id=0, offset=1)
    await broker.offsets.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(group="g", client_id="member", offsets=[offset])
    )
    assert codes(await send_back(broker, 0, 1, 2)) == [
        common_pb2.INVALID_ARGUMENT,
        common_pb2.OK,
        common_pb2.MESSAGE_NOT_FOUND,
    ]
    for changes, code in (
        ({"lease_epoch": 77}, common_pb2.LEASE_EXPIRED),
        ({"topic": "u"}, common_pb2.TOPIC_NOT_FOUND),
        ({"group": "a/b"}, common_pb2.ILLEGAL_NAME),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await send_back(broker, 1, **changes)
        assert code_of(error_from_rpc(failure.value, "the broker")) == code
    assert len(waiting(broker, 3)) == 1


async def test_a_restart_changes_nothing(start_broker: Any) -> None:
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"0", b"1", b"2")
    assert codes(await send_back(broker, 1)) == [common_pb2.OK]
    await broker.stop()
    again = await start_broker()
    assert [bytes(record.body) for record in await pulled(again)] == [b"0", b"2"]
    assert codes(await send_back(again, 1, 2)) == [common_pb2.OK, common_pb2.OK]
    assert [bytes(record.body) for record in waiting(again, 3)] == [b"1", b"2"]


async def test_many_at_once_are_answered_one_by_one(broker: RunningBroker) -> None:
    await broker.send_bodies("t", 0, *[b"%d" % number for number in range(100)])
    assert codes(await send_back(broker, *range(100))) == [common_pb2.OK] * 100
    assert len(waiting(broker, 3)) == 100
    assert await pulled(broker) == []


async def test_a_group_has_its_own_number_of_attempts_and_back_off(
    start_broker: Any, tmp_path: Path
) -> None:
    broker = await start_broker()
    settings = await broker.groups.ConfigureGroup(
        broker_pb2.ConfigureGroupRequest(
            group="g",
            retry=broker_pb2.RetrySettings(
                retries_max=1,
                exponential=broker_pb2.ExponentialBackOff(initial_ms=60_000, max_ms=90_000),
            ),
        )
    )
    assert (settings.retries_max, settings.exponential.multiplier) == (1, 2)
    await broker.send_bodies("t", 0, b"0")
    (result,) = await send_back(broker, 0)
    assert result.level == 0
    assert result.deliver_ms > 60_000
    saved = (tmp_path / "store/config/subscriptionGroup.json").read_bytes()
    config = SubscriptionGroupTable.load(saved).get("g")
    assert config is not None
    assert config.retry_times_max == 1
    only_levels = await broker.groups.ConfigureGroup(
        broker_pb2.ConfigureGroupRequest(
            group="g", retry=broker_pb2.RetrySettings(levels=broker_pb2.DelayLevelBackOff())
        )
    )
    minutes = [*range(1, 11), 20, 30, 60, 120]
    waits_ms = [10_000, 30_000, *(each * 60_000 for each in minutes)]
    assert only_levels.levels == broker_pb2.DelayLevelBackOff(delays_ms=waits_ms)
    assert only_levels.retries_max == 1, "what is not said stays"
    description = await _committed_description(broker)
    assert description.retry == only_levels


async def _committed_description(broker: Any) -> broker_pb2.GroupDescription:
    offset = broker_pb2.QueueOffset(topic="t", queue_id=0, offset=0)
    await broker.offsets.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(group="g", client_id="c", offsets=[offset])
    )
    description: broker_pb2.GroupDescription = await broker.groups.DescribeGroup(
        broker_pb2.DescribeGroupRequest(group="g")
    )
    return description


@pytest.mark.parametrize(
    "retry",
    [
        broker_pb2.RetrySettings(retries_max=-1),
        broker_pb2.RetrySettings(retries_max=100_001),
        broker_pb2.RetrySettings(exponential=broker_pb2.ExponentialBackOff(initial_ms=-1)),
        broker_pb2.RetrySettings(
            exponential=broker_pb2.ExponentialBackOff(initial_ms=10, max_ms=9)
        ),
        broker_pb2.RetrySettings(exponential=broker_pb2.ExponentialBackOff(multiplier=1_001)),
        broker_pb2.RetrySettings(steps=broker_pb2.StepBackOff(delays_ms=[1])),
    ],
)
async def test_settings_that_cannot_be_are_refused(
    broker: RunningBroker, retry: broker_pb2.RetrySettings
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await broker.groups.ConfigureGroup(broker_pb2.ConfigureGroupRequest(group="g", retry=retry))
    assert code_of(error_from_rpc(failure.value, "the broker")) == common_pb2.INVALID_ARGUMENT


async def test_a_copy_that_is_due_comes_again_also_where_its_topic_is_not_known(
    start_broker: Any, tmp_path: Path
) -> None:
    """A slave copies the table of topics a moment later than the log."""
    broker = await start_broker(
        store=StoreConfig(disk_free_bytes_min=0, delay_levels_ms=(1, 1, 50))
    )
    await broker.send_bodies("t", 0, b"0")
    assert codes(await send_back(broker, 0)) == [common_pb2.OK]
    broker.opened.topics.remove("%RETRY%g")
    await until(lambda: broker.store.queues.bounds("%RETRY%g", 0).max_offset == 1)
    (copy,) = await pulled(broker, "%RETRY%g")
    assert (bytes(copy.body), copy.reconsume_times) == (b"0", 1)
