"""The broker's gRPC server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from aerobee.access.needs import Resources
from aerobee.access.node import NodeAccess
from aerobee.broker.cluster.closing import Closing
from aerobee.broker.cluster.retired_topics import RetiredTopics
from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.config import BrokerConfig
from aerobee.broker.counters import Counters
from aerobee.broker.delayed.feature import Delays
from aerobee.broker.edge.own.admin_service import AdminService
from aerobee.broker.edge.own.audit_service import AuditService
from aerobee.broker.edge.own.client_rows import HeardProducer
from aerobee.broker.edge.own.group_service import GroupService
from aerobee.broker.edge.own.needs import BrokerNeeds, broker_needs
from aerobee.broker.edge.own.offset_service import OffsetService
from aerobee.broker.edge.own.pull_service import PullService, add_pull_service
from aerobee.broker.edge.own.recurring_service import RecurringService
from aerobee.broker.edge.own.request_limits import broker_request_limits
from aerobee.broker.edge.own.schedule_service import ScheduleService
from aerobee.broker.edge.own.send_service import SendService
from aerobee.broker.edge.own.transaction_service import TransactionService
from aerobee.broker.edge.replicas.replication_service import (
    ReplicationService,
    add_replication_service,
)
from aerobee.broker.edge.rocketmq.api import RocketmqApi
from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.member_streams import MemberStreams
from aerobee.broker.observe.audit.log_checksums import LogChecksums
from aerobee.broker.observe.audit.snapshots import Snapshots
from aerobee.broker.observe.broker_state import BrokerState
from aerobee.broker.observe.group_totals import GroupTotals
from aerobee.broker.observe.remaining import RemainingReading
from aerobee.broker.offsets.feature import Progress
from aerobee.broker.popping.feature import Popping
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.recurring.feature import Recurring
from aerobee.broker.replication.config import ReplicationMode
from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.sender import ReplicationSender
from aerobee.broker.retention.cleaning import Cleaning
from aerobee.broker.retries.feature import Retries
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.ingest import Ingest
from aerobee.broker.sending.message_encoder import MessageEncoder
from aerobee.broker.transactions.feature import Transactions
from aerobee.cluster_view import audit_log_service
from aerobee.rocketmq_api.needs import messaging_needs
from aerobee.rocketmq_api.request_limits import messaging_request_limits
from aerobee.rocketmq_api.services.failures import answer_errors
from aerobee.rocketmq_api.services.methods import SERVICE_NAME as ROCKETMQ
from aerobee.rocketmq_api.services.service import add_messaging_service
from aerobee.rpc.call_border import SUCCESS
from aerobee.rpc.core.first_bytes import Beside
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.rpc.serving import RpcServer
from aerobee.rpc.tls import NodeTls
from aerobee.runtime.clock import Clock
from aerobee.runtime.machine import connections_max
from aerobee.runtime.metrics.rpc_latencies import SEND_MESSAGE, RpcLatencies
from aerobee.store.engine.config import FlushMode
from aerobee.v1 import audit_pb2, audit_pb2_grpc, broker_pb2, broker_pb2_grpc, common_pb2

SERVICE_NAMES = (
    audit_log_service.SERVICE_NAME,
    *(
        service.full_name
        for file in (broker_pb2.DESCRIPTOR, audit_pb2.DESCRIPTOR)
        for service in file.services_by_name.values()
    ),
)


class Parts(Protocol):
    """What our own protocol's calls need of the broker."""

    config: BrokerConfig
    clock: Clock
    tls: NodeTls
    access: NodeAccess
    memory: MemoryBudget
    peer_limits: PeerLimits
    latencies: RpcLatencies
    """Gets the time of each request."""
    identity: common_pb2.BrokerIdentity
    roles: Roles
    guard: Guard
    counters: Counters
    ingest: Ingest
    encoder: MessageEncoder
    durability: Durability
    sender: ReplicationSender
    reads: ReadPool
    queues: QueueReader
    lookup: MessageLookup
    current_run: CurrentRun
    progress: Progress
    member_streams: MemberStreams
    retries: Retries
    popping: Popping
    transactions: Transactions
    delays: Delays
    recurring: Recurring
    cleaning: Cleaning
    handover: Handover
    closing: Closing
    retired: RetiredTopics
    state: BrokerState
    remaining: RemainingReading
    totals: GroupTotals
    snapshots: Snapshots
    checksums: LogChecksums
    pull_service: PullService
    rocketmq: RocketmqApi
    beside: Beside | None
    """Another protocol on the same ports."""
    producers_beside: Callable[[], Iterable[tuple[str, HeardProducer]]]
    """Its producers, with their addresses."""


