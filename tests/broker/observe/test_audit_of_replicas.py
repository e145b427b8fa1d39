"""Every replica answers an audit with what it has: a group of three, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.client_core.audit import Audit
from aerobee.cluster_view.methods import COMMIT_OFFSETS
from aerobee.v1 import audit_pb2, broker_pb2, common_pb2
from tests.support.etcd import running_etcd
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.waiting import until

pytestmark = pytest.mark.slow

MESSAGES = 20


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


async def read(group: ReplicaGroup, broker_id: int) -> dict[str, list[audit_pb2.SnapshotPart]]:
    """The parts of one replica's reading, by kind."""
    found: dict[str, list[audit_pb2.SnapshotPart]] = {}
    address = group.replicas[broker_id].address
    async for part in Audit(group.channels).snapshot(address, audit_pb2.SnapshotRequest()):
        found.setdefault(str(part.WhichOneof("part")), []).append(part)
    return found


def commits_of(found: dict[str, list[audit_pb2.SnapshotPart]]) -> list[tuple[object, ...]]:
    return [
        (
            part.commits.groups[part.commits.group_codes[row]],
            part.commits.queue_ids[row],
            part.commits.offsets[row],
            part.commits.committed_at_ms[row],
            part.commits.clients[part.commits.client_codes[row]],
        )
        for part in found.get("commits", ())
        for row in range(len(part.commits.offsets))
    ]


def end_of(found: dict[str, list[audit_pb2.SnapshotPart]]) -> int:
    """Of queue 0 of topic `t`."""
    (part,) = found["queues"]
    rows = part.queues
    (row,) = (
        row
        for row, code in enumerate(rows.topic_codes)
        if rows.topics[code] == "t" and rows.queue_ids[row] == 0
    )
    return rows.max_offsets[row]


async def commit(group: ReplicaGroup, master: int, offset: int) -> None:
    queue = broker_pb2.QueueOffset(topic="t", queue_id=0, offset=offset)
    request = broker_pb2.CommitOffsetsRequest(group="g", client_id="m", offsets=[queue])
    answer = await group.channels.call(group.replicas[master].address, COMMIT_OFFSETS, request)
    assert answer.results[0].code == common_pb2.OK


async def test_slaves_tell_their_own_ends_and_the_masters_offsets(
    etcd: str, tmp_path: Path
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        await group.in_sync(*group.replicas)
        await group.create_topic("t")
        master = await group.send_until_stored("t", b"first")
        for _ in range(MESSAGES - 1):
            assert (await group.send(master, "t", b"x")).code == common_pb2.OK
        await commit(group, master, 7)
        slaves = [broker_id for broker_id in group.replicas if broker_id != master]
        told = commits_of(await read(group, master))
        assert [row[:3] for row in told] == [("g", 0, 7)]
        for slave in slaves:

            async def knows(slave: int = slave) -> bool:
                return commits_of(await read(group, slave)) == told

            await until(knows)
        readings = {broker_id: await read(group, broker_id) for broker_id in group.replicas}
        for broker_id, found in readings.items():
            seen = found["broker"][0].broker
            expected = common_pb2.MASTER if broker_id == master else common_pb2.SLAVE
            assert seen.stats.role == expected
            assert seen.stats.identity.broker_id == broker_id
            assert (seen.master_id, list(seen.in_sync)) == (master, [0, 1, 2])
            assert end_of(found) == MESSAGES
            assert found["epochs"] == readings[master]["epochs"]
            # Only who acknowledges counts.
            counted = sum(sum(part.minutes.acknowledged) for part in found["minutes"])
            assert counted == (MESSAGES if broker_id == master else 0)
        incarnations = {found["broker"][0].broker.incarnation for found in readings.values()}
        assert len(incarnations) == 3
        await checksums_agree(group)


async def checksums_agree(group: ReplicaGroup) -> None:
    """Each replica's log has the same checksums as far as all of them know it to be confirmed."""
    await group.logs_equal(*group.replicas)
    audit = Audit(group.channels)
    found = []
    for replica in group.replicas.values():
        ends = [each async for each in audit.checksums(replica.address, range_bytes=4_096)]
        found.append({(each.begin, each.end): each.checksum for each in ends})
    common = set(found[0]) & set(found[1]) & set(found[2])
    assert common
    for name in common:
        assert len({each[name] for each in found}) == 1
