"""The stream of a fetcher: it ends when it is told to, whatever happens to the stream meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client import ConsumerOptions
from aerobee.consumer_client.fetcher import Fetcher
from aerobee.consumer_client.owned_queue import Assignment, Unleased
from aerobee.consumer_client.pull_queue import PullQueue
from aerobee.runtime import errors

QUEUE = MessageQueue("orders", "broker-a", 0)


class BreakingStream:
    """Takes all commands; what is read is that it broke."""

    address = "broker-a"

    def __init__(self, before_it_breaks: Callable[[], object]) -> None:
        self._before_it_breaks = before_it_breaks

    async def write(self, command: object) -> None:
        pass

    async def read(self) -> None:
        self._before_it_breaks()
        raise errors.Unreachable("the stream broke")

    def cancel(self) -> None:
        pass


class Owner:
    """Of the fetcher: goes on with its queues, as after any break."""

    def on_broken(self, fetcher: Fetcher, queues: list[Any], error: errors.MqError) -> None:
        for owned in queues:
            fetcher.add(owned)


async def test_a_stream_that_breaks_as_its_fetcher_is_cancelled_ends_the_fetcher() -> None:
    """A consumer that is closed would otherwise wait for it for ever."""
    streams = 0

    class Channels:
        def open_stream(self, *_: object) -> BreakingStream:
            nonlocal streams
            streams += 1
            return BreakingStream(task.cancel if streams == 1 else lambda: None)

    channels: Any = Channels()
    owner: Any = Owner()
    fetcher = Fetcher(
        "broker-a",
        0,
        owner,
        group="g",
        client_id="c",
        options=ConsumerOptions(),
        channels=channels,
        find_address=lambda _: "broker-a",
    )
    fetcher.add(PullQueue(Assignment(QUEUE, "*", 0, Unleased(), 0), 1_000, on_ready=lambda: None))
    task = asyncio.create_task(fetcher.run())
    done, _ = await asyncio.wait((task,), timeout=1)
    assert done
    assert task.cancelled()
    assert streams == 1
