"""A broker's statistics on the wire."""

from __future__ import annotations

from aerobee.broker.edge.own.convert import replica_progress, slave_progress, unread_removals
from aerobee.broker.observe.stats import BrokerStatistics
from aerobee.v1 import broker_pb2, common_pb2


def stats_message(
    identity: common_pb2.BrokerIdentity, now: BrokerStatistics
) -> broker_pb2.BrokerStats:
    store, counters = now.store, now.counters
    retention = store.retention
    return broker_pb2.BrokerStats(
        identity=identity,
        role=common_pb2.MASTER if now.is_master else common_pb2.SLAVE,
        epoch=now.epoch,
        version=now.version,
        uptime_ms=now.uptime_ms,
        log_min_offset=store.min_offset,
        log_appended_end=store.appended_end,
        log_flushed_end=store.flushed_end,
        log_confirmed_end=store.confirmed_end,
        log_dispatched_end=store.dispatched_end,
        flush_mode=now.flush_mode,
        writable=now.is_writable,
        not_writable_reason=now.not_writable_reason,
        messages_in=counters.messages_in,
        bytes_in=counters.bytes_in,
        messages_out=counters.messages_out,
        bytes_out=counters.bytes_out,
        batches_in=counters.batches_in,
        refused=counters.refused,
        duplicates_dropped=counters.duplicates_dropped,
        fsyncs=store.flushes,
        topics=now.topics,
        queues=store.queue_count,
        misplaced_records=store.misplaced_records,
        groups=now.groups,
        members=now.members,
        send_streams=counters.send_streams,
        pull_streams=counters.pull_streams,
        cpu_seconds=now.process.cpu_seconds,
        resident_bytes=now.process.resident_bytes,
        inflight_bytes=store.appended_end - store.flushed_end,
        loop_delay_p99_ms=now.loop_delay_p99_ms,
        cold_reads=counters.cold_reads,
        cold_bytes=counters.cold_bytes,
        cold_reads_waiting=counters.cold_reads_waiting,
        disk_total_bytes=max(0, retention.space.total_bytes),
        disk_free_bytes=max(0, retention.space.free_bytes),
        log_segments=store.segment_count,
        removed_segments=retention.removed_segments,
        removed_bytes=retention.removed_bytes,
        removed_unread_messages=retention.removed_unread_messages,
        removed_unread=unread_removals(retention.removed_unread),
        replication_mode=now.replication.mode,
        replicas=replica_progress(now.replication),
        slave=slave_progress(now.replication),
    )
