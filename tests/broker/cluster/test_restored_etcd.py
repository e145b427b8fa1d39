"""An etcd restored from an older snapshot: real etcd, real brokers, registrations of yesterday."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aerobee.cli.local_cluster.programs import etcd_binary
from aerobee.runtime.errors import NotMaster
from aerobee.v1 import common_pb2
from tests.support.etcd import EtcdProcess, running_etcd
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.waiting import until

MESSAGES = 500
LEASE_MS = 5_000
"""So long that yesterday's registrations outlast the start of a nameserver."""


def save(etcd: EtcdProcess, file: Path) -> None:
    words: list[str | Path] = [etcd_binary().with_name("etcdctl"), "--endpoints", etcd.endpoint]
    subprocess.run([*words, "snapshot", "save", file], check=True, capture_output=True)


def restore(etcd: EtcdProcess, file: Path) -> None:
    """Its folder as it was when `file` was saved."""
    peer = f"http://127.0.0.1:{etcd.peer_port}"
    shutil.rmtree(etcd.folder / "etcd")
    words: list[str | Path] = [etcd_binary().with_name("etcdutl"), "snapshot", "restore", file]
    words += [f"--data-dir={etcd.folder / 'etcd'}", f"--initial-cluster=default={peer}"]
    words += [f"--initial-advertise-peer-urls={peer}"]
    subprocess.run(words, check=True, capture_output=True)


async def handed_over(group: ReplicaGroup, master: int) -> int:
    """The next master's id, once all replicas are in sync under it."""
    try:
        assert (await group.hand_over(master)).master_id != master
    except NotMaster:  # on a busy machine its lease was late
        master = await group.master()
        assert (await group.hand_over(master)).master_id != master
    after = await group.master(not_id=master)
    await group.in_sync(*group.replicas)
    return after


@pytest.mark.slow
async def test_no_healthy_broker_ends_after_etcd_is_restored_from_an_older_snapshot(
    tmp_path: Path,
) -> None:
    """Each hand-over makes another process of a broker, so the snapshot's registrations name former
    ones, which live again for one lease."""
    snapshot = tmp_path / "snapshot.db"
    with running_etcd(tmp_path) as etcd:
        async with replica_group(
            tmp_path, etcd.endpoint, min_insync_replicas=2, lease_ms=LEASE_MS
        ) as group:
            await group.in_sync(*group.replicas)
            master = await group.master()
            await group.create_topic("t", queues=1)
            await group.send_until_stored("t", b"first")
            save(etcd, snapshot)
            for _ in range(2):
                master = await handed_over(group, master)
            bodies = [f"{number}".encode() for number in range(MESSAGES)]
            for body in bodies:
                assert (await group.send(master, "t", body)).code == common_pb2.OK

            etcd.kill()
            restore(etcd, snapshot)
            etcd.start()
            await group.restart_nameserver()

            async def refused() -> bool:
                return any("by another live process" in one.log for one in group.replicas.values())

            await until(refused)
            await group.in_sync(*group.replicas)
            await group.send_until_stored("t", b"last")
            for replica in group.replicas.values():
                assert replica.process is not None
                assert replica.process.returncode is None, replica.log
            master = await group.master()

            async def is_writable() -> bool:
                return (await group.stats(master)).writable

            await until(is_writable)
            found = await group.pull_all(master, "t")
            # `send_until_stored` may have sent its message to a master that did not answer in time.
            assert [*dict.fromkeys(found)] == [b"first", *bodies, b"last"]
