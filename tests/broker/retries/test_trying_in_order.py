"""The broker counts how often a message was tried in order, over real gRPC."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.feature import Progress
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import RunningBroker
from tests.broker.groups.test_membership import Participant
from tests.broker.retries.test_sending_back import pulled

LETTERS = "%DLQ%g"


async def fail(
    broker: Any, attempts: int, *offsets: int, retries_max: int | None = 2
) -> list[broker_pb2.SentBackMessage]:
    response = await broker.offsets.SendBack(
        broker_pb2.SendBackRequest(
            group="g",
            client_id="m",
            topic="t",
            retries_max=retries_max,
            attempts=attempts,
            messages=[broker_pb2.FailedMessage(offset=offset, reason="no") for offset in offsets],
        )
    )
    return list(response.results)


@pytest.fixture
async def filled(broker: RunningBroker) -> RunningBroker:
    await broker.send_bodies("t", 0, b"0", b"1", b"2")
    return broker


async def letters(broker: Any) -> list[tuple[bytes, str | None]]:
    return [
        (bytes(each.body), each.property_value("DLQ_ATTEMPTS"))
        for each in await pulled(broker, LETTERS, group="reader")
    ]


async def test_a_message_stays_until_it_has_failed_once_more_than_its_retries(
    filled: RunningBroker,
) -> None:
    for attempts in (1, 1, 2):  # the first answer was lost
        (result,) = await fail(filled, attempts, 1)
        assert (result.status.code, result.stays) == (common_pb2.OK, True)
    assert len(await pulled(filled)) == 3
    for _ in range(2):
        (result,) = await fail(filled, 3, 1)
        assert (result.status.code, result.stays) == (common_pb2.OK, False)
    assert await letters(filled) == [(b"1", "3")]
    assert [bytes(each.body) for each in await pulled(filled)] == [b"0", b"2"]


async def test_a_member_that_knows_less_goes_on_from_what_the_broker_counted(
    filled: RunningBroker,
) -> None:
    await fail(filled, 3, 1, retries_max=5)
    (result,) = await fail(filled, 1, 1, retries_max=2)
    assert result.dead_letter
    (result,) = await fail(filled, 1, 2, retries_max=2)
    assert result.stays, "that was another message"


async def test_messages_of_one_call_die_together(filled: RunningBroker) -> None:
    assert all(each.stays for each in await fail(filled, 2, 0, 1))
    assert all(each.dead_letter for each in await fail(filled, 3, 0, 1))
    assert await letters(filled) == [(b"0", "3"), (b"1", "3")]


async def test_an_outage_of_any_length_ends_in_no_dead_letter_unless_somebody_set_a_limit(
    filled: RunningBroker,
) -> None:
    waits_ms = []
    for attempts in (1, 2, 3, 7, 17, 100_000):
        (result,) = await fail(filled, attempts, 0, retries_max=None)
        assert (result.stays, result.attempts_max) == (True, 0)
        waits_ms.append(result.delay_ms)
    assert waits_ms == [1_000, 2_000, 4_000, 60_000, 60_000, 60_000]


async def configure(broker: Any, **settings: Any) -> broker_pb2.RetrySettings:
    retry = broker_pb2.RetrySettings(**settings)
    answer = await broker.groups.ConfigureGroup(
        broker_pb2.ConfigureGroupRequest(group="g", retry=retry)
    )
    assert isinstance(answer, broker_pb2.RetrySettings)
    return answer


@pytest.mark.parametrize("limit", [3, 16])
async def test_a_limit_that_was_set_counts_even_if_it_is_the_default(
    filled: RunningBroker, limit: int
) -> None:
    assert (await configure(filled, retries_max=limit)).in_order.retries_max == limit
    (result,) = await fail(filled, limit, 0, retries_max=None)
    assert (result.stays, result.attempts_max) == (True, limit + 1)
    (result,) = await fail(filled, limit + 1, 0, retries_max=None)
    assert result.dead_letter


async def test_the_delays_that_a_group_was_given_apply_in_order_too(filled: RunningBroker) -> None:
    growing = broker_pb2.ExponentialBackOff(initial_ms=200, max_ms=500, multiplier=2)
    told = await configure(filled, exponential=growing)
    assert not told.in_order.HasField("retries_max")
    results = [(await fail(filled, attempts, 0, retries_max=None))[0] for attempts in (1, 2, 3, 9)]
    assert [result.delay_ms for result in results] == [200, 400, 500, 500]


async def test_what_is_finished_is_not_tried(filled: RunningBroker) -> None:
    request = broker_pb2.CommitOffsetsRequest(
        group="g", client_id="m", offsets=[broker_pb2.QueueOffset(topic="t", offset=2)]
    )
    await filled.offsets.CommitOffsets(request)
    (result,) = await fail(filled, 1, 1)
    assert result.status.code == common_pb2.INVALID_ARGUMENT
    assert filled.feature(Progress).state.tried(GroupQueue("g", "t", 0)) is None


async def test_the_next_owner_is_told_also_after_a_restart(start_broker: Any) -> None:
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"0", b"1")
    await fail(broker, 2, 1)
    await broker.stop()
    again = await start_broker()
    member = Participant(again, "m")
    await member.join()
    await member.acquire(0)
    granted = await member.granted()
    assert (granted.tried_offset, granted.attempts) == (1, 2)
