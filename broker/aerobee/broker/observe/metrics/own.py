"""A broker's metrics that RocketMQ has no name for: role, epoch, lease, replicas, disk, loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aerobee.broker.cluster.registration import RegistrationStatistics
from aerobee.broker.observe.stats import BrokerStatistics
from aerobee.broker.replication.replica_set import NO_MASTER
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.statistics import ReplicaStatistics, SlaveStatistics
from aerobee.runtime.metrics.families import (
    AnyFamily,
    HistogramFamily,
    counter,
    gauge,
    one_counter,
    one_gauge,
)
from aerobee.runtime.metrics.histogram import HistogramCounts
from aerobee.runtime.metrics.rpc_latencies import snake_case
from aerobee.store.engine.retention.retention_statistics import GroupLoss
from aerobee.store.engine.statistics import StoreState

MS_PER_S = 1_000


def role_families(statistics: BrokerStatistics, roles: Roles, *, now_s: float) -> list[AnyFamily]:
    """What the replica is, and until when."""
    mastership = roles.mastership
    lease_s = mastership.lease.end_s
    group = mastership.replica_set
    master_id = None if group is None or group.master_id == NO_MASTER else group.master_id
    role = gauge("aerobee_broker_role", "1 for the replica's role, otherwise 0.", "role")
    role.add(int(statistics.is_master), "master")
    role.add(int(not statistics.is_master), "slave")
    return [
        role,
        one_gauge(
            "aerobee_broker_acting",
            "1 while the broker may act as master of its broker group.",
            roles.may_act(),
        ),
        one_gauge("aerobee_broker_epoch",
                  "The newest epoch that the broker knows.", roles.epoch or None),
        one_gauge("aerobee_broker_master_id", "Id of the master of its broker group.", master_id),
        one_gauge(
            "aerobee_broker_lease_remaining_seconds",
            "How long its registration counts without another heartbeat; 0 or less: over.",
            lease_s - now_s if lease_s > float("-inf") else None,
        ),
        one_gauge("aerobee_broker_writable",
                  "1 while the broker takes messages.", statistics.is_writable),
        one_gauge("aerobee_broker_uptime_seconds", "Time since the broker opened its folder.",
                  statistics.uptime_ms / MS_PER_S),
    ]  # fmt: skip


def registration_families(registration: RegistrationStatistics | None) -> list[AnyFamily]:
    """None: it serves alone, without a nameserver."""
    if registration is None:
        return []
    age_ms = registration.last_renewed_age_ms
    return [
        one_gauge(
            "aerobee_broker_registered",
            "1 while a nameserver answers the broker's heartbeats.",
            registration.registered,
        ),
        one_gauge(
            "aerobee_broker_registration_stale",
            "1 while that nameserver cannot renew the registration in etcd.",
            registration.stale,
        ),
        one_gauge(
            "aerobee_broker_registration_age_seconds",
            "Time since the registration was last renewed in etcd.",
            age_ms / MS_PER_S if age_ms >= 0 else None,
        ),
        one_gauge(
            "aerobee_broker_registration_failures",
            "Lost streams and failed attempts since a nameserver last answered.",
            registration.failures,
        ),
    ]


def replication_families(
    statistics: BrokerStatistics, *, in_sync: int | None, in_sync_min: int
) -> list[AnyFamily]:
    """`in_sync`: how many replicas of the broker group are, with the master; None on a slave."""
    replication = statistics.replication
    families = _replica_families(replication.replicas)
    if in_sync is not None:
        families += [
            one_gauge("aerobee_in_sync_replicas",
                      "Replicas in sync, including the master.", in_sync),
            one_gauge("aerobee_in_sync_replicas_min",
                      "With fewer replicas in sync, the master takes no messages.",
                      in_sync_min),
        ]  # fmt: skip
    if replication.slave is not None:
        families += _slave_families(replication.slave, statistics.store.appended_end)
    return families


def _replica_families(replicas: tuple[ReplicaStatistics, ...]) -> list[AnyFamily]:
    connected = gauge("aerobee_replica_connected", "1 while the replica copies this master's log.",
                      "replica")  # fmt: skip
    in_sync = gauge(
        "aerobee_replica_in_sync", "1 while the replica is in the in-sync set.", "replica"
    )
    lag_bytes = gauge(
        "aerobee_replica_lag_bytes",
        "Bytes of the log that the replica has not acknowledged.",
        "replica",
    )
    lag_s = gauge(
        "aerobee_replica_lag_seconds", "Time since the replica last had everything.", "replica"
    )
    for each in replicas:
        name = str(each.broker_id)
        connected.add(each.is_connected, name)
        in_sync.add(each.is_in_sync, name)
        # How far a replica has the log is unknown while it is away.
        lag_bytes.add(each.lag_bytes if each.is_connected else None, name)
        lag_s.add(each.lag_ms / MS_PER_S if each.is_connected else None, name)
    return [connected, in_sync, lag_bytes, lag_s]


def _slave_families(slave: SlaveStatistics, own_end: int) -> list[AnyFamily]:
    behind = max(0, slave.master_end - own_end) if slave.is_connected else None
    return [
        one_gauge(
            "aerobee_slave_connected", "1 while this slave copies its master's log.",
            slave.is_connected,
        ),
        one_gauge("aerobee_slave_behind_bytes",
                  "Bytes of its master's log that this slave lacks.", behind),
        one_gauge("aerobee_slave_troubled",
                  "1 while something keeps this slave from following its master.",
                  bool(slave.trouble)),
    ]  # fmt: skip


def store_families(statistics: BrokerStatistics, *, oldest_write_s: float) -> list[AnyFamily]:
    """The log, the disk below it, and what retention removed. `oldest_write_s`: the age of the
    oldest pending request to the disk."""
    store = statistics.store
    space, retention = store.retention.space, store.retention
    state = gauge("aerobee_store_state", "1 for the store's state, otherwise 0.", "state")
    for each in StoreState:
        state.add(int(store.state is each), each.value.replace(" ", "_"))
    ends = gauge(
        "aerobee_log_end_bytes",
        "Position up to which the log is appended, flushed, confirmed, dispatched.",
        "end",
    )
    ends.add(store.appended_end, "appended")
    ends.add(store.flushed_end, "flushed")
    ends.add(store.confirmed_end, "confirmed")
    ends.add(store.dispatched_end, "dispatched")
    syncs = HistogramFamily("aerobee_fsync_seconds", "Duration of each flush of the log.")
    syncs.add(store.sync_latency)
    return [
        state,
        ends,
        one_gauge("aerobee_log_begin_bytes",
                  "Position of the first byte that is still there.", store.min_offset),
        one_gauge("aerobee_log_segments", "Segments of the log.", store.segment_count),
        one_gauge("aerobee_queues", "Queues of the store.", store.queue_count),
        one_gauge("aerobee_damaged_queues",
                  "Queues found damaged since the start; they serve nothing.",
                  store.damaged_queue_count),
        one_gauge("aerobee_misplaced_records",
                  "Records read or copied since the start that were not at the end of their queue.",
                  store.misplaced_records),
        one_gauge("aerobee_queue_tail_bytes", "Bytes of queue entries that are only in memory.",
                  store.queue_tail_bytes),
        one_gauge("aerobee_disk_free_bytes", "Free space of the store's file system.",
                  space.free_bytes if space.free_bytes >= 0 else None),
        one_gauge("aerobee_disk_total_bytes", "Size of the store's file system.",
                  space.total_bytes if space.free_bytes >= 0 else None),
        syncs,
        one_gauge("aerobee_store_oldest_write_seconds",
                  "How long the oldest flush or file write has taken so far; 0: none is running.",
                  oldest_write_s),
        one_counter("aerobee_checkpoints_total", "Checkpoints written.", store.checkpoints),
        one_counter("aerobee_retention_removed_segments_total", "Segments removed by retention.",
                    retention.removed_segments),
        one_counter("aerobee_retention_removed_bytes_total", "Bytes removed by retention.",
                    retention.removed_bytes),
        one_counter("aerobee_retention_removed_unread_messages_total",
                    "Removed messages that a group had not read, counted once per group.",
                    retention.removed_unread_messages),
        _removed_by_group(retention.removed_by_group),
    ]  # fmt: skip


def _removed_by_group(losses: Iterable[GroupLoss]) -> AnyFamily:
    family = counter(
        "aerobee_retention_removed_unread_by_group_total",
        "The same, for the groups and topics with most, by why they were removed.",
        "consumer_group", "topic", "because",
    )  # fmt: skip
    for loss in losses:
        family.add(loss.messages, loss.group, loss.topic, loss.because)
    return family


def work_families(
    statistics: BrokerStatistics,
    loop_delay: HistogramCounts,
    *,
    leases: int,
    pull_streams: int,
    groups_expired: int,
) -> list[AnyFamily]:
    """What the broker does, and whether it keeps up."""
    counters = statistics.counters
    delay = HistogramFamily(
        "aerobee_event_loop_delay_seconds",
        "How late the event loop runs what is due; ten samples per second, one per 2 s when idle.",
    )
    delay.add(loop_delay)
    refused = counter("aerobee_batches_refused_total", "Batches refused, by the error.", "reason")
    for name, count in counters.refusals.items():
        refused.add(count, snake_case(name))
    return [
        delay,
        one_counter("aerobee_batches_in_total", "Batches stored.", counters.batches_in),
        refused,
        one_counter("aerobee_duplicate_batches_total",
                    "Batches that were sent again and already stored.",
                    counters.duplicates_dropped),
        one_counter("aerobee_cold_reads_total", "Reads that had to wait for the disk.",
                    counters.cold_reads),
        one_counter("aerobee_cold_read_bytes_total", "Bytes that had to be read from the disk.",
                    counters.cold_bytes),
        one_gauge("aerobee_cold_reads_waiting", "Cold reads that wait for their turn.",
                  counters.cold_reads_waiting),
        one_counter("aerobee_filter_judged_total",
                    "Records that filters evaluated, for readers and to count unread messages.",
                    counters.filter_judged),
        one_counter("aerobee_filter_matched_total",
                    "Of these, the records that matched.", counters.filter_matched),
        one_gauge("aerobee_pull_streams", "Streams over which messages are read.", pull_streams),
        one_gauge("aerobee_queue_leases", "Queues held by members of groups.", leases),
        one_gauge("aerobee_group_members", "Live members of all groups.", statistics.members),
        one_counter("aerobee_groups_expired_total",
                    "Unused groups that were deleted.", groups_expired),
    ]  # fmt: skip


def info_family(values: Mapping[str, str]) -> AnyFamily:
    """What does not change while it runs, as labels."""
    info = gauge("aerobee_broker_info", "Always 1; the labels describe the broker.", *values)
    info.add(1, *values.values())
    return info
