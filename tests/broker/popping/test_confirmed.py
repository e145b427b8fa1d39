"""What follows from an entry of the journal happens once it counts, even without its caller."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.broker.popping.confirmed import until_confirmed, when_known


async def test_it_happens_although_the_client_that_waits_is_gone() -> None:
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    happened: list[bool] = []
    when_known(written, lambda: happened.append(True))
    waiter = asyncio.ensure_future(until_confirmed(written))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert not happened
    written.set_result(None)
    await asyncio.sleep(0)
    assert happened == [True]


async def test_it_happens_now_if_nothing_is_waited_for() -> None:
    happened: list[bool] = []
    when_known(None, lambda: happened.append(True))
    assert happened == [True]
