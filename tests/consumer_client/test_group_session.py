"""A group session ends when it is told to, whatever happens to its stream meanwhile."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any

from aerobee.cluster_view.route import Endpoint
from aerobee.consumer_client.group_session import GroupSession
from aerobee.consumer_client.lease_table import QueueKey
from aerobee.consumer_client.membership import Identity
from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.retry import Backoff
from aerobee.v1 import broker_pb2

MASTER = Endpoint("broker-a", 0, "broker-a:1", is_master=True, epoch=1)
IDENTITY = Identity(
    group="g",
    client_id="c",
    instance="i",
    subscriptions=(("orders", "*"),),
    session_timeout_ms=10_000,
)


class Route:
    """Of a broker group that keeps its master."""

    broker_name = "broker-a"

    def telling(self, callback: object) -> AbstractContextManager[None]:
        return nullcontext()

    def while_master(self, endpoint: Endpoint) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def find_master(self, timeout_ms: int) -> Endpoint:
        return MASTER

    def has_other_master(self, tried: Endpoint | None) -> bool:
        return False

    def is_masterless(self) -> bool:
        return False

    def note_failure(self, reason: str) -> None:
        pass


class Events:
    def on_joined(self, broker_name: str) -> None:
        pass


async def test_a_stream_that_breaks_as_its_session_is_cancelled_ends_the_session() -> None:
    """A consumer that gave up a goodbye would otherwise wait for the session for ever."""
    streams = 0

    class BreakingStream:
        """Takes the join and breaks with the next word, at which the session is cancelled."""

        def __init__(self) -> None:
            self._is_joined = False

        async def write(self, event: broker_pb2.MemberEvent) -> None:
            if event.HasField("join"):
                return
            task.cancel()
            raise errors.Unreachable("the stream broke")

        async def read(self) -> broker_pb2.GroupEvent:
            if self._is_joined:
                await asyncio.Event().wait()
            self._is_joined = True
            return broker_pb2.GroupEvent(joined=broker_pb2.Joined(session_timeout_ms=10_000))

        def cancel(self) -> None:
            pass

    class Channels:
        def open_stream(self, *_: object) -> BreakingStream:
            nonlocal streams
            streams += 1
            return BreakingStream()

    route: Any = Route()
    events: Any = Events()
    channels: Any = Channels()
    session = GroupSession(
        route,
        IDENTITY,
        events,
        channels=channels,
        clock=SystemClock(),
        chance=random.Random(1),
        backoff=Backoff(base_ms=1, max_ms=1),
    )
    session.acquire(QueueKey("orders", 0))
    task = asyncio.create_task(session.run())
    done, _ = await asyncio.wait((task,), timeout=5)
    assert done
    assert task.cancelled()
    assert streams == 1
