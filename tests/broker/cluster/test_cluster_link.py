"""What a broker takes from directives that say little."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.access.book import AccessBook
from aerobee.broker.cluster.closing import Closing
from aerobee.broker.cluster.cluster_link import SAVE_PAUSE_S, ClusterLink
from aerobee.broker.cluster.own_address import OwnAddress
from aerobee.broker.cluster.records import view_of
from aerobee.broker.cluster.retired_topics import RetiredTopics
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.tables.config_tables import TopicTable
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

    def may_act(self) -> bool:
        return True

    def renewed(self, sequence: int, lease_ms: int) -> None:
        pass


def link_of(roles: Any, store: Any = None) -> ClusterLink:
    """Of a broker without topics."""
    return ClusterLink(parts_of(roles, store))


def parts_of(roles: Any, store: Any = None) -> Any:
    return SimpleNamespace(
        config=SimpleNamespace(
            registration_lease_ms=10_000,
            zone="",
            replication=SimpleNamespace(min_insync_replicas=1),
            store=SimpleNamespace(retention=RetentionConfig()),
        ),
        identity=common_pb2.BrokerIdentity(broker_name="broker-a", broker_id=0, instance="i1"),
        address=OwnAddress("h:1"),
        store_host=SimpleNamespace(is_ipv6=False),
        access=SimpleNamespace(book=AccessBook()),
        store=store,
        topics=TopicTable(),
        egress=SimpleNamespace(wake_all=lambda: None),
        progress=SimpleNamespace(topic_ends=SimpleNamespace(wake=lambda: None)),
        roles=roles,
        replica=SimpleNamespace(predecessor="", opened_end=40),
        report=SimpleNamespace(trouble=""),
        handover=SimpleNamespace(successor_id=None),
        closing=Closing(SystemClock(), broker_name="broker-a", grace_ms=0),
        writability=SimpleNamespace(no_room_reason=lambda: ""),
        watch=SimpleNamespace(is_hung=False),
        slow_loop=SimpleNamespace(is_slow=False),
    )


@pytest.mark.parametrize(("flushed", "confirmed"), [(70, 80), (80, 70)])
def test_a_heartbeat_tells_what_no_clean_election_cuts_and_no_power_failure_takes(
    flushed: int, confirmed: int
) -> None:
    """It must never be more: a log that ends before it is taken for an old copy."""
    roles = SimpleNamespace(
        own=Heard.own,
        term=None,
        own_epoch=1,
        log_epoch=lambda: 1,
        confirmed_end=confirmed,
        mastership=SimpleNamespace(resigned_epoch=None),
    )
    link = link_of(roles, store=SimpleNamespace(min_offset=0, appended_end=90, flushed_end=flushed))
    heartbeat = link.heartbeat()
    assert (heartbeat.durable_end, heartbeat.log_end, heartbeat.opened_end) == (70, 90, 40)


@pytest.mark.parametrize("stale", [True, False])
async def test_a_nameserver_that_knows_nothing_makes_no_broker_believe_that_it_is_alone(
    stale: bool,
) -> None:
    heard = Heard()
    link = link_of(heard)
    await link.follow(pb.BrokerDirective(stale=stale))
    assert heard.groups == []
    known = pb.GroupRecord(broker_name="broker-a", epoch=3, master_id=1, replicas=[0, 1])
    await link.follow(pb.BrokerDirective(stale=stale, group=known, role=common_pb2.SLAVE))
    assert heard.groups == [view_of(known)]


async def test_many_new_topics_do_not_each_rewrite_the_file_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The regular saves have the others within seconds; a deletion is written at once."""
    saved: list[int] = []
    parts = parts_of(Heard())
    now_s = 1_000.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s, raising=False)

    async def save(path: str) -> None:
        saved.append(len(parts.topics))

    parts.files = SimpleNamespace(save=save)
    parts.retired = RetiredTopics(
        parts.topics, SimpleNamespace(), SystemClock(), broker_name="broker-a", grace_ms=0
    )
    parts.progress.topic_ends.ended_at_ms = lambda topic: 0
    link = ClusterLink(parts)

    async def hear(*numbers: int, deleted: bool = False) -> None:
        topics = [
            common_pb2.TopicConfig(
                name=f"t{number}", perm=6, queues_by_broker={"broker-a": 1}, deleted=deleted
            )
            for number in numbers
        ]
        await link.follow(pb.BrokerDirective(topics=topics, metadata_revision=max(numbers) + 1))

    await hear(*range(1_000))
    assert saved == [1_000]
    for number in range(1_000, 1_100):
        await hear(number)
    assert saved == [1_000]
    await hear(7, deleted=True)
    assert saved == [1_000, 1_099]
    now_s += 1_099 * SAVE_PAUSE_S
    await hear(1_100)
    assert saved == [1_000, 1_099, 1_100]
