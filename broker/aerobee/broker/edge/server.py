"""The broker's gRPC server."""

from __future__ import annotations

from aerobee.access.node import NodeAccess
from aerobee.broker.config import BrokerConfig
from aerobee.broker.delayed.schedule import Schedule
from aerobee.broker.edge.own.admin_service import AdminService
from aerobee.broker.edge.own.audit_service import AuditService
from aerobee.broker.edge.own.group_service import GroupService
from aerobee.broker.edge.own.needs import broker_needs
from aerobee.broker.edge.own.offset_service import OffsetService
from aerobee.broker.edge.own.pull_service import PullService, add_pull_service
from aerobee.broker.edge.own.request_limits import broker_request_limits
from aerobee.broker.edge.own.ring_service import RingService
from aerobee.broker.edge.own.schedule_service import ScheduleService
from aerobee.broker.edge.own.send_service import SendService
from aerobee.broker.edge.own.transaction_service import TransactionService
from aerobee.broker.edge.replicas.replication_service import (
    ReplicationService,
    add_replication_service,
)
from aerobee.broker.replication.config import ReplicationMode
from aerobee.broker.transactions.wired import Transactions
from aerobee.rocketmq_api.needs import messaging_needs
from aerobee.rocketmq_api.request_limits import messaging_request_limits
from aerobee.rocketmq_api.services.failures import answer_errors
from aerobee.rocketmq_api.services.methods import SERVICE_NAME as ROCKETMQ
from aerobee.rocketmq_api.services.service import MessagingService, add_messaging_service
from aerobee.rpc.call_border import SUCCESS
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
from aerobee.v1 import audit_pb2, audit_pb2_grpc, broker_pb2, broker_pb2_grpc

SERVICE_NAMES = tuple(
    service.full_name
    for file in (broker_pb2.DESCRIPTOR, audit_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
)


class BrokerServer:
    """Listens, says whether it serves, and ends its pull streams when asked."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        latencies: RpcLatencies,
        peer_limits: PeerLimits,
        memory: MemoryBudget,
        tls: NodeTls,
        *,
        access: NodeAccess,
        send: SendService,
        schedule: Schedule,
        transactions: Transactions,
        pull: PullService,
        rings: RingService,
        offsets: OffsetService,
        groups: GroupService,
        admin: AdminService,
        audit: AuditService,
        replication: ReplicationService,
        rocketmq: MessagingService,
    ) -> None:
        """`latencies` gets the time of each request, `peer_limits` the gRPC limits that peers
        hit."""
        self._listen = config.listen
        self._outside = config.outside.listen
        self._outside_tls = tls.outside
        self._pull = pull
        self._rings = rings
        self._rocketmq = rocketmq
        self._asked = transactions.asked
        self._rpc = RpcServer(
            say_error,
            (*SERVICE_NAMES, ROCKETMQ),
            engine=config.grpc.engine,
            limits=(broker_request_limits(), messaging_request_limits()),
            answer_errors=answer_errors(clock),
            connections_max=connections_max(config.own_files),
            memory=memory,
            latencies=latencies,
            clock=clock,
            observer=peer_limits,
            guard=access.guard(
                {**broker_needs(config.cluster), **messaging_needs(config.cluster)},
                counts_connections=config.grpc.engine is Engine.OWN,
            ),
            on_disconnected=access.quotas.disconnected,
            tls=tls.accepted,
        )
        server = self._rpc.server
        broker_pb2_grpc.add_SendServiceServicer_to_server(send, server)
        broker_pb2_grpc.add_ScheduleServiceServicer_to_server(ScheduleService(schedule), server)
        broker_pb2_grpc.add_TransactionServiceServicer_to_server(
            TransactionService(
                transactions.ends, transactions.listing, transactions.asked, transactions.turns
            ),
            server,
        )
        add_pull_service(pull, server)
        broker_pb2_grpc.add_RingServiceServicer_to_server(rings, server)
        broker_pb2_grpc.add_OffsetServiceServicer_to_server(offsets, server)
        broker_pb2_grpc.add_GroupServiceServicer_to_server(groups, server)
        broker_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
        audit_pb2_grpc.add_AuditServiceServicer_to_server(audit, server)
        add_replication_service(replication, server)
        add_messaging_service(rocketmq, server)

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


def count_acknowledged(latencies: RpcLatencies, in_time: bool, elapsed_s: float) -> None:
    """Messages over a stream count as the same request as a single one."""
    latencies.observe(SEND_MESSAGE, SUCCESS if in_time else "acknowledge_timeout", elapsed_s)


def promise_of(config: BrokerConfig) -> broker_pb2.Durability:
    """What an unqualified acknowledgement means."""
    is_flushed = config.store.flush_mode is FlushMode.SYNC
    if config.replication.mode is ReplicationMode.SYNC:
        return broker_pb2.REPLICATED_FSYNCED if is_flushed else broker_pb2.REPLICATED
    return broker_pb2.FSYNCED if is_flushed else broker_pb2.PAGE_CACHE
