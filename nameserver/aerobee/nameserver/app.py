"""The nameserver's composition root: the only file that knows every part.

It serves from the first moment: until etcd has been reached once, calls are refused with
RegistryUnavailable and gRPC health says NOT_SERVING; after that, known routes are always served.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from socket import gethostname

from aerobee.access.book import AccessBook
from aerobee.access.node import NodeAccess
from aerobee.access.nodes import NAMESERVER, NodeName
from aerobee.access.recorder import Recorder
from aerobee.access.recording import recording
from aerobee.cluster_view import audit_log_service
from aerobee.cluster_view.channels import Channels
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.nameserver.access_service import AccessService
from aerobee.nameserver.broker_groups import BrokerGroups
from aerobee.nameserver.config import NameserverConfig
from aerobee.nameserver.elector import Elector
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.etcd_calls import EtcdCalls
from aerobee.nameserver.etcd_certificates import EtcdCertificates
from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.nameserver.log_reach import LogPositions
from aerobee.nameserver.metrics import NODE_TYPE, WILDCARDS, NameserverFigures
from aerobee.nameserver.needs import nameserver_needs
from aerobee.nameserver.registry import Registry
from aerobee.nameserver.remoting import remoting_server
from aerobee.nameserver.replica_sets import ReplicaSets
from aerobee.nameserver.request_limits import access_request_limits, nameserver_request_limits
from aerobee.nameserver.rocketmq import AskedGroups, KnownRoutes
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.service import NameserverService
from aerobee.nameserver.sessions import BrokerSessions
from aerobee.nameserver.stored import Keys
from aerobee.nameserver.stored_quotas import StoredQuotas
from aerobee.nameserver.topics import Topics
from aerobee.nameserver.users import Users
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.needs import messaging_needs
from aerobee.rocketmq_api.request_limits import messaging_request_limits
from aerobee.rocketmq_api.services.failures import answer_errors
from aerobee.rocketmq_api.services.methods import SERVICE_NAME as ROCKETMQ
from aerobee.rocketmq_api.services.service import MessagingService, add_messaging_service
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.memory_budget import NAMESERVER_MEMORY, MemoryBudget
from aerobee.rpc.node_ports import serve_node_ports
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.rpc.serving import RpcServer
from aerobee.rpc.tls import NodeTls
from aerobee.runtime.clock import Clock, SystemClock, system_random
from aerobee.runtime.health import Question
from aerobee.runtime.log import log_event
from aerobee.runtime.loop_turns import LoopTurns
from aerobee.runtime.machine import usable_memory
from aerobee.runtime.retry import Backoff
from aerobee.runtime.spared_collector import SparedCollector
from aerobee.runtime.supervise import ExitCode, Lifecycle, run_service
from aerobee.runtime.watched_file import LOOK_INTERVAL_S
from aerobee.v1 import access_pb2, access_pb2_grpc, nameserver_pb2, nameserver_pb2_grpc

log = logging.getLogger(__name__)

ACCESS = access_pb2.DESCRIPTOR.services_by_name["AccessService"].full_name
SERVICE_NAME = nameserver_pb2.DESCRIPTOR.services_by_name["NameserverService"].full_name


def run_nameserver(
    config: NameserverConfig, *, on_hangup: Callable[[], None] | None = None
) -> ExitCode:
    """A whole nameserver process, until a signal ends it; SIGHUP calls `on_hangup`."""

    async def service(lifecycle: Lifecycle) -> None:
        clock = SystemClock()
        collector = SparedCollector(clock, usable_memory().bytes)
        collector.begin()
        try:
            await serve_nameserver(
                config,
                lifecycle,
                clock=clock,
                chance=system_random(),
                on_listening=lambda _: collector.opened(),
            )
        finally:
            collector.end()

    return run_service("nameserver", service, on_hangup=on_hangup)


async def serve_nameserver(
    config: NameserverConfig,
    lifecycle: Lifecycle,
    *,
    clock: Clock,
    chance: random.Random,
    on_listening: Callable[[int], None] | None = None,
    store: KeyValueStore | None = None,
) -> None:
    """Serve until `lifecycle.stop`; `on_listening` gets the port. `store`: for tests, not etcd.

    Raises InvalidArgument: it cannot listen on the address, or has too little memory.
    """
    keys, positions, hearing = Keys(config.cluster), LogPositions(), ExitStack()
    backoff = Backoff(base_ms=50, max_ms=max(50, config.etcd.reconnect_max_ms))
    health, peer_limits, memory = NameserverHealth(), PeerLimits(), _memory()
    async with (
        serve_node_ports(config, NODE_TYPE, health, peer_limits, clock=clock) as (tls, metrics),
        recording(config, f"{NODE_TYPE}:{_place(config)}", NODE_TYPE, clock, metrics) as recorder,
        _opened(store, config, chance, clock) as etcd,
    ):
        cache = RouteCache(etcd, keys, backoff=backoff, chance=chance, clock=clock)
        sets = ReplicaSets(etcd, keys, positions, allow_unclean=config.unclean_election)
        registry = Registry(etcd, keys, sets, config.broker_lease)
        sessions = BrokerSessions(registry, cache, positions, cluster=config.cluster, clock=clock)
        topics = Topics(etcd, keys, cache, config.topics, clock)
        access = _access(config, cache, recorder, hearing, clock)
        figures = NameserverFigures(
            config, cache, sessions, etcd.calls, peer_limits, memory, access.quotas, clock
        )
        service = _own_service(config, cache, topics, sessions, sets, etcd.calls)
        channels = _channels(config, access, tls, chance, memory)
        rocketmq = _rocketmq_service(config, cache, channels, clock, chance)
        services = (service, _access_service(etcd, keys, cache, access), rocketmq)
        server = _server(config, access, services, figures, peer_limits, memory, tls, clock, cache)
        port = await _listen(config, server, tls)
        health.listens(cache.why_unknown)
        figures.listens(port)
        metrics.show(NODE_TYPE, figures.gather)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(cache.run(), name="route-cache"),
                    tasks.create_task(Elector(sets, cache, clock=clock).run(), name="elector"),
                    tasks.create_task(_keep_fresh(access.book), name="cluster-secret"),
                    tasks.create_task(sessions.keep_noting(), name="durable-ends"),
                    tasks.create_task(etcd.keep_trying_writes(), name="etcd-writes"),
                    tasks.create_task(sessions.ends.run(), name="stream-ends"),
                    tasks.create_task(figures.loop_delay.run(), name="loop-delay"),
                    tasks.create_task(figures.collector.run(), name="collector-pauses"),
                    tasks.create_task(_serve_when_known(cache, server), name="health"),
                    tasks.create_task(rocketmq.run(), name="questions"),
                    tasks.create_task(_watch_etcd(config, tls), name="etcd-certificates"),
                ]
                if on_listening is not None:
                    on_listening(port)
                lifecycle.ready()
                await lifecycle.stop.wait()
                health.ends()
                await server.set_serving(False)
                service.stop_streams()
                rocketmq.end_streams()
                await server.stop(config.stop_grace_ms / 1_000)
                for task in running:
                    task.cancel()
        finally:
            hearing.close()
            await server.stop(0)
            await channels.close()
        log_event(log, "nameserver stopped")


async def _watch_etcd(config: NameserverConfig, tls: NodeTls) -> None:
    """The expiry of certificates between nameserver and etcd."""
    tls.watch("etcd client", config.etcd.tls.certificate)
    tls.watch("etcd authority", config.etcd.tls.ca)
    await EtcdCertificates(config.etcd, tls.tell).run()


@asynccontextmanager
async def _opened(
    store: KeyValueStore | None, config: NameserverConfig, chance: random.Random, clock: Clock
) -> AsyncIterator[KeyValueStore]:
    """etcd, unless something stands in for it, which its owner closes."""
    if store is not None:
        yield store
        return
    async with Etcd(config.etcd, chance=chance, clock=clock) as etcd:
        yield etcd


def _access(
    config: NameserverConfig,
    cache: RouteCache,
    recorder: Recorder,
    hearing: ExitStack,
    clock: Clock,
) -> NodeAccess:
    name = NodeName(NAMESERVER, config.cluster)
    access = NodeAccess(config.access, name, clock=clock, recorder=recorder)
    # First, so that a task woken by a change of users finds it in the book.
    hearing.enter_context(cache.changed.subscribed(partial(_hear_access, cache, access.book)))
    return access


def _channels(
    config: NameserverConfig,
    access: NodeAccess,
    tls: NodeTls,
    chance: random.Random,
    memory: MemoryBudget,
) -> Channels:
    return Channels(
        chance=chance,
        credentials=access.credentials,
        tls=tls.dialled,
        memory=memory.channels,
    )


def _rocketmq_service(
    config: NameserverConfig,
    cache: RouteCache,
    channels: Channels,
    clock: Clock,
    chance: random.Random,
) -> MessagingService:
    return MessagingService(
        routes=KnownRoutes(config.cluster, cache),
        groups=AskedGroups(cache, channels, clock),
        clients=ClientTable(clock),
        node=f"nameserver-{chance.getrandbits(64):016x}",
        expressions=CompiledExpressions(turn=LoopTurns(clock).turn),
        peers=channels,
        clock=clock,
        sending=config.rocketmq.sending(),
    )


def _access_service(
    etcd: KeyValueStore, keys: Keys, cache: RouteCache, access: NodeAccess
) -> AccessService:
    users = Users(etcd, keys, cache, access.book)
    return AccessService(users, StoredQuotas(etcd, keys, cache), access.book)


def _own_service(
    config: NameserverConfig,
    cache: RouteCache,
    topics: Topics,
    sessions: BrokerSessions,
    sets: ReplicaSets,
    calls: EtcdCalls,
) -> NameserverService:
    spread_timeout_s = config.topics.spread_timeout_ms / 1_000
    return NameserverService(
        cluster=config.cluster,
        cache=cache,
        topics=topics,
        sessions=sessions,
        replica_sets=sets,
        etcd_trouble=lambda: calls.trouble,
        broker_groups=BrokerGroups(sets, topics, cache, timeout_s=spread_timeout_s),
        auto_create=config.topics.auto_create,
        spread_timeout_s=spread_timeout_s,
    )


def _memory() -> MemoryBudget:
    """Raises InvalidArgument: there is too little."""
    usable = usable_memory()
    memory = MemoryBudget(NAMESERVER_MEMORY, usable)
    log_event(log, "memory", bytes=usable.bytes, source=usable.source, parts_mib=memory)
    return memory


def _server(
    config: NameserverConfig,
    access: NodeAccess,
    services: tuple[NameserverService, AccessService, MessagingService],
    figures: NameserverFigures,
    peer_limits: PeerLimits,
    memory: MemoryBudget,
    tls: NodeTls,
    clock: Clock,
    cache: RouteCache,
) -> RpcServer:
    service, users, rocketmq = services
    server = RpcServer(
        say_error,
        [SERVICE_NAME, ACCESS, audit_log_service.SERVICE_NAME, ROCKETMQ],
        engine=config.grpc.engine,
        busy_poll_us=config.grpc.busy_poll_us,
        limits=(
            nameserver_request_limits(),
            access_request_limits(),
            messaging_request_limits(),
            audit_log_service.request_limits(),
        ),
        answer_errors=answer_errors(clock),
        memory=memory,
        latencies=figures.latencies,
        clock=clock,
        observer=peer_limits,
        guard=access.guard(
            {
                **nameserver_needs(config.cluster),
                **messaging_needs(config.cluster),
                **audit_log_service.needs(config.cluster),
            },
            counts_connections=config.grpc.engine is Engine.OWN,
        ),
        on_disconnected=access.quotas.disconnected,
        beside=remoting_server(config, cache, service, users.users, memory, access, clock),
        tls=tls.accepted,
    )
    add_service = nameserver_pb2_grpc.add_NameserverServiceServicer_to_server
    add_service(service, server.server)  # type: ignore[no-untyped-call]
    add_access = access_pb2_grpc.add_AccessServiceServicer_to_server
    add_access(users, server.server)  # type: ignore[no-untyped-call]
    audit_log_service.add_to(server.server, access.recorder)
    add_messaging_service(rocketmq, server.server)
    return server


async def _listen(config: NameserverConfig, server: RpcServer, tls: NodeTls) -> int:
    """Returns the port of the inside listener. Raises InvalidArgument."""
    port = await server.start(config.listen, serving=False)
    if config.outside.listen:
        await server.start_outside(config.outside.listen, tls.outside)
    log_event(log, "nameserver listens", address=config.listen, port=port)
    return port


def _place(config: NameserverConfig) -> str:
    """What distinguishes it from the others: nameservers have no names."""
    host, _, port = config.listen.rpartition(":")
    return f"{gethostname() if host in WILDCARDS else host}:{port}"


async def _keep_fresh(book: AccessBook) -> None:
    """Open users' secrets again when the cluster secret has changed."""
    while True:
        await asyncio.sleep(LOOK_INTERVAL_S)
        book.refresh()


