"""The broker at one moment: what it is and what it has done."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Protocol

from aerobee.broker.config import BrokerConfig
from aerobee.broker.counters import Counters
from aerobee.broker.observe.stats import BrokerStatistics, process_statistics
from aerobee.broker.offsets.feature import Progress
from aerobee.broker.replication.report import ReplicationReport
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.guard import Writability
from aerobee.domain.names import is_retry_topic
from aerobee.runtime.clock import Clock
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicTable


class Parts(Protocol):
    """The parts of the broker that its state is read from."""

    config: BrokerConfig
    clock: Clock
    roles: Roles
    store: MessageStore
    topics: TopicTable
    own_topics: Mapping[str, int]
    progress: Progress
    writability: Writability
    report: ReplicationReport
    counters: Counters
    loop_delay: LoopDelay


class BrokerState:
    """Combines the parts' figures."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._started_s = parts.clock.monotonic_s()

    def now(self) -> BrokerStatistics:
        parts, now_s = self._parts, self._parts.clock.monotonic_s()
        reason = parts.writability.not_writable_reason()
        store = parts.store.statistics()
        members = parts.progress.coordinator.members
        return BrokerStatistics(
            is_master=parts.roles.term is not None,
            epoch=parts.roles.own_epoch,
            version=importlib.metadata.version("aerobee"),
            uptime_ms=int((now_s - self._started_s) * 1_000),
            flush_mode=parts.config.store.flush_mode.value,
            is_writable=not reason,
            not_writable_reason=reason,
            # As listed by nameservers: without those that brokers create for themselves.
            topics=sum(
                name not in parts.own_topics and not is_retry_topic(name) for name in parts.topics
            ),
            groups=len({*members.names(), *parts.progress.offsets.groups()}),
            members=members.member_count,
            loop_delay_p99_ms=parts.loop_delay.p99_ms(),
            counters=parts.counters,
            store=store,
            replication=parts.report.statistics(store.appended_end, now_s),
            process=process_statistics(),
        )
