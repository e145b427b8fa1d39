"""Tasks of one stream: a cancellation that meets a failure is not forgotten."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.runtime.errors import NotMaster
from aerobee.runtime.task_groups import run_together


async def test_a_stream_that_breaks_as_its_task_is_cancelled_ends_the_task() -> None:
    """The task would otherwise take the failure for its own and try the stream again, for ever."""
    broken = asyncio.Event()
    tried = 0

    async def stream() -> None:
        await asyncio.sleep(3_600)

    async def watch() -> None:
        await broken.wait()
        raise NotMaster("its term is over")

    async def keep_trying() -> None:
        nonlocal tried
        while True:
            tried += 1
            try:
                await run_together(stream(), watch=watch())
            except NotMaster:
                await asyncio.sleep(0)

    task = asyncio.create_task(keep_trying())
    await asyncio.sleep(0.01)
    broken.set()
    await asyncio.sleep(0)  # the failure is on its way
    task.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait((task,))
    assert task.cancelled()
    assert tried == 1


async def test_a_failure_without_a_cancellation_is_told_as_it_is() -> None:
    async def fail() -> None:
        raise NotMaster("not here")

    with pytest.raises(NotMaster, match="not here"):
        await run_together(asyncio.sleep(3_600), watch=fail())


async def test_a_failure_of_what_is_told_to_end_is_told_and_no_cancellation() -> None:
    async def fail_at_the_end() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            raise NotMaster("at the end")

    with pytest.raises(NotMaster, match="at the end"):
        await run_together(asyncio.sleep(0.01), other=fail_at_the_end())
