"""All figures of one broker at one moment, copied on the loop a little at a time.

Owns: which of them there are; what each is stands in `rocketmq` and `own`. Nothing here changes the
broker, but for the counts of topics that are gone and of groups that are idle.
"""

from __future__ import annotations

from collections.abc import Callable

from aerobee.broker.cluster.registration import Registration
from aerobee.broker.edge.own.pull_session import PullSession
from aerobee.broker.observe.metrics import own, rocketmq
from aerobee.broker.observe.metrics.lag import GroupLag, LagReading
from aerobee.broker.observe.metrics.store_times import StoreTimes
from aerobee.broker.observe.stats import BrokerStatistics
from aerobee.broker.parts import Parts
from aerobee.runtime.errors import MqError
from aerobee.runtime.metrics.exposition import Gathered
from aerobee.runtime.metrics.families import AnyFamily, one_gauge
from aerobee.runtime.metrics.slices import Slices

NODE_TYPE = "broker"
MESSAGE_TYPE = "message.type"
"""The topic attribute of RocketMQ that says what kind of messages a topic has."""
_MESSAGE_TYPES = frozenset({"normal", "fifo", "delay", "transaction", "mixed"})


class BrokerFigures:
    """See the module; on the loop."""

    def __init__(
        self,
        parts: Parts,
        *,
        address: str,
        registration: Registration | None,
        sessions: Callable[[], list[PullSession]],
    ) -> None:
        """`address` is where clients reach the broker; `sessions` are its pull streams."""
        self._parts = parts
        self._registration = registration
        self._sessions = sessions
        folder = parts.folder
        self._times = StoreTimes(folder.store, parts.reads)
        self._lag = LagReading(
            folder.store, folder.topics, folder.offsets, parts.coordinator, sessions, self._times
        )
        self._labels = {
            "cluster": parts.config.cluster,
            "node_type": NODE_TYPE,
            "node_id": address,
        }

    async def gather(self) -> Gathered:
        """Everything that is known now."""
        parts = self._parts
        clock = parts.clock
        began_s = clock.monotonic_s()
        slices = Slices(clock)
        families = self._at_once(parts.statistics())
        await slices.breathe()
        families += await self._traffic(slices)
        families += await self._lags(slices)
        families += rocketmq.broker_families(
            parts.statistics(),
            is_readable=self._is_readable(),
            oldest_age_ms=await self._oldest_age_ms(),
        )
        families += [
            one_gauge(
                "aerobee_metrics_step_seconds",
                "The longest time for which copying these figures kept the event loop.",
                slices.longest_s,
            ),
            one_gauge(
                "aerobee_metrics_gather_seconds",
                "How long it took to copy these figures, with pauses in which others ran.",
                clock.monotonic_s() - began_s,
            ),
        ]
        return Gathered(self._labels, families)

    def _at_once(self, statistics: BrokerStatistics) -> list[AnyFamily]:
        parts = self._parts
        roles = parts.replication.roles
        term = roles.term
        registration = self._registration
        config = parts.config
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
            *own.role_families(statistics, roles, now_s=parts.clock.monotonic_s()),
            *own.registration_families(None if registration is None else registration.statistics()),
            *own.replication_families(
                statistics,
                in_sync=None if term is None else len(term.in_sync),
                in_sync_min=config.replication.min_insync_replicas,
            ),
            *own.store_families(statistics),
            *own.work_families(
                statistics,
                parts.loop_delay.histogram.copy(),
                leases=parts.coordinator.ownership.leases.held_count,
                pull_streams=len(self._sessions()),
                groups_expired=parts.groups.expiry.expired,
            ),
            *rocketmq.connection_families(
                parts.counters.send_streams,
                parts.coordinator.members.all_members(),
                groups_max=config.metrics.consumers_max,
            ),
            parts.latencies.family(),
        ]

    async def _traffic(self, slices: Slices) -> list[AnyFamily]:
        parts = self._parts
        topics = parts.folder.topics
        with_members = frozenset(parts.coordinator.members.names())
        parts.traffic.forget(lambda topic: topic in topics, with_members, parts.clock.monotonic_s())
        incoming = rocketmq.IncomingFamilies()
        for topic, counts in parts.traffic.incoming():
            incoming.add(topic, self._message_type(topic), counts)
            await slices.breathe()
        outgoing = rocketmq.OutgoingFamilies()
        for reader, sent in parts.traffic.outgoing():
            outgoing.add(reader, sent)
            await slices.breathe()
        return [*incoming.families(), *outgoing.families()]

    def _message_type(self, topic: str) -> str:
        config = self._parts.folder.topics.get(topic)
        kind = "" if config is None else config.attributes.get(MESSAGE_TYPE, "").lower()
        return kind if kind in _MESSAGE_TYPES else "normal"

    async def _lags(self, slices: Slices) -> list[AnyFamily]:
        lags = rocketmq.LagFamilies(self._parts.config.metrics.consumers_max)
        for row in await self._group_lags(slices):
            lags.add(row)
            await slices.breathe()
        return lags.families()

    async def _group_lags(self, slices: Slices) -> list[GroupLag]:
        """Nothing where the committed offsets are not known for certain: on slaves, and on a master
        that has just become one."""
        parts = self._parts
        if not parts.replication.roles.may_act():
            return []
        try:
            parts.offsets.check_known()
        except MqError:
            return []
        return await self._lag.read(parts.clock.now_ms, slices)

    def _is_readable(self) -> bool:
        guard = self._parts.guard
        try:
            guard.check_available()
            guard.check_confirmed()
        except MqError:
            return False
        return True

    async def _oldest_age_ms(self) -> int | None:
        first_ms = await self._times.first_ms()
        return None if first_ms is None else max(0, self._parts.clock.now_ms() - first_ms)
