"""The parts of a broker that serve official clients' calls, put together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aerobee.broker.edge.own.ring_service import RingService
from aerobee.broker.edge.rocketmq.known import OwnGroups, OwnTopics
from aerobee.broker.edge.rocketmq.own_pops import OwnPops
from aerobee.broker.edge.rocketmq.own_queues import OwnQueues
from aerobee.broker.edge.rocketmq.own_reads import OwnReads
from aerobee.broker.edge.rocketmq.own_transactions import AskedProducers, OwnTransactions
from aerobee.cluster_view.nameservers import Nameservers
from aerobee.cluster_view.routes import Routes
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.services.ports import RouteSource
from aerobee.rocketmq_api.services.service import MessagingService

if TYPE_CHECKING:
    from aerobee.broker.wiring import Wiring


class RocketmqApi:
    """The service of one run; `run` keeps the routes it has requested fresh, and lets other brokers
    ask the producers connected here."""

    def __init__(self, parts: Wiring) -> None:
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
            parts.folder.topics,
            parts.address,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            is_master=is_master,
        )
        self.clients = ClientTable(clock, on_gone=parts.popping.pops.client_gone)
        self.expressions = CompiledExpressions(turn=parts.reads.loop_turns.turn)
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
            groups=OwnGroups(parts.folder.groups),
            expressions=self.expressions,
        )

        self.ring_service = RingService(parts.popping.bells, parts.popping.pops, self.pops.keys)
        self._changed: set[str] = set()
        parts.folder.topics.on_put = self._topic_changed
        self.producers = AskedProducers(self.service.questions)

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


def _own_pops(parts: Wiring) -> OwnPops:
    return OwnPops(
        parts.config.broker_name,
        parts.popping.pops,
        parts.folder.topics,
        parts.offsets,
        parts.guard,
        parts.lookup,
        parts.clock,
        parts.chance,
        is_master=parts.roles.may_act,
        is_ordered=parts.popping.is_ordered,
        on_delivered=parts.traffic.delivered,
    )
