"""What a broker serves to official clients, put together from its parts."""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from aerobee.broker.cluster.own_address import OwnAddress
from aerobee.broker.config import BrokerConfig
from aerobee.broker.delayed.feature import Delays
from aerobee.broker.edge.own.pop_service import PopService
from aerobee.broker.edge.own.ring_service import RingService
from aerobee.broker.edge.rocketmq.known import OwnGroups, OwnTopics
from aerobee.broker.edge.rocketmq.own_pops import OwnPops
from aerobee.broker.edge.rocketmq.own_queues import OwnQueues
from aerobee.broker.edge.rocketmq.own_reads import OwnReads
from aerobee.broker.edge.rocketmq.own_transactions import AskedProducers, OwnTransactions
from aerobee.broker.groups.receivers import Receivers
from aerobee.broker.observe.metrics.traffic import Traffic
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.popping.feature import Popping
from aerobee.broker.reading.egress import Egress
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.ingest import Ingest
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.feature import Transactions
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.nameservers import Nameservers
from aerobee.cluster_view.routes import Routes
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.ports import RouteSource
from aerobee.rocketmq_api.services.service import MessagingService
from aerobee.runtime.clock import Clock
from aerobee.store.engine.tables.config_tables import SubscriptionGroupTable, TopicTable


class Parts(Protocol):
    """What official clients' calls need of the broker."""

    config: BrokerConfig
    clock: Clock
    chance: random.Random
    topics: TopicTable
    groups: SubscriptionGroupTable
    guard: Guard
    roles: Roles
    ingest: Ingest
    durability: Durability
    writes: OwnWrites
    egress: Egress
    queues: QueueReader
    lookup: MessageLookup
    traffic: Traffic
    offsets: ConsumerOffsets
    delays: Delays
    popping: Popping
    transactions: Transactions
    address: OwnAddress
    channels: Channels
    clients: ClientTable
    expressions: CompiledExpressions


class RocketmqApi:
    """The service of one run; `run` keeps the routes it has requested fresh, and lets other brokers
    ask the producers connected here."""

    def __init__(self, parts: Parts) -> None:
        config, clock, is_master = parts.config, parts.clock, parts.roles.may_act
        self._routes: Routes | None = None
        if config.nameservers:
            self._routes = Routes(
                parts.channels,
                Nameservers(parts.channels, config.nameservers, clock=clock, chance=parts.chance),
                config.cluster,
                clock=clock,
                chance=parts.chance,
            )
        routes: RouteSource = self._routes or OwnTopics(
            parts.topics,
            parts.address,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            is_master=is_master,
        )
        self.clients, self.expressions = parts.clients, parts.expressions
        self.clients.on_gone = parts.popping.pops.client_gone
        self.pops = _own_pops(parts)
        self.service = MessagingService(
            routes=routes,
            clients=self.clients,
            node=f"{config.broker_name}-{config.broker_id}-{parts.chance.getrandbits(64):016x}",
            peers=parts.channels,
            clock=clock,
            sending=config.rocketmq.sending(),
            own=OwnQueues(
                config.broker_name,
                parts.ingest,
                parts.durability,
                parts.delays.schedule,
                clock,
                is_master=is_master,
                store_host_ipv6=parts.writes.store_host_ipv6,
            ),
            reads=OwnReads(
                config.broker_name,
                parts.egress,
                parts.queues,
                parts.offsets,
                parts.guard,
                clock,
                is_master=is_master,
                on_delivered=parts.traffic.delivered,
            ),
            pops=self.pops,
            transactions=OwnTransactions(
                config.broker_name, parts.transactions.ends, is_master=is_master
            ),
            groups=OwnGroups(parts.groups),
            expressions=self.expressions,
        )

        groups = OwnGroups(parts.groups)
        self.receivers = Receivers()
        self.pop_service = PopService(self.pops, groups, self.expressions, self.receivers, clock)
        self.ring_service = RingService(parts.popping.bells, parts.popping.pops, self.pops.keys)
        self._changed: set[str] = set()
        parts.topics.on_put = self._topic_changed
        parts.transactions.ask_also(AskedProducers(self.service.questions))

    def _topic_changed(self, name: str) -> None:
        # Thousands may change in one turn.
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._tell_changed)
        self._changed.add(name)

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, set()
        self.service.rings.topics_changed(changed)
        self.ring_service.topics_changed(changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.service.run(), name="questions")
            if self._routes is not None:
                tasks.create_task(self._routes.run(), name="routes")


def _own_pops(parts: Parts) -> OwnPops:
    return OwnPops(
        parts.config.broker_name,
        parts.popping.pops,
        parts.topics,
        parts.offsets,
        parts.guard,
        parts.lookup,
        parts.clock,
        parts.chance,
        is_master=parts.roles.may_act,
        is_ordered=parts.popping.is_ordered,
        on_delivered=parts.traffic.delivered,
    )
