"""What a broker takes from directives that say little."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from aerobee.broker.cluster.cluster_link import ClusterLink
from aerobee.broker.cluster.records import view_of
from aerobee.broker.parts import Parts
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.broker.sending.guard import Role
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb


class Heard:
    """Roles that only listen."""

    own = SimpleNamespace(broker_id=0, incarnation="log-0")

    def __init__(self) -> None:
        self.groups: list[ReplicaSetView] = []

    def hear_replica_set(self, group: ReplicaSetView) -> None:
        self.groups.append(group)

    def hear_endpoints(self, endpoints: Any) -> None:
        pass

    def renewed(self, sequence: int, lease_ms: int) -> None:
        pass


@pytest.mark.parametrize(("flushed", "confirmed"), [(70, 80), (80, 70)])
def test_a_heartbeat_tells_what_no_clean_election_cuts_and_no_power_failure_takes(
    flushed: int, confirmed: int
) -> None:
    """It must never be more: a log that ends before it is taken for an old copy."""
    roles = SimpleNamespace(
        own=Heard.own,
        log_epoch=lambda: 1,
        confirmed_end=confirmed,
        mastership=SimpleNamespace(resigned_epoch=None),
    )
    replication = SimpleNamespace(
        roles=roles,
        replica=SimpleNamespace(predecessor="", opened_end=40),
        handover=SimpleNamespace(successor_id=None),
        trouble="",
    )
    topics = SimpleNamespace(metadata_revision=0, metadata_history="")
    store = SimpleNamespace(min_offset=0, appended_end=90, flushed_end=flushed)
    parts = SimpleNamespace(
        replication=replication,
        folder=SimpleNamespace(store=store, topics=topics),
        guard=SimpleNamespace(role=Role.SLAVE, epoch=1),
        no_room_reason=lambda: "",
    )
    identity = common_pb2.BrokerIdentity(broker_name="broker-a", broker_id=0, instance="i1")
    link = ClusterLink(cast("Parts", parts), identity, "h:1", store_host_ipv6=False)
    heartbeat = link.heartbeat()
    assert (heartbeat.durable_end, heartbeat.log_end, heartbeat.opened_end) == (70, 90, 40)


@pytest.mark.parametrize("stale", [True, False])
async def test_a_nameserver_that_knows_nothing_makes_no_broker_believe_that_it_is_alone(
    stale: bool,
) -> None:
    heard = Heard()
    parts = SimpleNamespace(
        replication=SimpleNamespace(roles=heard),
        config=SimpleNamespace(registration_lease_ms=10_000),
    )
    identity = common_pb2.BrokerIdentity(broker_name="broker-a", broker_id=0, instance="i1")
    link = ClusterLink(cast("Parts", parts), identity, "h:1", store_host_ipv6=False)
    await link.follow(pb.BrokerDirective(stale=stale))
    assert heard.groups == []
    known = pb.GroupRecord(broker_name="broker-a", epoch=3, master_id=1, replicas=[0, 1])
    await link.follow(pb.BrokerDirective(stale=stale, group=known, role=common_pb2.SLAVE))
    assert heard.groups == [view_of(known)]
