"""All metrics of one broker at one moment, copied on the loop a little at a time.

Owns: which of them exist; each one is defined in `rocketmq` or `own`. Nothing here changes the
broker, except that counts of deleted topics and idle groups are dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from aerobee.access.quotas import Quotas
from aerobee.broker.cluster.own_address import OwnAddress
from aerobee.broker.cluster.registration import Registration
from aerobee.broker.config import BrokerConfig
from aerobee.broker.counters import Counters
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.observe.metrics import own, rocketmq
from aerobee.broker.observe.metrics.delays import DelayFigures
from aerobee.broker.observe.metrics.lag import GroupLag, LagReading
from aerobee.broker.observe.metrics.store_times import StoreTimes
from aerobee.broker.observe.metrics.traffic import Traffic
from aerobee.broker.observe.metrics.transactions import TransactionFigures
from aerobee.broker.observe.stats import BrokerStatistics
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.group_expiry import GroupExpiry
from aerobee.broker.reading.pull_session import PullSession
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.guard import Guard
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.runtime.metrics.families import AnyFamily, Gathered, one_gauge
from aerobee.runtime.metrics.rpc_latencies import RpcLatencies
from aerobee.runtime.metrics.slices import Slices
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.flush.disk_watch import DiskWatch

NODE_TYPE = "broker"
MESSAGE_TYPE = "message.type"
"""The topic attribute of RocketMQ that says what kind of messages a topic has."""
_MESSAGE_TYPES = frozenset({"normal", "fifo", "delay", "transaction", "mixed"})


class BrokerFigures:
    """On the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        address: OwnAddress,
        *,
        statistics: Callable[[], BrokerStatistics],
        registration: Registration | None,
        roles: Roles,
        guard: Guard,
        topics: TopicTable,
        coordinator: GroupCoordinator,
        offsets: ConsumerOffsets,
        expiry: GroupExpiry,
        counters: Counters,
        traffic: Traffic,
        latencies: RpcLatencies,
        peer_limits: PeerLimits,
        memory: MemoryBudget,
        quotas: Quotas,
        loop_delay: LoopDelay,
        times: StoreTimes,
        lag: LagReading,
        delays: DelayFigures,
        transactions: TransactionFigures,
        sessions: Callable[[], list[PullSession]],
        watch: DiskWatch,
    ) -> None:
        """`sessions` are the broker's pull streams."""
        self._config = config
        self._clock = clock
        self._address = address
        self._statistics = statistics
        self._registration = registration
        self._roles = roles
        self._guard = guard
        self._topics = topics
        self._coordinator = coordinator
        self._offsets = offsets
        self._expiry = expiry
        self._counters = counters
        self._traffic = traffic
        self._latencies = latencies
        self._peer_limits = peer_limits
        self._memory = memory
        self._quotas = quotas
        self._loop_delay = loop_delay
        self._times = times
        self._lag = lag
        self._delays = delays
        self._transactions = transactions
        self._sessions = sessions
        self._watch = watch

    async def gather(self) -> Gathered:
        """Everything that is known now."""
        clock = self._clock
        began_s = clock.monotonic_s()
        slices = Slices(clock)
        families = self._at_once(self._statistics())
        await slices.breathe()
        families += await self._traffic_families(slices)
        families += await self._lags(slices)
        families += await self._delays.families()
        families += self._transactions.families()
        families += rocketmq.broker_families(
            self._statistics(),
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
            "cluster": self._config.cluster,
            "node_type": NODE_TYPE,
            "node_id": self._address.text,
        }
        return Gathered(labels, families)

    def _at_once(self, statistics: BrokerStatistics) -> list[AnyFamily]:
        roles = self._roles
        term = roles.term
        registration = self._registration
        config = self._config
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
            *own.role_families(statistics, roles, now_s=self._clock.monotonic_s()),
            *own.registration_families(None if registration is None else registration.statistics()),
            *own.replication_families(
                statistics,
                in_sync=None if term is None else len(term.in_sync),
                in_sync_min=config.replication.min_insync_replicas,
            ),
            *own.store_families(statistics, oldest_write_s=self._watch.oldest_s),
            *own.work_families(
                statistics,
                self._loop_delay.histogram.copy(),
                leases=self._coordinator.ownership.leases.held_count,
                pull_streams=len(self._sessions()),
                groups_expired=self._expiry.expired,
            ),
            *rocketmq.connection_families(
                self._counters.send_streams,
                self._coordinator.members.all_members(),
                groups_max=config.metrics.consumers_max,
            ),
            self._latencies.family(),
            self._peer_limits.family(),
            *self._memory.families(),
            self._quotas.family(),
        ]

    async def _traffic_families(self, slices: Slices) -> list[AnyFamily]:
        traffic, topics = self._traffic, self._topics
        with_members = frozenset(self._coordinator.members.names())
        traffic.forget(lambda topic: topic in topics, with_members, self._clock.monotonic_s())
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
        config = self._topics.get(topic)
        kind = "" if config is None else config.attributes.get(MESSAGE_TYPE, "").lower()
        return kind if kind in _MESSAGE_TYPES else "normal"

    async def _lags(self, slices: Slices) -> list[AnyFamily]:
        lags = rocketmq.LagFamilies(self._config.metrics.consumers_max)
        # What there is no room for is left out at the end.
        for row in sorted(await self._group_lags(slices), key=rocketmq.importance):
            lags.add(row)
            await slices.breathe()
        return lags.families()

    async def _group_lags(self, slices: Slices) -> list[GroupLag]:
        """Empty if the committed offsets are uncertain: on slaves, and on a new master."""
        if not self._roles.may_act():
            return []
        try:
            self._offsets.check_known()
        except AerobeeError:
            return []
        return await self._lag.read(self._clock.now_ms, slices)

    def _is_readable(self) -> bool:
        guard = self._guard
        try:
            guard.check_available()
            guard.check_confirmed()
        except AerobeeError:
            return False
        return True

    async def _oldest_age_ms(self) -> int | None:
        first_ms = await self._times.first_ms()
        return None if first_ms is None else max(0, self._clock.now_ms() - first_ms)
