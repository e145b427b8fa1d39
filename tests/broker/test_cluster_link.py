"""What a broker takes from directives that say little."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from aerobee.broker.parts import Parts
from aerobee.broker.rpc.cluster_link import ClusterLink
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb


class Heard:
    """Roles that only listen."""

    own = SimpleNamespace(broker_id=0, incarnation="log-0")

    def __init__(self) -> None:
        self.groups: list[pb.GroupRecord] = []

    def hear_group(self, group: pb.GroupRecord) -> None:
        self.groups.append(group)

    def hear_endpoints(self, endpoints: Any) -> None:
        pass

    def renewed(self, sequence: int, lease_ms: int) -> None:
        pass


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
    assert heard.groups == [known]
