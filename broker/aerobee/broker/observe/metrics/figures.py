"""All metrics of one broker at one moment, copied on the loop a little at a time.

Owns: which of them exist; each one is defined in `rocketmq` or `own`. Nothing here changes the
broker, except that counts of deleted topics and idle groups are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from aerobee.access.node import NodeAccess
from aerobee.broker.cluster.own_address import OwnAddress
from aerobee.broker.cluster.registration import Registration
from aerobee.broker.config import BrokerConfig
from aerobee.broker.counters import Counters
from aerobee.broker.features import Feature
from aerobee.broker.observe.broker_state import BrokerState
from aerobee.broker.observe.metrics import own, rocketmq
from aerobee.broker.observe.metrics.lag import GroupLag, LagReading
from aerobee.broker.observe.metrics.store_times import StoreTimes
from aerobee.broker.observe.metrics.traffic import Traffic
from aerobee.broker.observe.stats import BrokerStatistics
from aerobee.broker.offsets.feature import Progress
from aerobee.broker.reading.pull_session import PullSession
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.guard import Guard
from aerobee.domain.topic_attributes import MESSAGE_TYPE
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.runtime.clock import Clock
from aerobee.runtime.collector_pauses import CollectorPauses
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.runtime.metrics.families import AnyFamily, Gathered, one_gauge
from aerobee.runtime.metrics.rpc_latencies import RpcLatencies
from aerobee.runtime.metrics.slices import Slices
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.flush.disk_watch import DiskWatch

NODE_TYPE = "broker"
_MESSAGE_TYPES = frozenset({"normal", "fifo", "delay", "transaction", "mixed"})


class Parts(Protocol):
    """The parts of the broker that report something."""

    config: BrokerConfig
    clock: Clock
    address: OwnAddress
    state: BrokerState
    registration: Registration | None
    roles: Roles
    guard: Guard
    topics: TopicTable
    progress: Progress
    counters: Counters
    traffic: Traffic
    latencies: RpcLatencies
    peer_limits: PeerLimits
    memory: MemoryBudget
    access: NodeAccess
    loop_delay: LoopDelay
    collector: CollectorPauses
    times: StoreTimes
    lag: LagReading
    pull_sessions: Callable[[], list[PullSession]]
    watch: DiskWatch


class BrokerFigures:
    """On the loop."""

    def __init__(self, parts: Parts, features: Sequence[Feature]) -> None:
        self._parts = parts
        self._features = features

    async def gather(self) -> Gathered:
        """Everything that is known now."""
        clock = self._parts.clock
        began_s = clock.monotonic_s()
        slices = Slices(clock)
        families = self._at_once(self._parts.state.now())
        await slices.breathe()
        families += await self._traffic_families(slices)
        families += await self._lags(slices)
        for feature in self._features:
            families += await feature.figures()
        families += rocketmq.broker_families(
            self._parts.state.now(),
            is_readable=self._is_readable(),
            oldest_age_ms=await self._oldest_age_ms(),
        )
        families += [
            one_gauge(
                "aerobee_metrics_step_seconds",
                "Longest time for which copying these figures held the event loop.",
                slices.longest_s,
            ),
            one_gauge(
                "aerobee_metrics_gather_seconds",
                "Time to copy these figures, including pauses for other work.",
                clock.monotonic_s() - began_s,
            ),
        ]
        labels = {
            "cluster": self._parts.config.cluster,
            "node_type": NODE_TYPE,
            "node_id": self._parts.address.text,
        }
        return Gathered(labels, families)

    def _at_once(self, statistics: BrokerStatistics) -> list[AnyFamily]:
        parts, now_s = self._parts, self._parts.clock.monotonic_s()
        config, roles, registration = parts.config, parts.roles, parts.registration
        term = roles.term
        return [
            own.info_family(
                {
                    "version": statistics.version,
                    "broker_name": config.broker_name,
                    "broker_id": str(config.broker_id),
                    "flush_mode": statistics.flush_mode,
                    "replication_mode": statistics.replication.mode,
                }
            ),
            *own.role_families(statistics, roles, now_s=now_s),
            *own.registration_families(None if registration is None else registration.statistics()),
            *own.replication_families(
                statistics,
                in_sync=None if term is None else len(term.in_sync),
                in_sync_min=config.replication.min_insync_replicas,
            ),
            *own.store_families(statistics, oldest_write_s=parts.watch.oldest_s),
            *own.work_families(
                statistics,
                parts.loop_delay.histogram.copy(),
                leases=parts.progress.coordinator.ownership.leases.held_count,
                pull_streams=len(parts.pull_sessions()),
                groups_expired=parts.progress.expiry.expired,
            ),
            parts.collector.family(),
            *rocketmq.connection_families(
                parts.counters.send_streams,
                parts.progress.coordinator.members.all_members(),
                groups_max=config.metrics.consumers_max,
            ),
            parts.latencies.family(),
            parts.peer_limits.family(),
            *parts.memory.families(),
            parts.access.quotas.family(),
        ]

    async def _traffic_families(self, slices: Slices) -> list[AnyFamily]:
        parts = self._parts
        traffic, topics = parts.traffic, parts.topics
        with_members = frozenset(parts.progress.coordinator.members.names())
        traffic.forget(lambda topic: topic in topics, with_members, parts.clock.monotonic_s())
        incoming = rocketmq.IncomingFamilies()
        for topic, counts in traffic.incoming():
            incoming.add(topic, self._message_type(topic), counts)
            await slices.breathe()
        outgoing = rocketmq.OutgoingFamilies()
        for reader, sent in traffic.outgoing():
            outgoing.add(reader, sent)
            await slices.breathe()
        dead = rocketmq.dead_letter_family(traffic.dead_letters())
        return [*incoming.families(), *outgoing.families(), dead]

    def _message_type(self, topic: str) -> str:
        config = self._parts.topics.get(topic)
        kind = "" if config is None else config.attributes.get(MESSAGE_TYPE, "").lower()
        return kind if kind in _MESSAGE_TYPES else "normal"

    async def _lags(self, slices: Slices) -> list[AnyFamily]:
        lags = rocketmq.LagFamilies(self._parts.config.metrics.consumers_max)
        # What there is no room for is left out at the end.
        for row in sorted(await self._group_lags(slices), key=rocketmq.importance):
            lags.add(row)
            await slices.breathe()
        return lags.families()

    async def _group_lags(self, slices: Slices) -> list[GroupLag]:
        """Empty if the committed offsets are uncertain: on slaves, and on a new master."""
        if not self._parts.roles.may_act():
            return []
        try:
            self._parts.progress.offsets.check_known()
        except AerobeeError:
            return []
        return await self._parts.lag.read(self._parts.clock.now_ms, slices)

    def _is_readable(self) -> bool:
        guard = self._parts.guard
        try:
            guard.check_available()
            guard.check_confirmed()
        except AerobeeError:
            return False
        return True

    async def _oldest_age_ms(self) -> int | None:
        first_ms = await self._parts.times.first_ms()
        return None if first_ms is None else max(0, self._parts.clock.now_ms() - first_ms)
