"""GroupService: a member's session over one stream, and what operators ask about groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import grpc

from aerobee.access.meter import hold_subscriptions
from aerobee.access.recorder import source_of
from aerobee.access.running import (
    groups_read,
    groups_seen,
    sees_everything,
    topics_seen,
    user_of_call,
)
from aerobee.broker.config import SessionConfig
from aerobee.broker.edge.own.client_rows import ClientRows, HeardProducer
from aerobee.broker.edge.own.convert import (
    group_member,
    official_member,
    receiving_member,
    self_assigning_member,
    subscriptions_of,
)
from aerobee.broker.edge.own.group_lag_rows import Asked, KeptRows, group_lag_rows
from aerobee.broker.edge.own.member_session import MemberSession
from aerobee.broker.edge.own.offset_service import committed_offsets, timeout_s
from aerobee.broker.edge.own.retry_convert import exponential_of, retry_settings
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.member_streams import MemberStreams
from aerobee.broker.groups.members import Member
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.receivers import Receivers
from aerobee.broker.observe.group_totals import TotalsRead
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.retries.policy import RetryPolicy
from aerobee.broker.retries.settings import RetrySettings
from aerobee.domain import names
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy, GroupNotFound, InvalidArgument
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns
from aerobee.runtime.printable import printable
from aerobee.v1 import broker_pb2, broker_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

DELETE_TIMEOUT_S = 150.0
"""How long a deletion may wait, if its caller waits as well: longer than any session lasts."""
OFFICIAL_LISTED_MAX = 1_000
"""Limit of listed official clients of a group."""
EVENTS_PENDING_MAX = 131_072
"""More than the grants that a member with the most queues can have outstanding."""


class GroupService(broker_pb2_grpc.GroupServiceServicer):
    """Turns stream events into calls of the coordinator."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        offsets: ConsumerOffsets,
        clock: Clock,
        *,
        streams: MemberStreams,
        removal: GroupRemoval,
        sessions: SessionConfig,
        on_session_timeout: Callable[[int], Awaitable[None]],
        on_group: Callable[[str], None],
        bounds: Callable[[str, int], tuple[int, int]],
        settings: RetrySettings,
        make_topics: Callable[[str, Iterable[str]], Awaitable[None]],
        clients: ClientTable,
        receivers: Receivers,
        expressions: CompiledExpressions,
        turns: LoopTurns,
        producers_beside: Callable[[], Iterable[tuple[str, HeardProducer]]],
        totals: Callable[[], Awaitable[TotalsRead]],
    ) -> None:
        """`on_session_timeout` returns once it is on disk that sessions may last this many ms;
        `on_group` is called for each group that is joined, and raises LimitReached if there are too
        many. `bounds`: a queue's minimum and maximum offset. `make_topics` makes the subscribed
        topics that are made on demand. `clients` are Apache's. `producers_beside`: those of the
        protocol beside gRPC, with their addresses. `totals`: what all groups have not read."""
        self._totals = totals
        everything = Asked("", "", lambda group: True, lambda topic: True)
        self._all_rows = KeptRows(
            lambda found: self._lag_rows(found, everything), clock.monotonic_s
        )
        self._rows = ClientRows(coordinator, clients, receivers, producers_beside, clock, turns)
        self._clients = clients
        self._receivers = receivers
        self._turns = turns
        self._expressions = expressions
        self._settings = settings
        self._make_topics = make_topics
        self._coordinator = coordinator
        self._offsets = offsets
        self._bounds = bounds
        self._clock = clock
        self._removal = removal
        self._session_config = sessions
        self._on_session_timeout = on_session_timeout
        self._on_group = on_group
        self._streams = streams

    # ---------------------------------------------------------------------- membership

    async def Membership(self, request_iterator: object, context: Context) -> None:
        session = MemberSession(self._offsets, self._clock)
        with self._streams.opened(session):
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._serve(context, session), name="member-events")
                while (event := await session.next_event()) is not None:
                    await context.write(event)
                reader.cancel()

    async def _serve(self, context: Context, session: MemberSession) -> None:
        """Follow one member until its stream ends."""
        try:
            first = await context.read()
            if first is grpc.aio.EOF:
                return
            member = await self._join(first, session, context)
            try:
                while (event := await context.read()) is not grpc.aio.EOF:
                    if event.WhichOneof("event") == "leave":
                        self._coordinator.leave(member)
                        return
                    self._handle(event, member, session)
                    if session.pending > EVENTS_PENDING_MAX:
                        raise Busy(
                            "the member sends events faster than it reads the answers; read them, "
                            "and join again"
                        )
            finally:
                self._coordinator.detach(member, session)
        except AerobeeError as error:
            session.on_ended(error)
        finally:
            session.finish()

    async def _join(
        self, event: broker_pb2.MemberEvent, session: MemberSession, context: Context
    ) -> Member:
        if event.WhichOneof("event") != "join":
            raise InvalidArgument("the first event of a membership stream must be Join")
        join = event.join
        await self._offsets.acting_for(join.group)
        names.check_client_id(join.client_id)
        names.check_text("instance", join.instance)
        timeout_ms = self._session_config.clamp_timeout_ms(join.session_timeout_ms)
        hold_subscriptions(len(join.subscriptions))
        await self._turns.turn(join.group)
        subscriptions = subscriptions_of(join.subscriptions, self._expressions)
        shown = [
            (GroupQueue(join.group, one.topic, one.queue_id), one.epoch)
            async for one in self._turns.each(join.group, join.held)
        ]
        await self._on_session_timeout(timeout_ms)
        await self._make_topics(join.group, [each.topic for each in subscriptions])
        # The term may have ended meanwhile, or be about to end.
        self._offsets.check_master()
        member = Member(
            group=join.group,
            client_id=join.client_id,
            instance=join.instance,
            subscriptions=subscriptions,
            broadcasting=join.broadcasting,
            session_timeout_s=timeout_ms / 1_000,
            last_heartbeat_s=self._clock.monotonic_s(),
            user=user_of_call({}),
            address=source_of(context.peer()),
            version=printable(join.version),
        )
        held = [lease for lease in shown if not self._offsets.is_ended(*lease)]
        self._removal.check_joinable(join.group)
        self._on_group(join.group)
        self._offsets.begin_retries(join.group)
        confirmed = self._coordinator.join(member, held, session)
        joined = broker_pb2.Joined(
            session_timeout_ms=timeout_ms,
            confirmed=[
                broker_pb2.HeldLease(
                    topic=lease.key.topic, queue_id=lease.key.queue_id, epoch=lease.epoch
                )
                for lease in confirmed
            ],
        )
        session.add(broker_pb2.GroupEvent(joined=joined), first=True)
        return member

    def _handle(
        self, event: broker_pb2.MemberEvent, member: Member, session: MemberSession
    ) -> None:
        kind = event.WhichOneof("event")
        now_s = self._clock.monotonic_s()
        if kind == "heartbeat":
            if not self._coordinator.is_acting():
                return  # another master may have granted its queues already
            beat = event.heartbeat
            changed = None
            if beat.subscriptions_changed:
                hold_subscriptions(len(beat.subscriptions))
                changed = subscriptions_of(beat.subscriptions, self._expressions)
            generation = self._coordinator.membership.heartbeat(member, now_s, changed)
            session.add(
                broker_pb2.GroupEvent(
                    heartbeat=broker_pb2.HeartbeatAck(sequence=beat.sequence, generation=generation)
                )
            )
        elif kind == "acquire":
            acquire = event.acquire
            names.check_text("topic name", acquire.topic)
            key = GroupQueue(member.group, acquire.topic, acquire.queue_id)
            self._offsets.check_grantable(key)
            self._coordinator.acquire(member, key, now_s)
        elif kind == "release":
            release = event.release
            key = GroupQueue(member.group, release.topic, release.queue_id)
            self._coordinator.ownership.release(member, key, release.epoch)
        else:
            raise InvalidArgument(f"a member's stream cannot carry {kind or 'an empty event'} here")

    # ---------------------------------------------------------------------- operators

    async def ListGroups(
        self, request: broker_pb2.ListGroupsRequest, context: Context
    ) -> broker_pb2.ListGroupsResponse:
        await self._turns.turn(LISTINGS)
        sees = groups_seen()
        return broker_pb2.ListGroupsResponse(groups=sorted(filter(sees, self._known())))

    async def ListGroupLags(
        self, request: broker_pb2.ListGroupLagsRequest, context: Context
    ) -> broker_pb2.GroupLagRows:
        self._offsets.check_known()
        found = await self._totals()
        if request.topic or request.group or not sees_everything():
            asked = Asked(request.topic, request.group, groups_read(), topics_seen())
            rows = await self._lag_rows(found, asked)
        else:
            rows = await self._all_rows.rows(found)
        # What was read is worth nothing if this broker is no longer the master.
        self._offsets.check_known()
        return rows

    async def _lag_rows(self, found: TotalsRead, asked: Asked) -> broker_pb2.GroupLagRows:
        await self._turns.turn(LISTINGS)
        now_s = self._clock.monotonic_s()
        self._coordinator.expire(now_s)
        return await group_lag_rows(
            found, self._known(), self._client_ids, asked, now_s=now_s, turns=self._turns
        )

    async def ListClients(
        self, request: broker_pb2.ListClientsRequest, context: Context
    ) -> broker_pb2.ListClientsResponse:
        self._offsets.check_known()
        return await self._rows.page(request)

    def _known(self) -> set[str]:
        official = self._clients.groups()
        known = {*self._coordinator.members.names(), *self._offsets.groups(), *official}
        known.update(self._coordinator.ownership.self_assigned_groups())
        known.update(self._receivers.groups(self._clock.monotonic_s()))
        known.update(self._settings.names())
        return known

    def _client_ids(self, group: str) -> Iterator[str]:
        yield from (each.client_id for each in self._coordinator.members.members(group))
        yield from (each.client_id for each in self._clients.members(group))
        yield from (each.client_id for each in self._coordinator.ownership.self_assigning(group))
        now_s = self._clock.monotonic_s()
        yield from (each.client_id for each in self._receivers.members(group, now_s))

    async def DescribeGroup(
        self, request: broker_pb2.DescribeGroupRequest, context: Context
    ) -> broker_pb2.GroupDescription:
        group = request.group
        names.check_group_name(group)
        await self._turns.turn(LISTINGS)
        self._offsets.check_known()
        now_s = self._clock.monotonic_s()
        self._coordinator.expire(now_s)
        members = self._coordinator.members.members(group)
        committed = dict(self._offsets.of_group(group))
        leases = {lease.key: lease for lease in self._coordinator.ownership.leases.held(group)}
        policy = self._settings.policy(group)
        official = self._clients.members(group)[:OFFICIAL_LISTED_MAX]
        remoting = self._coordinator.ownership.self_assigning(group)[:OFFICIAL_LISTED_MAX]
        receiving = self._receivers.members(group, now_s)[:OFFICIAL_LISTED_MAX]
        clients = [*members, *official, *remoting, *receiving]
        if not clients and not committed and policy == RetryPolicy():
            raise GroupNotFound(
                f"group {group} has neither members, committed offsets nor settings on this broker"
            )
        sees = topics_seen()
        description = broker_pb2.GroupDescription(
            group=group,
            members=[
                *(group_member(member, now_s, sees) for member in members),
                *(official_member(client, now_s, sees) for client in official),
                *(self_assigning_member(member, now_s, sees) for member in remoting),
                *(receiving_member(member, now_s, sees) for member in receiving),
            ],
            retry=retry_settings(policy, self._settings.levels),
        )
        async for key in self._turns.each(LISTINGS, sorted({*committed, *leases})):
            if not sees(key.topic):
                continue
            min_offset, max_offset = self._bounds(key.topic, key.queue_id)
            lease = leases.get(key)
            description.queues.add(
                topic=key.topic,
                queue_id=key.queue_id,
                lease_holder=lease.client_id if lease else "",
                lease_epoch=lease.epoch if lease else 0,
                committed_offset=committed.get(key, -1),
                min_offset=min_offset,
                max_offset=max_offset,
            )
        return description

    async def ConfigureGroup(
        self, request: broker_pb2.ConfigureGroupRequest, context: Context
    ) -> broker_pb2.RetrySettings:
        await self._offsets.acting_for(request.group)
        wanted = request.retry
        back_off = wanted.WhichOneof("back_off")
        if back_off == "steps":
            raise InvalidArgument(
                "a list of delays is read-only; choose the delay levels or exponential delays"
            )
        policy = await self._settings.change(
            request.group,
            retries_max=wanted.retries_max if wanted.HasField("retries_max") else None,
            uses_levels=back_off == "levels",
            exponential=exponential_of(wanted),
            is_ordered=wanted.ordered if wanted.HasField("ordered") else None,
        )
        return retry_settings(policy, self._settings.levels)

    async def DeleteGroup(
        self, request: broker_pb2.DeleteGroupRequest, context: Context
    ) -> broker_pb2.DeleteGroupResponse:
        await self._offsets.acting_for(request.group)
        removed = await self._removal.delete_group(
            request.group,
            force=request.force,
            timeout_s=timeout_s(context, DELETE_TIMEOUT_S),
        )
        return broker_pb2.DeleteGroupResponse(
            known=removed.was_known,
            members_ended=removed.members_ended,
            removed_count=len(removed.offsets),
            removed=committed_offsets(removed.offsets),
        )
