"""A Telemetry stream ends once, for the right reason, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.codes import Refused
from aerobee.rocketmq_api.rules.group_rules import GroupRules
from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.services.questions import Questions
from aerobee.rocketmq_api.services.telemetry import Telemetry, TelemetryStream
from aerobee.rpc.core.status import RpcError, Status
from aerobee.runtime.clock import ManualClock
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

COMMAND = service_pb2.TelemetryCommand


class Context:
    """One call."""

    def __init__(self) -> None:
        self.written: list[service_pb2.TelemetryCommand] = []
        self.failure: Exception | None = None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("x-mq-client-id", "c"), ("x-mq-language", "JAVA"))

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float | None:
        return None

    async def write(self, command: service_pb2.TelemetryCommand) -> None:
        if self.failure is not None:
            raise self.failure
        self.written.append(command)


class OneRule:
    async def rules(self, group: str) -> GroupRules:
        return GroupRules()


class Clients(ClientTable):
    """Also says how each stream ended."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.streams: list[TelemetryStream] = []
        self.ends: list[bool] = []

    def stream_began(self, key: str, stream: object) -> None:
        assert isinstance(stream, TelemetryStream)
        self.streams.append(stream)
        super().stream_began(key, stream)

    def stream_ended(self, key: str, stream: object, *, by_client: bool) -> None:
        self.ends.append(by_client)
        super().stream_ended(key, stream, by_client=by_client)


class Node:
    def __init__(self) -> None:
        self.clients = Clients()
        self.context = Context()
        self.telemetry = Telemetry(
            self.clients,
            OneRule(),
            Questions(),
            CompiledExpressions(),
            sending=SendLimits(),
            polling=PollLimits(),
        )

    async def begun(self, *settings: v2.Settings) -> asyncio.Task[None]:
        """A stream that waits for its client's next command."""
        reached = asyncio.Event()

        async def commands() -> AsyncIterator[service_pb2.TelemetryCommand]:
            for each in settings:
                yield COMMAND(settings=each)
            reached.set()
            await asyncio.get_running_loop().create_future()

        serving = asyncio.create_task(self.telemetry.serve(commands(), self.context))
        async with asyncio.timeout(10):
            await reached.wait()
        return serving


def subscribed() -> v2.Settings:
    group = v2.Resource(name="g")
    return v2.Settings(client_type=v2.SIMPLE_CONSUMER, subscription=v2.Subscription(group=group))


async def _by_its_client(node: Node, serving: asyncio.Task[None]) -> None:
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def _by_its_node(node: Node, serving: asyncio.Task[None]) -> None:
    node.telemetry.end()
    await serving


@pytest.mark.parametrize(
    ("end", "by_client"),
    [(_by_its_client, True), (_by_its_node, False)],
)
async def test_a_stream_ends_without_garbage(
    end: Callable[[Node, asyncio.Task[None]], Awaitable[None]], by_client: bool
) -> None:
    node = Node()
    serving = await node.begun(subscribed())
    assert len(node.context.written) == 1
    gc.collect()
    gc.disable()
    try:
        async with asyncio.timeout(10):
            await end(node, serving)
        assert node.clients.ends == [by_client]
        assert not node.clients.streams.pop().offer(COMMAND()), "it has ended"
        del serving
        await asyncio.sleep(0)
        left = [each for each in gc.get_objects() if isinstance(each, TelemetryStream)]
        assert left == [], "it waits for the garbage collector"
    finally:
        gc.enable()


async def test_a_client_that_does_not_read_its_questions_continues_without_a_stream() -> None:
    node = Node()
    serving = await node.begun(subscribed())
    node.context.failure = RpcError(Status.RESOURCE_EXHAUSTED, "full")
    assert node.clients.streams[0].offer(COMMAND())
    with pytest.raises(RpcError, match="full"):
        await serving
    assert node.clients.ends == [False]


async def test_settings_that_are_refused_end_the_stream_but_not_the_client() -> None:
    node = Node()

    async def commands() -> AsyncIterator[service_pb2.TelemetryCommand]:
        yield COMMAND(settings=v2.Settings())

    with pytest.raises(Refused):
        await node.telemetry.serve(commands(), node.context)
    assert node.clients.ends == [False]


async def test_a_client_may_end_its_stream() -> None:
    node = Node()

    async def commands() -> AsyncIterator[service_pb2.TelemetryCommand]:
        yield COMMAND(settings=subscribed())

    await node.telemetry.serve(commands(), node.context)
    assert node.clients.ends == [True]
