"""Broker settings that are legal but together have an effect that may surprise.

Pure: looks at a configuration, not at the machine. A broker starts with all of these; `aerobee
config check` and the first lines of the broker's log name them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aerobee.access.config import open_door
from aerobee.broker.replication.config import ReplicationMode
from aerobee.rpc.config_risks import common_risks, exposed_secrets
from aerobee.rpc.outside_config import outside_risks
from aerobee.runtime.addresses import is_loopback
from aerobee.runtime.config_check import Risk
from aerobee.store.engine.config import FlushMode

if TYPE_CHECKING:
    from aerobee.broker.config import BrokerConfig

ETCD_LEASE_MS_MIN = 2_000
"""About what etcd itself raises shorter leases to."""
ACKNOWLEDGE_TIMEOUT_MS = 5_000
"""How long a sender that sets no timeout waits for replicas."""


def broker_risks(config: BrokerConfig) -> list[Risk]:
    """The risks of a broker's settings."""
    return [
        *common_risks(config),
        *open_door(config.access, config.listen),
        *outside_risks(config),
        *exposed_secrets(
            {
                "access.cluster_secret_file": config.access.cluster_secret_file,
                "outside.tls.key": config.outside.tls.key,
            }
        ),
        *_place(config),
        *_lease(config),
        *_replication(config),
        *_flush(config),
        *_retention(config),
    ]


def _place(config: BrokerConfig) -> Iterator[Risk]:
    if config.address and is_loopback(config.address) and not is_loopback(config.listen):
        yield Risk(
            ("address", "listen"),
            f"the broker listens on {config.listen} but tells clients to connect to "
            f"{config.address}: clients on other machines will connect to their own machine",
        )


def _lease(config: BrokerConfig) -> Iterator[Risk]:
    if not config.nameservers:
        return
    lease_ms = config.registration_lease_ms
    if lease_ms < ETCD_LEASE_MS_MIN:
        yield Risk(
            ("registration_lease_ms",),
            f"registration_lease_ms is {lease_ms}: etcd's own leases last at least about "
            f"{ETCD_LEASE_MS_MIN} ms, so a short pause costs a master its term, and the next one "
            "is not elected any sooner",
        )
    if lease_ms >= config.sessions.timeout_default_ms:
        yield Risk(
            ("registration_lease_ms", "sessions.timeout_default_ms"),
            f"registration_lease_ms ({lease_ms}) is not below sessions.timeout_default_ms "
            f"({config.sessions.timeout_default_ms}): when a master dies, members lose their "
            "queues before there is another master",
        )


def _replication(config: BrokerConfig) -> Iterator[Risk]:
    replication = config.replication
    if replication.mode is ReplicationMode.ASYNC:
        if replication.min_insync_replicas > 1:
            yield Risk(
                ("replication.mode", "replication.min_insync_replicas"),
                f"replication.min_insync_replicas is {replication.min_insync_replicas} and "
                "replication.mode is async_master: messages are refused while replicas are "
                "missing, yet acknowledged ones may still be lost with the master; set "
                "sync_master to wait for the replicas",
            )
    elif replication.in_sync_lag_max_ms >= ACKNOWLEDGE_TIMEOUT_MS:
        yield Risk(
            ("replication.in_sync_lag_max_ms",),
            f"replication.in_sync_lag_max_ms is {replication.in_sync_lag_max_ms}: a slave that "
            f"dies holds up sends until they time out, after {ACKNOWLEDGE_TIMEOUT_MS} ms unless "
            "the sender says otherwise",
        )


def _flush(config: BrokerConfig) -> Iterator[Risk]:
    store = config.store
    if store.cut_damaged:
        yield Risk(
            ("store.cut_damaged",),
            "store.cut_damaged cuts the log at the first damaged record at every start: set it "
            "as a flag, for one start only",
        )
    if store.batch_bytes_max > store.unflushed_bytes_max:
        yield Risk(
            ("store.batch_bytes_max", "store.unflushed_bytes_max"),
            f"a batch of store.batch_bytes_max ({store.batch_bytes_max}) is more than may wait "
            f"for the disk, store.unflushed_bytes_max ({store.unflushed_bytes_max}): it is "
            "always refused with BUSY",
        )
    if (
        store.flush_mode is FlushMode.ASYNC
        and store.unflushed_bytes_max <= store.flush_unflushed_bytes
    ):
        yield Risk(
            ("store.unflushed_bytes_max", "store.flush_unflushed_bytes"),
            f"store.unflushed_bytes_max ({store.unflushed_bytes_max}) is reached before "
            f"store.flush_unflushed_bytes ({store.flush_unflushed_bytes}): senders are refused "
            "with BUSY where an early flush would make room",
        )


def _retention(config: BrokerConfig) -> Iterator[Risk]:
    retention = config.store.retention
    if not retention.enabled:
        yield Risk(
            ("store.retention.enabled",),
            "store.retention.enabled is false: nothing is ever removed, so the disk fills, and "
            "messages are refused below store.disk_free_bytes_min",
        )
        return
    for sentence in retention.moved_percentages():
        yield Risk((sentence.partition(" ")[0],), sentence)
    if retention.force_enabled and retention.refuse_above_percent <= retention.force_above_percent:
        yield Risk(
            ("store.retention.disk_refuse_percent", "store.retention.disk_force_percent"),
            f"messages are refused above {retention.refuse_above_percent} % of the disk, before "
            f"unexpired segments are removed above {retention.force_above_percent} %",
        )
