"""What `aerobee cluster show` makes of what nameserver and brokers say."""

from __future__ import annotations

from typing import Any, cast

from aerobee import AdminClient
from aerobee.cli import cluster_picture
from aerobee.cli.cluster_picture import HEADERS, Replica
from aerobee.client_core.admin_brokers import BrokerStatistics, broker_statistics
from aerobee.client_core.admin_cluster import broker_group, cluster_state
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2
from aerobee.v1 import nameserver_pb2 as pb


class KnownStats:
    """As much of an AdminClient as a picture needs: what single brokers say."""

    def __init__(self, stats: dict[str, broker_pb2.BrokerStats]) -> None:
        self._stats = stats
        self.brokers = self

    async def statistics(self, address: str) -> BrokerStatistics:
        if address not in self._stats:
            raise errors.Unreachable(f"nobody listens at {address}")
        return broker_statistics(self._stats[address])


def group(**changes: Any) -> pb.GroupRecord:
    settings: dict[str, Any] = {
        "broker_name": "broker-a",
        "epoch": 5,
        "master_id": 0,
        "in_sync": [
            pb.ReplicaName(broker_id=0, incarnation="log-0"),
            pb.ReplicaName(broker_id=1, incarnation="log-1"),
        ],
        "replicas": [0, 1, 2],
    }
    return pb.GroupRecord(**(settings | changes))


def endpoint(broker_id: int, role: common_pb2.BrokerRole) -> pb.BrokerEndpoint:
    identity = common_pb2.BrokerIdentity(
        cluster="c", broker_name="broker-a", broker_id=broker_id, instance=f"i{broker_id}"
    )
    return pb.BrokerEndpoint(
        identity=identity, address=f"h:{broker_id}", role=role, epoch=5, writable=True
    )


def described(record: pb.GroupRecord, *brokers: pb.BrokerEndpoint) -> pb.ClusterDescription:
    return pb.ClusterDescription(
        cluster="c",
        brokers=brokers,
        heartbeat_age_ms=[150] * len(brokers),
        last_heartbeats=[
            pb.BrokerHeartbeat(incarnation=f"log-{broker.identity.broker_id}") for broker in brokers
        ],
        groups=[record],
    )


async def picture(
    description: pb.ClusterDescription, **stats: broker_pb2.BrokerStats
) -> list[Replica]:
    known = {f"h:{name[1:]}": value for name, value in stats.items()}
    return await cluster_picture.look(
        cast("AdminClient", KnownStats(known)), cluster_state(description)
    )


def cells(replica: Replica) -> dict[str, object]:
    return dict(zip(HEADERS, cluster_picture.row(replica), strict=True))


MASTER_STATS = broker_pb2.BrokerStats(
    flush_mode="async",
    writable=True,
    log_appended_end=8 * 2**20,
    replicas=[
        broker_pb2.ReplicaProgress(
            broker_id=1, connected=True, in_sync=True, lag_bytes=3 * 2**20, lag_ms=1_500
        )
    ],
)
SLAVE_STATS = broker_pb2.BrokerStats(
    flush_mode="async",
    writable=True,
    log_appended_end=5 * 2**20,
    slave=broker_pb2.SlaveProgress(master_id=0, connected=True, master_end=8 * 2**20),
)


async def test_each_replica_has_a_row_with_role_epoch_set_and_lag() -> None:
    brokers = (endpoint(1, common_pb2.SLAVE), endpoint(0, common_pb2.MASTER))
    master, slave, away = await picture(
        described(group(), *brokers), b0=MASTER_STATS, b1=SLAVE_STATS
    )
    assert [cells(one)["role"] for one in (master, slave, away)] == ["master", "slave", "away"]
    assert [cells(one)["id"] for one in (master, slave, away)] == [0, 1, 2]
    assert [cells(one)["in sync"] for one in (master, slave, away)] == [True, True, False]
    assert [cells(one)["lag"] for one in (master, slave, away)] == ["-", "3.0 MiB, 1.5 s", "-"]
    assert cells(slave)["epoch"] == 5
    assert cells(away)["address"] is None
    (line,) = cluster_picture.remarks([master, slave, away])
    assert line.startswith("broker-a/2: not registered")
    assert line.endswith("aerobee cluster remove-replica broker-a 2")


async def test_a_slave_tells_its_lag_itself_when_its_master_does_not_answer() -> None:
    brokers = (endpoint(0, common_pb2.MASTER), endpoint(1, common_pb2.SLAVE))
    master, slave = await picture(described(group(replicas=[0, 1]), *brokers), b1=SLAVE_STATS)
    assert cells(master)["flush"] == "no answer"
    assert cells(slave)["lag"] == "3.0 MiB"
    document = cluster_picture.replica_document(slave)
    assert (document["lagBytes"], document["lagMs"], document["inSync"]) == (3 * 2**20, None, True)
    assert cluster_picture.replica_document(master)["stats"] is None


