"""Members that join or ask for queues while a master leaves its groups to the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc

from aerobee.broker.config import SessionConfig
from aerobee.broker.edge.own.group_service import GroupService
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.member_streams import MemberStreams
from aerobee.broker.groups.receivers import Receivers
from aerobee.broker.observe.group_totals import TotalsRead
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.retries.settings import RetrySettings
from aerobee.broker.sending.guard import Guard
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.loop_turns import LoopTurns
from aerobee.store.engine.tables.config_tables import SubscriptionGroupTable, TopicTable
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.v1 import broker_pb2_grpc, common_pb2
from tests.broker.groups.test_membership import Participant
from tests.support.grpcio_client import build_channel
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import Replica, nothing, running


@asynccontextmanager
async def served(
    master: Replica, promise: Callable[[int], Awaitable[None]]
) -> AsyncIterator[SimpleNamespace]:
    """The groups of this replica over real gRPC; `promise` lets a session begin."""
    clock = ManualClock()
    coordinator = GroupCoordinator(
        master.groups.members,
        master.groups.ownership,
        call_soon=lambda push: None,
    )
    guard = Guard(TopicTable(), broker_name="b")
    offsets = ConsumerOffsets(
        master.table, master.journal, coordinator, guard, clock, queue_max=lambda topic, queue: 0
    )

    async def no_topics(group: str, subscribed: Iterable[str]) -> None:
        return None

    async def no_totals() -> TotalsRead:
        raise AssertionError("nobody asks")

    service = GroupService(
        coordinator,
        offsets,
        clock,
        streams=MemberStreams(),
        removal=GroupRemoval(
            master.table,
            SubscriptionGroupTable(),
            master.journal,
            coordinator,
            clock,
            save_configs=nothing,
        ),
        sessions=SessionConfig(),
        on_session_timeout=promise,
        on_group=lambda group: None,
        bounds=lambda topic, queue_id: (0, 0),
        settings=RetrySettings(
            SubscriptionGroupTable(), lambda group: None, nothing, DelayLevels.parse()
        ),
        make_topics=no_topics,
        clients=ClientTable(clock),
        receivers=Receivers(),
        expressions=CompiledExpressions(),
        turns=LoopTurns(clock),
        producers_beside=tuple,
        totals=no_totals,
    )
    server = grpc.aio.server()
    broker_pb2_grpc.add_GroupServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with build_channel(f"127.0.0.1:{port}") as channel:
            yield SimpleNamespace(groups=broker_pb2_grpc.GroupServiceStub(channel))
    finally:
        await server.stop(0)


async def test_who_waited_for_the_promise_of_its_session_meanwhile_does_not_join() -> None:
    """The clean record does not name it: the next master would give its queues to others."""
    master = Replica(MemoryLog())
    endings: list[asyncio.Task[None]] = []

    async def promise(timeout_ms: int) -> None:
        await master.groups.promise_session(timeout_ms)
        master.log.is_sync = False
        endings.append(asyncio.create_task(master.journal.leave()))
        await asyncio.sleep(0.01)

    async with running(master), served(master, promise) as broker:
        await master.lead(1)
        member = Participant(broker, "a")
        joining = asyncio.create_task(member.join())
        assert (await member_fails(member, joining)) == common_pb2.NOT_MASTER
        assert not list(master.groups.members.all_members())
        master.log.confirm()
        master.log.flush()
        await asyncio.gather(*endings)
        assert master.state.lease is not None
        assert master.state.lease.is_clean


async def test_who_asks_for_a_queue_meanwhile_is_sent_to_the_next_master() -> None:
    master = Replica(MemoryLog())
    async with running(master), served(master, master.groups.promise_session) as broker:
        await master.lead(1)
        member = Participant(broker, "a")
        await member.join()
        master.log.is_sync = False
        ending = asyncio.create_task(master.journal.leave())
        await asyncio.sleep(0.01)
        await member.acquire(0)
        assert (await member.hears("failed")).failed.code == common_pb2.NOT_MASTER
        master.log.confirm()
        master.log.flush()
        await ending
        assert master.state.lease is not None
        assert not master.state.lease.leases


async def member_fails(member: Participant, joining: asyncio.Task[object]) -> int:
    """With which code its stream ends instead of telling it that it has joined."""
    (outcome,) = await asyncio.gather(joining, return_exceptions=True)
    assert isinstance(outcome, AssertionError)
    (event,) = member.early
    return int(event.failed.code)
