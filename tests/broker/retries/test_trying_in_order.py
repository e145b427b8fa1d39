"""The broker counts how often a message was tried in order, over real gRPC."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import RunningBroker
from tests.broker.retries.test_sending_back import pulled
from tests.broker.test_membership import Participant

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


async def test_the_groups_limit_counts_unless_the_member_has_its_own(filled: RunningBroker) -> None:
    (result,) = await fail(filled, 16, 0, retries_max=None)
    assert result.stays
    (result,) = await fail(filled, 17, 0, retries_max=None)
    assert result.dead_letter


async def test_what_is_finished_is_not_tried(filled: RunningBroker) -> None:
    request = broker_pb2.CommitOffsetsRequest(
        group="g", client_id="m", offsets=[broker_pb2.QueueOffset(topic="t", offset=2)]
    )
    await filled.offsets.CommitOffsets(request)
    (result,) = await fail(filled, 1, 1)
    assert result.status.code == common_pb2.INVALID_ARGUMENT
    assert filled.wiring.journal_state.tried(GroupQueue("g", "t", 0)) is None


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
