"""The part of a broker that reports to nameservers, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.access.node import NodeAccess
from aerobee.access.nodes import NodeName
from aerobee.access.recorder import Recorder
from aerobee.broker.cluster.cluster_link import ClusterLink
from aerobee.broker.cluster.registration import Registration, RegistrationConfig
from aerobee.broker.config import BrokerConfig
from aerobee.broker.replication.hung_disk import HungDisk
from aerobee.broker.replication.slow_loop import SlowLoop
from aerobee.cluster_view.channels import Channels
from aerobee.domain.broker_condition import BrokerCondition
from aerobee.runtime.clock import Clock

if TYPE_CHECKING:
    from aerobee.broker.wiring import Wiring


def node_name(config: BrokerConfig) -> NodeName:
    return NodeName.broker(config.cluster, config.broker_name, config.broker_id)


def access_of(config: BrokerConfig, recorder: Recorder, clock: Clock) -> NodeAccess:
    """Raises InvalidArgument: the file with the cluster secret cannot be read."""
    return NodeAccess(config.access, node_name(config), clock=clock, recorder=recorder)


def make_channels(parts: Wiring) -> Channels:
    return Channels(
        chance=parts.chance,
        credentials=parts.access.credentials,
        tls=parts.tls.dialled,
        memory=parts.memory.channels,
    )


def make_leavers(parts: Wiring) -> tuple[HungDisk, SlowLoop]:
    """The parts that hand leadership away while this replica is unwell."""
    hung_disk = HungDisk(
        parts.watch,
        parts.roles,
        parts.store,
        parts.handover,
        probe=parts.replica_folder.write_again,
        wake=parts.manager.wake,
    )
    interval_s = parts.config.replication.slow_handover_interval_ms / 1_000
    slow_loop = SlowLoop(
        parts.loop_delay, parts.roles, parts.handover, parts.clock, interval_s=interval_s
    )
    return hung_disk, slow_loop


def condition_of(parts: Wiring) -> BrokerCondition:
    """What keeps this broker from working."""
    if parts.watch.is_hung:
        return BrokerCondition.DISK_HUNG
    return BrokerCondition.SLOW if parts.slow_loop.is_slow else BrokerCondition.WELL


def make_registration(parts: Wiring) -> Registration | None:
    """None: the broker is a cluster by itself."""
    config, lease_ms = parts.config, parts.config.registration_lease_ms
    if not config.nameservers:
        return None
    link = ClusterLink(
        parts.identity,
        parts.address,
        roles=parts.roles,
        store=parts.store,
        topics=parts.folder.topics,
        replica=parts.replica,
        report=parts.report,
        handover=parts.handover,
        topic_ends=parts.topic_ends,
        files=parts.files,
        no_room_reason=parts.writability.no_room_reason,
        condition=lambda: condition_of(parts),
        on_topics_gone=parts.egress.wake_all,
        book=parts.access.book,
        closing=parts.closing,
        lease_ms=lease_ms,
        store_host_ipv6=parts.store_host.is_ipv6,
        zone=config.zone,
        in_sync_min=config.replication.min_insync_replicas,
    )
    return Registration(
        RegistrationConfig(nameservers=config.nameservers, lease_duration_ms=lease_ms),
        clock=parts.clock,
        chance=parts.chance,
        heartbeat=link.heartbeat,
        on_directive=link.follow,
        on_sending=parts.roles.heartbeat_sent,
        on_incomplete=parts.manager.count_as_another_log,
        due=parts.heartbeat_due,
        credentials=parts.access.credentials,
        tls=parts.tls.dialled,
    )