class BrokerServer:
    """Listens, says whether it serves, and ends its pull streams when asked."""

    def __init__(self, parts: Parts) -> None:
        config = parts.config
        self._listen = config.listen
        self._outside = config.outside.listen
        self._outside_tls = parts.tls.outside
        self._pull = parts.pull_service
        self._rings = parts.rocketmq.ring_service
        self._rocketmq = parts.rocketmq.service
        self._asked = parts.transactions.asked
        self._rpc = RpcServer(
            say_error,
            (*SERVICE_NAMES, ROCKETMQ),
            engine=config.grpc.engine,
            busy_poll_us=config.grpc.busy_poll_us,
            limits=(
                broker_request_limits(),
                messaging_request_limits(),
                audit_log_service.request_limits(),
            ),
            answer_errors=answer_errors(parts.clock),
            connections_max=connections_max(config.own_files),
            memory=parts.memory,
            latencies=parts.latencies,
            clock=parts.clock,
            observer=parts.peer_limits,
            guard=parts.access.guard(
                {
                    **broker_needs(config.cluster),
                    **messaging_needs(config.cluster),
                    **audit_log_service.needs(config.cluster),
                },
                counts_connections=config.grpc.engine is Engine.OWN,
            ),
            on_disconnected=parts.access.quotas.disconnected,
            beside=parts.beside,
            tls=parts.tls.accepted,
        )
        self._add_services(parts)

    def _add_services(self, parts: Parts) -> None:
        server, transactions = self._rpc.server, parts.transactions
        schedule = ScheduleService(parts.delays.schedule)
        ending = TransactionService(
            transactions.ends,
            transactions.listing,
            transactions.asked,
            transactions.turns,
            check_now=transactions.checks.check_now,
        )
        broker_pb2_grpc.add_SendServiceServicer_to_server(_send_service(parts), server)
        broker_pb2_grpc.add_ScheduleServiceServicer_to_server(schedule, server)
        broker_pb2_grpc.add_RecurringServiceServicer_to_server(
            RecurringService(parts.recurring.book), server
        )
        broker_pb2_grpc.add_TransactionServiceServicer_to_server(ending, server)
        add_pull_service(self._pull, server)
        broker_pb2_grpc.add_PopServiceServicer_to_server(parts.rocketmq.pop_service, server)
        broker_pb2_grpc.add_RingServiceServicer_to_server(self._rings, server)
        broker_pb2_grpc.add_OffsetServiceServicer_to_server(_offset_service(parts), server)
        broker_pb2_grpc.add_GroupServiceServicer_to_server(_group_service(parts), server)
        broker_pb2_grpc.add_AdminServiceServicer_to_server(_admin_service(parts), server)
        audit_pb2_grpc.add_AuditServiceServicer_to_server(_audit_service(parts), server)
        audit_log_service.add_to(server, parts.access.recorder)
        add_replication_service(ReplicationService(parts.sender), server)
        add_messaging_service(self._rocketmq, server)

    async def start(self) -> int:
        """Bind and answer, not yet SERVING; returns the port.

        Raises:
            InvalidArgument: the address is in use or not of this machine.
        """
        port = await self._rpc.start(self._listen, serving=False)
        if self._outside:
            await self._rpc.start_outside(self._outside, self._outside_tls)
        return port

    async def set_serving(self, serving: bool) -> None:
        await self._rpc.set_serving(serving)

    def end_pulls(self) -> None:
        """Tell every puller to come back later."""
        self._pull.close_sessions()
        self._rocketmq.end_streams()
        self._rings.close()
        self._asked.close()

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running ones end for `grace_s` seconds, then cancel them."""
        await self._rpc.stop(grace_s)


def _send_service(parts: Parts) -> SendService:
    return SendService(
        parts.ingest,
        parts.encoder,
        parts.durability,
        parts.counters,
        parts.clock,
        promise=_promise_of(parts.config),
        on_acknowledged=partial(_count_acknowledged, parts.latencies),
    )


def _offset_service(parts: Parts) -> OffsetService:
    return OffsetService(
        parts.progress.offsets,
        parts.progress.removal,
        parts.guard,
        parts.queues,
        parts.retries.send_backs,
        parts.retries.dead_letters,
        parts.reads.loop_turns,
        is_sealed=parts.retired.is_sealed,
        after_reset=parts.popping.until_written,
    )


def _group_service(parts: Parts) -> GroupService:
    progress = parts.progress
    return GroupService(
        progress.coordinator,
        progress.offsets,
        parts.clock,
        streams=parts.member_streams,
        removal=progress.removal,
        sessions=parts.config.sessions,
        on_session_timeout=parts.current_run.promise_session,
        on_group=progress.known.admit,
        settings=parts.retries.settings,
        make_topics=parts.retries.topics.make_subscribed,
        bounds=parts.queues.bounds,
        clients=parts.rocketmq.clients,
        receivers=parts.rocketmq.receivers,
        expressions=parts.rocketmq.expressions,
        turns=parts.reads.loop_turns,
        producers_beside=parts.producers_beside,
        totals=parts.totals.read,
    )


def _admin_service(parts: Parts) -> AdminService:
    return AdminService(
        parts.identity,
        parts.state.now,
        parts.lookup,
        parts.cleaning,
        parts.handover,
        parts.closing,
        parts.retired,
        parts.remaining.read,
        BrokerNeeds(Resources(parts.config.cluster)),
    )


def _audit_service(parts: Parts) -> AuditService:
    return AuditService(
        parts.identity,
        parts.state.now,
        parts.guard,
        parts.roles,
        parts.snapshots,
        parts.checksums,
    )


def _count_acknowledged(latencies: RpcLatencies, in_time: bool, elapsed_s: float) -> None:
    """Messages over a stream count as the same request as a single one."""
    latencies.observe(SEND_MESSAGE, SUCCESS if in_time else "acknowledge_timeout", elapsed_s)


def _promise_of(config: BrokerConfig) -> broker_pb2.Durability:
    """What an unqualified acknowledgement means."""
    is_flushed = config.store.flush_mode is FlushMode.SYNC
    if config.replication.mode is ReplicationMode.SYNC:
        return broker_pb2.REPLICATED_FSYNCED if is_flushed else broker_pb2.REPLICATED
    return broker_pb2.FSYNCED if is_flushed else broker_pb2.PAGE_CACHE
