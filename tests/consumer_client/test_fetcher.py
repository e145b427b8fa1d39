"""The stream of a fetcher: it ends when it is told to, whatever happens to the stream meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

from aerobee.cluster_view.route import Endpoint, MessageQueue, TopicRoute
from aerobee.consumer_client import ConsumerConfig
from aerobee.consumer_client.background_tasks import BackgroundTasks
from aerobee.consumer_client.group_reads import GroupReads
from aerobee.consumer_client.owned_queue import Assignment, Unleased
from aerobee.consumer_client.pull_queue import PullQueue
from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.retry import Backoff

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


class Routes:
    """Of one broker group that keeps its master."""

    def cached(self, topic: str) -> TopicRoute:
        master = Endpoint("broker-a", 0, "broker-a:1", is_master=True, epoch=1)
        return TopicRoute(topic, 6, False, {}, {"broker-a": 1}, (master,))

    def telling(self, callback: object) -> AbstractContextManager[None]:
        return nullcontext()


async def test_a_stream_that_breaks_as_its_consumer_is_closed_is_the_last_one() -> None:
    """The close would otherwise wait for the fetcher for ever."""
    streams = 0
    tasks = BackgroundTasks()

    class Channels:
        def open_stream(self, *_: object, **options: object) -> BreakingStream:
            nonlocal streams
            streams += 1
            return BreakingStream(tasks.cancel_all if streams == 1 else lambda: None)

    connection: Any = SimpleNamespace(
        routes=Routes(), channels=Channels(), clock=SystemClock(), random=random.Random(1)
    )
    reads = GroupReads(
        connection,
        QUEUE,
        group="g",
        client_id="c",
        options=ConsumerConfig(backoff=Backoff(base_ms=1, max_ms=1)),
        tasks=tasks,
        on_result=lambda *_: None,
        on_refused=lambda *_: None,
    )
    async with asyncio.timeout(5), tasks:
        tasks.create_task(reads.run(), name="reads")
        assignment = Assignment(QUEUE, "*", 0, Unleased())
        reads.add(PullQueue(assignment, 0, 1_000, counts_each=False, on_ready=lambda: None))
    assert streams == 1
