"""The Prometheus metrics of a nameserver: its routes, its connection to etcd, who is master.

Values only, copied on the loop in one step: there are as many rows as replica sets. Every
nameserver reports all replica sets, so do not sum over nameservers.
"""

from __future__ import annotations

import socket

from aerobee.access.quotas import Quotas
from aerobee.nameserver.config import NameserverConfig
from aerobee.nameserver.election import has_master
from aerobee.nameserver.etcd_calls import EtcdCalls
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.sessions import BrokerSessions
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.runtime.clock import Clock
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.runtime.metrics.families import (
    OTHER,
    AnyFamily,
    Family,
    Gathered,
    HistogramFamily,
    counter,
    gauge,
    one_gauge,
)
from aerobee.runtime.metrics.rpc_latencies import RpcLatencies

NODE_TYPE = "nameserver"
WILDCARDS = frozenset({"0.0.0.0", "[::]"})
REPLICA_SETS_MAX = 1_000
"""Replica sets with series of their own."""


class NameserverFigures:
    """Metrics, gathered on the loop."""

    def __init__(
        self,
        config: NameserverConfig,
        cache: RouteCache,
        sessions: BrokerSessions,
        calls: EtcdCalls,
        peer_limits: PeerLimits,
        memory: MemoryBudget,
        quotas: Quotas,
        clock: Clock,
    ) -> None:
        self.latencies = RpcLatencies()
        self.loop_delay = LoopDelay(clock)
        self._cluster = config.cluster
        host = config.listen.rpartition(":")[0]
        # A wildcard is the same on every machine; a host's name, which in Kubernetes is the pod's,
        # is not.
        self._host = socket.gethostname() if host in WILDCARDS else host
        self._port = 0
        self._cache = cache
        self._sessions = sessions
        self._calls = calls
        self._peer_limits = peer_limits
        self._memory = memory
        self._quotas = quotas

    def listens(self, port: int) -> None:
        """It can be reached at this address."""
        self._port = port

    async def gather(self) -> Gathered:
        """Everything that is known now."""
        cache = self._cache
        delay = HistogramFamily(
            "aerobee_event_loop_delay_seconds",
            "How late the event loop runs what is due; ten samples per second, one per 2 s when "
            "idle.",
        )
        delay.add(self.loop_delay.histogram.copy())
        families: list[AnyFamily] = [
            one_gauge(
                "aerobee_nameserver_connected_brokers",
                "Brokers that send their heartbeats to this nameserver.",
                len(self._sessions),
            ),
            one_gauge(
                "aerobee_nameserver_routes_stale",
                "1 while etcd does not confirm that the routes are current.",
                cache.stale,
            ),
            *self._etcd_families(),
            self.latencies.family(),
            self._peer_limits.family(),
            *self._memory.families(),
            self._quotas.family(),
            delay,
        ]
        if cache.version > 0:
            families += table_families(cache.table)
        labels = {
            "cluster": self._cluster,
            "node_type": NODE_TYPE,
            "node_id": f"{self._host}:{self._port}",
        }
        return Gathered(labels, families)

    def _etcd_families(self) -> list[AnyFamily]:
        calls = self._calls
        latency = HistogramFamily("aerobee_etcd_call_seconds", "Duration of calls to etcd.")
        latency.add(calls.latency.copy())
        failures = counter(
            "aerobee_etcd_call_failures_total", "Calls that etcd did not answer, or refused."
        )
        failures.add(calls.failures)
        return [
            one_gauge(
                "aerobee_etcd_reachable",
                "1 while etcd answers; changes after 3 s. Absent before the first call.",
                calls.is_reachable,
            ),
            one_gauge(
                "aerobee_etcd_writable",
                "1 while etcd takes writes; likewise. Absent before the first write.",
                calls.is_writable,
            ),
            one_gauge(
                "aerobee_etcd_confirmed_age_seconds",
                "Time since etcd last confirmed that the routes are current.",
                self._cache.confirmed_age_s,
            ),
            latency,
            failures,
        ]


def table_families(table: RouteTable) -> list[AnyFamily]:
    epoch = gauge("aerobee_group_epoch", "Epoch of the broker group.", "broker_group")
    has_live_master = gauge(
        "aerobee_group_has_master", "1 while the broker group has a live master.", "broker_group"
    )
    replicas = gauge(
        "aerobee_group_replicas",
        "Replicas of the group by state.",
        "broker_group",
        "state",
    )
    live_by_replica_set = table.live_by_replica_set()
    for name in sorted(table.replica_sets)[:REPLICA_SETS_MAX]:
        replica_set, live = table.replica_sets[name], live_by_replica_set.get(name, {})
        epoch.add(replica_set.epoch, name)
        has_live_master.add(has_master(replica_set, live), name)
        replicas.add(len(replica_set.replicas), name, "known")
        replicas.add(len(live), name, "live")
        replicas.add(len(replica_set.in_sync), name, "in_sync")
    _add_rest(table, has_live_master)
    backups = gauge(
        "aerobee_backup_timestamp_seconds",
        "When this was last backed up, as noted in etcd, in seconds since 1970.",
        "backup",
    )
    for what in sorted(table.backups)[:REPLICA_SETS_MAX]:
        backups.add(table.backups[what] / 1_000, what)
    return [
        one_gauge(
            "aerobee_nameserver_routes_revision",
            "etcd's revision of the routes that are served.",
            table.version,
        ),
        one_gauge(
            "aerobee_nameserver_live_brokers",
            "Brokers that are registered in etcd.",
            len(table.brokers),
        ),
        one_gauge(
            "aerobee_nameserver_unreadable_keys",
            "Keys in etcd that cannot be read; they count as missing.",
            len(table.unreadable),
        ),
        one_gauge("rocketmq_topic_number", "Topics of the cluster.", len(table.topics)),
        epoch,
        has_live_master,
        replicas,
        backups,
    ]


def _add_rest(table: RouteTable, has_live_master: Family) -> None:
    """Beyond the limit: whether all the others have a master."""
    rest = sorted(table.replica_sets)[REPLICA_SETS_MAX:]
    if rest:
        has_all = all(
            has_master(table.replica_sets[name], table.replicas_of(table.replica_sets[name]))
            for name in rest
        )
        has_live_master.add(has_all, OTHER)
