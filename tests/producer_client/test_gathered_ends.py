"""Ends of one turn of the loop travel in one call; what it does not settle is left to each."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aerobee.client_core.group_calls import GroupCalls
from aerobee.client_core.transactions import TransactionOutcome
from aerobee.producer_client.ends import ID_LENGTH_MAX, TOGETHER_MAX, UNKNOWN_CALL_S, GatheredEnds
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2

COMMITTED, ROLLED_BACK = TransactionOutcome.COMMITTED, TransactionOutcome.ROLLED_BACK


class Master:
    """Answers with what is asked for, or fails."""

    def __init__(self) -> None:
        self.requests: list[broker_pb2.EndTransactionsRequest] = []
        self.failure: errors.AerobeeError | None = None
        self.unsettled = ""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.now_s = 0.0
        self.ends = GatheredEnds(cast(GroupCalls, self), lambda: self.now_s)

    async def at_master(
        self, topic: str, broker_name: str, method: object, request: Any, *, timeout_ms: int
    ) -> broker_pb2.EndTransactionsResponse:
        self.requests.append(request)
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        outcomes = [broker_pb2.COMMITTED for _ in request.committed]
        outcomes += [broker_pb2.ROLLED_BACK for _ in request.rolled_back]
        for number, each in enumerate([*request.committed, *request.rolled_back]):
            if each == self.unsettled:
                outcomes[number] = broker_pb2.TRANSACTION_OUTCOME_UNSPECIFIED
        return broker_pb2.EndTransactionsResponse(outcomes=outcomes)

    async def end(
        self, name: str, wanted: TransactionOutcome = COMMITTED, broker: str = "a"
    ) -> TransactionOutcome | None:
        return await self.ends.end("orders", broker, name, wanted, self.now_s + 5)


async def test_each_gets_its_own_outcome() -> None:
    master = Master()
    master.unsettled = "4"
    wanted = [ROLLED_BACK if number % 3 == 0 else COMMITTED for number in range(9)]

    ended = await asyncio.gather(
        *(master.end(str(number), each) for number, each in enumerate(wanted))
    )

    assert len(master.requests) == 1
    assert ended == [*wanted[:4], None, *wanted[5:]]


async def test_ends_at_different_brokers_are_not_mixed() -> None:
    master = Master()
    await asyncio.gather(*(master.end(str(number), broker="ab"[number % 2]) for number in range(4)))
    assert [list(each.committed) for each in master.requests] == [["0", "2"], ["1", "3"]]


async def test_a_single_end_or_a_long_id_goes_by_itself() -> None:
    master = Master()
    assert await master.end("1") is None
    names = ["x" * (ID_LENGTH_MAX + 1), "y" * (ID_LENGTH_MAX + 1)]
    assert await asyncio.gather(*map(master.end, names)) == [None, None]
    assert master.requests == []


async def test_more_than_one_call_takes_are_all_ended() -> None:
    master = Master()
    count = 2 * TOGETHER_MAX + 5
    ended = await asyncio.gather(*(master.end(str(number)) for number in range(count)))
    assert ended == [COMMITTED] * count
    assert max(len(each.committed) for each in master.requests) == TOGETHER_MAX


async def test_a_failed_call_leaves_all_to_themselves() -> None:
    master = Master()
    master.failure = errors.Busy("later")
    assert await asyncio.gather(*map(master.end, "12")) == [None, None]
    await asyncio.gather(*map(master.end, "12"))
    assert len(master.requests) == 2, "it is asked again next time"


async def test_a_broker_that_does_not_know_the_call_is_not_asked_for_a_while() -> None:
    master = Master()
    master.failure = errors.AerobeeError("UNIMPLEMENTED")
    await asyncio.gather(*map(master.end, "12"))
    await asyncio.gather(*map(master.end, "34"))
    assert len(master.requests) == 1

    master.now_s, master.failure = UNKNOWN_CALL_S, None
    assert await asyncio.gather(*map(master.end, "56")) == [COMMITTED] * 2


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_the_first_ones_cancellation_leaves_the_others_to_themselves(turns: int) -> None:
    master = Master()
    master.may_answer.clear()
    async with asyncio.TaskGroup() as tasks:
        first, *others = [tasks.create_task(master.end(str(number))) for number in range(3)]
        await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
    assert first.cancelled()
    assert [each.result() for each in others] == [None, None]
    master.may_answer.set()
    assert await asyncio.gather(*map(master.end, "89")) == [COMMITTED] * 2