async def test_a_replica_whose_log_was_begun_anew_is_not_in_sync() -> None:
    brokers = (endpoint(0, common_pb2.MASTER), endpoint(1, common_pb2.SLAVE))
    description = described(group(replicas=[0, 1]), *brokers)
    description.last_heartbeats[1].incarnation = "log-1-again"
    _, slave = await picture(description, b0=MASTER_STATS, b1=SLAVE_STATS)
    assert cells(slave)["in sync"] is False


async def test_an_operator_is_told_of_a_group_without_master_and_of_unclean_epochs() -> None:
    record = group(replicas=[0, 1], unclean_epochs=[3, 5])
    trouble = broker_pb2.BrokerStats(slave=broker_pb2.SlaveProgress(trouble="its log diverged"))
    trouble.writable = True
    replicas = await picture(described(record, endpoint(1, common_pb2.SLAVE)), b1=trouble)
    said = cluster_picture.remarks(replicas)
    assert said[0] == (
        "broker-a: has no master; an election needs one of the replicas in sync: 0, 1"
    )
    assert said[1] == "broker-a: messages may have been lost where these epochs began: 3, 5"
    assert "broker-a/1: does not follow its master: its log diverged" in said


async def test_who_lacks_messages_now_is_not_named_as_one_that_ends_the_wait() -> None:
    description = described(group(replicas=[0, 1]), endpoint(1, common_pb2.SLAVE))
    description.last_heartbeats[0].incarnation = "log-1-again"
    replicas = await picture(description, b1=SLAVE_STATS)
    assert cluster_picture.remarks(replicas)[0] == (
        "broker-a: has no master; an election needs one of the replicas in sync: 0"
    )
    del description.groups[0].in_sync[0]
    replicas = await picture(description, b1=SLAVE_STATS)
    said = cluster_picture.remarks(replicas)[0]
    assert said.endswith("the replicas that were in sync lack messages now: start all others")


async def test_a_nameserver_that_knows_no_groups_is_shown_as_before() -> None:
    description = pb.ClusterDescription(brokers=[endpoint(0, common_pb2.MASTER)])
    (master,) = await picture(description, b0=MASTER_STATS)
    assert (cells(master)["role"], cells(master)["epoch"]) == ("master", 5)
    assert cluster_picture.remarks([master]) == []


def test_a_group_without_master_has_none_in_its_document() -> None:
    assert cluster_picture.group_document(broker_group(group(master_id=-1)))["masterId"] is None
    assert cluster_picture.group_document(broker_group(group())) == {
        "broker": "broker-a",
        "closed": False,
        "epoch": 5,
        "masterId": 0,
        "inSync": [0, 1],
        "replicas": [0, 1, 2],
        "uncleanEpochs": [],
    }


async def test_nobody_is_told_to_remove_a_replica_that_alone_has_all_messages() -> None:
    record = group(master_id=-1, in_sync=[pb.ReplicaName(broker_id=2, incarnation="log-2")])
    replicas = await picture(described(record, endpoint(1, common_pb2.SLAVE)), b1=SLAVE_STATS)
    said = cluster_picture.remarks(replicas)
    assert "broker-a/2: not registered; start it again: it has all messages" in said
    assert not [line for line in said if "remove-replica broker-a 2" in line]


async def test_that_a_slave_takes_no_messages_is_no_news() -> None:
    refusing = broker_pb2.BrokerStats()
    refusing.CopyFrom(SLAVE_STATS)
    refusing.writable, refusing.not_writable_reason = False, "it is a slave"
    brokers = (endpoint(0, common_pb2.MASTER), endpoint(1, common_pb2.SLAVE))
    replicas = await picture(
        described(group(replicas=[0, 1]), *brokers), b0=MASTER_STATS, b1=refusing
    )
    assert cluster_picture.remarks(replicas) == []
    assert cells(replicas[1])["flush"] == "async"


async def test_zones_are_a_column_if_any_broker_has_one() -> None:
    master, slave = endpoint(0, common_pb2.MASTER), endpoint(1, common_pb2.SLAVE)
    headers, rows = cluster_picture.table(await picture(described(group(), master, slave)))
    assert headers == list(HEADERS)
    assert {len(one) for one in rows} == {len(HEADERS)}
    slave.zone = "eu-1a"
    replicas = await picture(described(group(), master, slave))
    headers, rows = cluster_picture.table(replicas)
    at = headers.index("zone")
    assert [one[at] for one in rows] == ["-", "eu-1a", "-"], "the third is away"
    assert [one.pop(at) for one in rows]
    assert rows == [cluster_picture.row(each) for each in replicas]
    documents = [cluster_picture.replica_document(each) for each in replicas]
    assert [one["zone"] for one in documents] == [None, "eu-1a", None]