def _hear_access(cache: RouteCache, book: AccessBook) -> None:
    """Copies users and policies from the cache."""
    if cache.version > 0:
        book.hear(cache.table.access.records)


async def _serve_when_known(cache: RouteCache, server: RpcServer) -> None:
    """Health turns to SERVING once there are routes, and stays so: stale routes are still
    served."""
    known = asyncio.Event()

    def look() -> None:
        if cache.version > 0:
            known.set()

    with cache.changed.subscribed(look):
        look()
        await known.wait()
    await server.set_serving(True)


class NameserverHealth:
    """What a nameserver answers to startup, liveness and readiness.

    It is ready while it has routes, even stale ones: brokers and clients then continue with what is
    known and would gain nothing by going elsewhere. One that never reached etcd cannot answer.
    """

    def __init__(self) -> None:
        self._why_no_routes: Callable[[], str] | None = None
        self._is_stopping = False

    def listens(self, why_no_routes: Callable[[], str]) -> None:
        """Calls are answered from now on; calls for routes as soon as there are any."""
        self._why_no_routes = why_no_routes

    def ends(self) -> None:
        """The nameserver is stopping."""
        self._is_stopping = True

    def why_not(self, question: Question) -> str:
        match question:
            case Question.STARTUP:
                return "" if self._why_no_routes is not None else "the nameserver is starting"
            case Question.LIVENESS:
                # The event loop answered this, which is all that liveness means.
                return ""
            case Question.READINESS:
                if self._is_stopping:
                    return "the nameserver is stopping"
                if self._why_no_routes is None:
                    return "the nameserver is starting"
                return self._why_no_routes()
