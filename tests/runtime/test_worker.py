"""A worker works when woken or when time has come, and says each trouble once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from aerobee.runtime.errors import AerobeeError, Busy, StoreFailed
from aerobee.runtime.log import FIELDS_ATTRIBUTE
from aerobee.runtime.worker import Worker, warns
from aerobee.testing.virtual_time import VirtualTime


class Desk:
    """What a worker does, at which second, and what it says."""

    def __init__(self, **options: Any) -> None:
        self.worker = Worker(self.work, self.tell, **{"retry_s": 1.0, **options})
        self.worked_s: list[float] = []
        self.told: list[str] = []
        self.outcomes: list[float | BaseException | None] = []
        """Of the next works; afterwards there is nothing to do."""
        self.takes_s = 0.0
        self._began_s = asyncio.get_running_loop().time()

    async def work(self) -> float | None:
        self.worked_s.append(round(asyncio.get_running_loop().time() - self._began_s, 3))
        await asyncio.sleep(self.takes_s)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def tell(self, error: AerobeeError) -> None:
        self.told.append(str(error))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.worker.run())
        yield
        assert not task.done()
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()


@pytest.fixture(autouse=True)
async def virtual_time() -> AsyncIterator[None]:
    clock = VirtualTime(asyncio.get_running_loop(), 0)
    clock.begin()
    yield
    clock.end()


def failures(*reasons: str) -> Iterator[AerobeeError]:
    return (Busy(reason) for reason in reasons)


async def test_it_works_at_the_start_and_each_time_it_is_woken() -> None:
    desk = Desk()
    async with desk.running():
        await asyncio.sleep(5)
        desk.worker.wake()
        desk.worker.wake()
        await asyncio.sleep(5)
    assert desk.worked_s == [0, 5]


async def test_a_waking_during_the_work_is_not_lost() -> None:
    desk = Desk()
    desk.takes_s = 2
    async with desk.running():
        await asyncio.sleep(1)
        desk.worker.wake()
        assert desk.worker.is_woken
        await asyncio.sleep(5)
        assert not desk.worker.is_woken
    assert desk.worked_s == [0, 2]


async def test_it_works_again_when_the_work_said() -> None:
    desk = Desk()
    desk.outcomes = [3.0, 0, 4.0]
    async with desk.running():
        await asyncio.sleep(5)
        desk.worker.wake()  # what is due later is looked at earlier
        await asyncio.sleep(10)
    assert desk.worked_s == [0, 3, 3, 5]


@pytest.mark.parametrize(
    ("retries_when_woken", "worked_s"), [(False, [0, 1, 2, 3]), (True, [0, 0.4, 1.4, 2.4])]
)
async def test_after_a_trouble_it_backs_off(
    retries_when_woken: bool, worked_s: list[float]
) -> None:
    desk = Desk(retries_when_woken=retries_when_woken)
    desk.outcomes = [*failures("full", "full", "full")]
    async with desk.running():
        await asyncio.sleep(0.4)
        assert desk.worker.is_backing_off
        desk.worker.wake()
        await asyncio.sleep(9)
        assert not desk.worker.is_backing_off
    assert desk.worked_s == worked_s


async def test_the_pause_may_depend_on_what_happened() -> None:
    pauses_s = iter((1.0, 2.0, 4.0))
    desk = Desk(retry_s=lambda: next(pauses_s))
    desk.outcomes = [*failures("full", "full", "full")]
    async with desk.running():
        await asyncio.sleep(20)
    assert desk.worked_s == [0, 1, 3, 7]


async def test_each_trouble_is_told_once_until_it_is_over() -> None:
    desk = Desk()
    desk.outcomes = [*failures("full", "full", "slow", "full"), 1.0, *failures("full", "full")]
    async with desk.running():
        await asyncio.sleep(20)
    assert desk.told == ["full", "slow", "full", "full"]


async def test_a_trouble_that_is_usual_is_told_when_it_comes_again() -> None:
    desk = Desk(tells_at=2)
    reasons = "full", "slow", "full", "full", "full"
    desk.outcomes = [*failures(*reasons), 1.0, *failures("full")]
    async with desk.running():
        await asyncio.sleep(20)
    assert desk.told == ["full"]


async def test_what_does_not_matter_now_is_told_once_it_does() -> None:
    matters = False
    desk = Desk(matters=lambda: matters)
    desk.outcomes = [*failures("full", "full", "full", "full")]
    async with desk.running():
        await asyncio.sleep(1.5)
        assert desk.told == []
        matters = True
        await asyncio.sleep(20)
    assert desk.told == ["full"]


@pytest.mark.parametrize("error", [StoreFailed("the disk failed"), ValueError("a defect")])
async def test_what_ends_the_process_is_neither_told_nor_tried_again(error: Exception) -> None:
    desk = Desk()
    desk.outcomes = [error]
    with pytest.raises(type(error)):
        await desk.worker.run()
    assert (desk.worked_s, desk.told) == ([0], [])


async def test_work_may_wait_by_itself_and_still_be_woken() -> None:
    desk, woken = Desk(), []

    async def work() -> float:
        woken.append(await worker.rest(2.0))
        return 0

    worker = Worker(work, desk.tell, retry_s=1.0)
    task = asyncio.ensure_future(worker.run())
    await asyncio.sleep(3)
    worker.wake()
    await asyncio.sleep(1)
    task.cancel()
    assert woken == [False, True]


def test_a_trouble_is_a_warning_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    tell = warns(logging.getLogger("aerobee.test"), "copies wait", topic="orders")
    error = Busy("the disk is slow")
    tell(error)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.WARNING,
        'copies wait topic=orders reason="the disk is slow"',
    )
    assert getattr(record, FIELDS_ATTRIBUTE) == {"topic": "orders", "reason": error}
