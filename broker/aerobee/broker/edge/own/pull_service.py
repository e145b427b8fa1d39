"""PullService: many queues over one stream, or one answer to one question.

PullStream writes frames in parts encoded by `convert.pull_frame_parts`; `add_pull_service`
registers it that way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from aerobee.access.meter import CURRENT_METER, Meter, begin_poll, hold_subscriptions
from aerobee.broker.counters import Counters
from aerobee.broker.edge.own.convert import READ_CODES, pull_frame_parts, wish_of
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.ownership import lease_expired
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.reading.egress import (
    Egress,
    Fetched,
    clamp_bytes,
    clamp_messages,
)
from aerobee.broker.reading.filters import filter_of
from aerobee.broker.reading.pull_session import ColdPull, PullParameters, PullSession
from aerobee.broker.reading.single_reads import SingleReads
from aerobee.broker.sending.guard import Guard
from aerobee.domain import names
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rpc.served_method import joined_parts
from aerobee.rpc.serving import MethodTable
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, InvalidArgument, ShuttingDown
from aerobee.runtime.task_groups import first_leaf
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.v1 import broker_pb2, broker_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "aerobee.v1.PullService"
WAIT_MS_MAX = 60_000


class PullService(broker_pb2_grpc.PullServiceServicer):
    """Feeds commands into pull sessions and writes their frames."""

    def __init__(
        self,
        egress: Egress,
        guard: Guard,
        counters: Counters,
        coordinator: GroupCoordinator,
        clock: Clock,
        expressions: CompiledExpressions,
        on_delivered: Callable[[str, str, int, int], None] = lambda *_: None,
    ) -> None:
        """`on_delivered` gets what was sent: group, topic, messages, bytes."""
        self._egress = egress
        self._guard = guard
        self._counters = counters
        self._clock = clock
        self._expressions = expressions
        self._coordinator = coordinator
        self._on_delivered = on_delivered
        self._single = SingleReads(egress, clock)
        self._sessions: dict[PullSession, None] = {}

    def sessions(self) -> list[PullSession]:
        """The streams that are open now."""
        return list(self._sessions)

    def close_sessions(self) -> None:
        """End every stream: the broker is stopping."""
        for session in list(self._sessions):
            session.end(ShuttingDown("the broker is shutting down; pull again in a moment"))
        # Waiting single pulls ask again, and get the same answer.
        self._egress.wake_all()

    # ---------------------------------------------------------------------- stream

    async def PullStream(self, request_iterator: object, context: Context) -> None:
        session = PullSession(self._egress, is_current=self._is_current)
        meter = CURRENT_METER.get()
        if meter is not None:
            meter.follows = True
        self._counters.pull_streams += 1
        self._sessions[session] = None
        try:
            async with asyncio.TaskGroup() as tasks:
                commands = tasks.create_task(
                    self._read_commands(context, session), name="pull-commands"
                )
                await self._write_frames(context, session, tasks, meter)
                commands.cancel()
        except* AerobeeError as group:
            raise first_leaf(group) from None
        finally:
            session.close()
            del self._sessions[session]
            self._counters.pull_streams -= 1

    async def _read_commands(self, context: Context, session: PullSession) -> None:
        peer = context.peer()
        while (command := await context.read()) is not grpc.aio.EOF:
            kind = command.WhichOneof("command")
            if kind == "credit":
                session.grant(command.credit.handle, command.credit.bytes)
            elif kind == "subscribe":
                await self._prepare(command.subscribe.request)
                self._subscribe(session, command.subscribe, peer)
            elif kind == "unsubscribe":
                session.unsubscribe(command.unsubscribe.handle)
                hold_subscriptions(session.handle_count)
            else:
                raise InvalidArgument("a pull command is empty; send subscribe, grant or end")
            await session.wait_room()
        session.close()

    def _subscribe(
        self, session: PullSession, wanted: broker_pb2.SubscribeQueue, peer: str
    ) -> None:
        try:
            parameters = self._parameters(wanted.request, peer)
            hold_subscriptions(session.handle_count + 1)
        except AerobeeError as error:
            session.refuse(wanted.handle, error)
            return
        session.subscribe(wanted.handle, parameters, wanted.credit_bytes)

    async def _write_frames(
        self,
        context: Context,
        session: PullSession,
        tasks: asyncio.TaskGroup,
        meter: Meter | None,
    ) -> None:
        write = context.write
        while True:
            frame = session.next_frame()
            if frame is None:
                if not await session.wait():
                    return
            elif isinstance(frame, ColdPull):
                tasks.create_task(self._load(session, frame), name="pull-cold")
            else:
                if meter is not None and frame.fetched is not None and frame.fetched.wait_s:
                    await meter.pause(frame.fetched.wait_s)
                await write(pull_frame_parts(frame))
                if frame.parameters is not None and frame.fetched is not None:
                    self._delivered(frame.parameters, frame.fetched)

    def _delivered(self, parameters: PullParameters, fetched: Fetched) -> None:
        if fetched.count:
            self._on_delivered(
                parameters.group, parameters.topic, fetched.count, len(fetched.records)
            )

    async def _load(self, session: PullSession, pull: ColdPull) -> None:
        try:
            outcome: Fetched | AerobeeError = await self._egress.load(pull.cold)
        except AerobeeError as error:
            outcome = error
        session.loaded(pull, outcome)

    # ---------------------------------------------------------------------- single pull

    async def Pull(
        self, request: broker_pb2.PullRequest, context: Context
    ) -> broker_pb2.PullResult:
        await self._prepare(request)
        parameters = self._parameters(request, context.peer())
        await begin_poll(parameters.group)
        wanted = QueueRead(
            parameters.topic,
            parameters.queue_id,
            parameters.offset,
            parameters.max_bytes,
            parameters.max_messages,
            parameters.filter,
            parameters.reader,
        )
        wait_s = min(request.wait_ms, WAIT_MS_MAX) / 1_000
        found = await self._single.read(wanted, wait_s, check=lambda: self._check_lease(parameters))
        self._delivered(parameters, found)
        return _result(found)

    async def _prepare(self, request: broker_pb2.PullRequest) -> None:
        """A long SQL filter is compiled in a turn of the loop."""
        if request.filter.type == broker_pb2.SQL92:
            await self._expressions.prepared([request.filter.expression], request.group)

    def _is_current(self, key: GroupQueue, lease_epoch: int) -> bool:
        return self._coordinator.is_current(key, lease_epoch, self._clock.monotonic_s())

    def _check_lease(self, parameters: PullParameters) -> None:
        key = parameters.lease_key
        if key is not None and not self._is_current(key, parameters.lease_epoch):
            raise lease_expired(key, parameters.lease_epoch)

    def _parameters(self, request: broker_pb2.PullRequest, peer: str) -> PullParameters:
        """The request, checked. Readers without a group are distinguished by their connection. A
        slave knows no leases, so it does not require one.

        Raises:
            AerobeeError: unknown topic or queue, no permission, an illegal name or filter.
        """
        self._guard.check_available()
        self._guard.check_read(request.topic, request.queue_id)
        if request.group:
            names.check_group_name(request.group)
        key: GroupQueue | None = None
        if request.lease_epoch != 0:
            if not request.group:
                raise InvalidArgument(
                    "a lease epoch needs its group: name the group that holds the lease"
                )
            if not self._egress.is_slave:
                key = GroupQueue(request.group, request.topic, request.queue_id)
        return PullParameters(
            topic=request.topic,
            queue_id=request.queue_id,
            offset=request.offset,
            max_bytes=clamp_bytes(request.max_bytes),
            max_messages=clamp_messages(request.max_messages),
            # Our clients compare the tags themselves.
            filter=filter_of(wish_of(request.filter, self._expressions), is_exact=False),
            lease_key=key,
            lease_epoch=request.lease_epoch,
            reader=request.group or peer,
            group=request.group,
        )


def add_pull_service(service: PullService, server: MethodTable) -> None:
    """Register with frames in parts; otherwise as `add_PullServiceServicer_to_server`."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "PullStream": grpc.stream_stream_rpc_method_handler(
            service.PullStream,
            request_deserializer=broker_pb2.PullCommand.FromString,
            response_serializer=joined_parts,
        ),
        "Pull": grpc.unary_unary_rpc_method_handler(
            service.Pull,
            request_deserializer=broker_pb2.PullRequest.FromString,
            response_serializer=broker_pb2.PullResult.SerializeToString,
        ),
    }
    server.add_registered_method_handlers(SERVICE_NAME, handlers)


def _result(found: Fetched) -> broker_pb2.PullResult:
    return broker_pb2.PullResult(
        code=READ_CODES[found.code],
        next_offset=found.next_offset,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        records=found.records,
        record_count=found.count,
        suggested_broker_id=found.suggested_broker_id,
    )
