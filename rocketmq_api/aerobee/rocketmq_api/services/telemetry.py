"""The stream on which a client says what it is and gets its settings, for as long as it lives.

A client that does not read its stream is left alone until its window is full; then the stream ends,
and the client's other calls continue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from aerobee.access.meter import hold_subscriptions
from aerobee.access.running import sends_now
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.languages import Traits, language_of, traits_of
from aerobee.rocketmq_api.clients.settings import (
    answered,
    registration_of,
    settings_command,
)
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.ports import Groups
from aerobee.rocketmq_api.receiving.filters import prepared
from aerobee.rocketmq_api.resources import stored_topic
from aerobee.rocketmq_api.rules.group_rules import GroupRules
from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.questions import Questions
from aerobee.rpc.core.status import RpcError, Status
from aerobee.rpc.served_method import send_head
from aerobee.runtime.errors import NoBrokerAvailable
from aerobee.runtime.waiting import Turns
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_WRITE_S_MAX: Final = 10.0
OFFERED_MAX: Final = 256
_OFFERED_BYTES_MAX: Final = 1 << 20
"""Total size of questions waiting for a client to read; one may be larger."""
Commands = AsyncIterator[service_pb2.TelemetryCommand]


class Telemetry:
    """The streams of one node."""

    def __init__(
        self,
        clients: ClientTable,
        groups: Groups,
        questions: Questions,
        expressions: CompiledExpressions,
        *,
        sending: SendLimits,
        polling: PollLimits,
    ) -> None:
        self._clients = clients
        self._groups = groups
        self._questions = questions
        self._expressions = expressions
        self._sending = sending
        self._polling = polling
        self._readers: set[asyncio.Task[None]] = set()
        self._is_ending = False

    async def serve(self, commands: Commands, context: Any) -> None:
        """One stream until its client ends it, or `end`. Raises Refused for invalid settings."""
        # Some clients do nothing before the headers arrive.
        send_head(context)
        caller = Caller.of(context)
        producers = self._questions.table_of(caller)
        async with asyncio.TaskGroup() as tasks:
            stream = TelemetryStream(context, tasks)
            reader = tasks.create_task(
                self._read(commands, caller, stream), name=f"telemetry:{caller.client_id}"
            )
            self._readers.add(reader)
            try:
                await asyncio.wait((reader,))
            finally:
                self._readers.discard(reader)
                stream.end()
                producers.stream_ended(caller.client, stream)
                by_client = not self._is_ending and _ended_by_client(reader)
                self._clients.stream_ended(caller.client, stream, by_client=by_client)

    def end(self) -> None:
        """End all streams; their clients open new ones, elsewhere if this node does not answer."""
        self._is_ending = True
        for reader in self._readers:
            reader.cancel()

    async def _read(self, commands: Commands, caller: Caller, stream: TelemetryStream) -> None:
        if not caller.was_forwarded:  # a node is not a client
            self._clients.stream_began(caller.client, stream)
        self._questions.table_of(caller).stream_began(caller.client, stream)
        async for command in commands:
            # Others answer questions that this server does not ask.
            if command.WhichOneof("command") == "settings":
                await self._answer(command.settings, caller, stream)
            del command  # the next may come in hours; thousands of streams would keep theirs

    async def _answer(self, settings: v2.Settings, caller: Caller, stream: TelemetryStream) -> None:
        traits, answer = await self._told(settings, caller)
        await stream.write(answer)
        if traits.settings_again_ms is not None:
            stream.write_again(answer, traits.settings_again_ms / 1_000)

    async def _told(
        self, settings: v2.Settings, caller: Caller
    ) -> tuple[Traits, service_pb2.TelemetryCommand]:
        filters = (each.expression for each in settings.subscription.subscriptions)
        expressions = await prepared(filters, self._expressions, caller.client_id)
        registration = registration_of(settings, expressions, caller.namespace)
        if not caller.was_forwarded:
            hold_subscriptions(len(settings.subscription.subscriptions))
            client = self._clients.heard(
                caller.client_id, caller.language, caller.version, caller.peer, caller.user
            )
            self._clients.registered(client, registration)
        rules = GroupRules()
        if registration.group:
            # Some clients never start after an error. They send their settings again.
            with contextlib.suppress(NoBrokerAvailable):
                rules = await self._groups.rules(registration.group)
        language = language_of(caller.language, settings.user_agent)
        traits = traits_of(language, caller.version or settings.user_agent.version)
        self._questions.table_of(caller).told(
            caller.client,
            _named(settings, caller.namespace),
            needs_plain_body=traits.needs_plain_body,
        )
        told = answered(settings, rules, traits, sending=self._sending, polling=self._polling)
        return traits, settings_command(told)


def _named(settings: v2.Settings, namespace: str) -> dict[str, v2.Resource]:
    """A producer's topics, as named by it, by the names in the store."""
    found: dict[str, v2.Resource] = {}
    for resource in settings.publishing.topics:
        kept = v2.Resource()
        kept.CopyFrom(resource)
        found.setdefault(stored_topic(resource, namespace), kept)
    return found


def _ended_by_client(reader: asyncio.Task[None]) -> bool:
    """A client that is refused, or does not read, continues without a stream."""
    if not reader.done():
        return True  # the call was cancelled
    if reader.cancelled():
        return False
    error = reader.exception()
    return error is None or (isinstance(error, RpcError) and error.status is Status.CANCELLED)


class TelemetryStream:
    """Writes one command at a time. Thousands wait: what few have takes memory only in those."""

    __slots__ = ("_again", "_context", "_is_ended", "_offered", "_offered_bytes", "_tasks", "_turn",
                 "may_send")  # fmt: skip

    def __init__(self, context: Any, tasks: asyncio.TaskGroup) -> None:
        self._context = context
        self._tasks = tasks
        self._turn = Turns()
        self._again: asyncio.Task[None] | None = None
        self._offered: set[asyncio.Task[None]] | tuple[()] = ()
        self._offered_bytes = 0
        self._is_ended = False
        self.may_send = sends_now()
        """See `CommandStream`."""

    async def write(self, command: service_pb2.TelemetryCommand) -> None:
        try:
            async with asyncio.timeout(_WRITE_S_MAX), self._turn:
                await self._context.write(command)
        except TimeoutError:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED, "the client does not read its commands"
            ) from None

    def write_again(self, command: service_pb2.TelemetryCommand, delay_s: float) -> None:
        """Once, after a while, for the client's first settings."""
        if self._again is None:
            self._again = self._tasks.create_task(
                self._write_later(command, delay_s), name="settings-again"
            )

    async def _write_later(self, command: service_pb2.TelemetryCommand, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        await self.write(command)

    def offer(self, command: service_pb2.TelemetryCommand) -> bool:
        """See `CommandStream`."""
        size = command.ByteSize()
        is_full = len(self._offered) >= OFFERED_MAX or (
            self._offered and self._offered_bytes + size > _OFFERED_BYTES_MAX
        )
        if self._is_ended or is_full:
            return False
        writing = self._write_offered(command, size)
        try:
            task = self._tasks.create_task(writing, name="question")
        except RuntimeError:
            writing.close()  # the stream is just ending
            return False
        self._offered_bytes += size
        offered = self._offered = self._offered or set()
        offered.add(task)
        task.add_done_callback(offered.discard)
        return True

    async def _write_offered(self, command: service_pb2.TelemetryCommand, size: int) -> None:
        await self.write(command)
        self._offered_bytes -= size

    def end(self) -> None:
        self._is_ended = True
        for task in (self._again, *self._offered):
            if task is not None:
                task.cancel()
