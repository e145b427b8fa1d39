"""An old copy of a folder is put back over a replica's own, in a group of real processes: what was
acknowledged after the copy is never lost without a word."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aerobee.broker.replication.state_file import STATE_PATH, ReplicaState
from aerobee.nameserver.config import EtcdConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.stored import BrokerKey, DurableLogs, Keys
from aerobee.v1 import common_pb2
from tests.support.etcd import EtcdProcess
from tests.support.replica_group import GROUP, LEASE_MS, ReplicaGroup, replica_group
from tests.support.waiting import until

pytestmark = pytest.mark.slow

LINE = "this log lacks what it once had"


@pytest.fixture(scope="module")
def etcd_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    process = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
async def etcd(etcd_process: EtcdProcess) -> AsyncIterator[Etcd]:
    config = EtcdConfig(endpoints=(etcd_process.endpoint,))
    async with Etcd(config, chance=random.Random(1)) as client:
        yield client


def incarnation(folder: Path) -> str:
    return ReplicaState.decode((folder / STATE_PATH).read_bytes()).incarnation


async def noted(etcd: Etcd, group: ReplicaGroup, end: int) -> None:
    """Until etcd knows of every replica that its log was durable up to `end`."""
    keys = Keys(group.cluster)

    async def holds() -> bool:
        for broker_id in group.replicas:
            entry = await etcd.get(keys.durable(BrokerKey(GROUP, broker_id)))
            durable = DurableLogs() if entry is None else keys.decode(entry)
            assert isinstance(durable, DurableLogs)
            if not any(log.end >= end for log in durable.logs):
                return False
        return True

    await until(holds)


async def acknowledged(group: ReplicaGroup, count: int) -> list[bytes]:
    """That many messages more, each of them on all replicas' disks."""
    bodies = [b"later-%d" % number for number in range(count)]
    for body in bodies:
        await group.send_until_stored("t", body)
    return bodies


async def put_back(etcd: Etcd, group: ReplicaGroup, broker_id: int, copy: Path) -> None:
    """All die at once, and the copy takes the place of one folder."""
    end = (await group.stats(await group.master())).log_appended_end
    await noted(etcd, group, end)
    await asyncio.gather(*(replica.kill() for replica in group.replicas.values()))
    folder = group.replicas[broker_id].folder
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


async def refuses_to_lead(group: ReplicaGroup, broker_id: int) -> None:
    """Started alone it says that it lacks something, and nobody makes it master."""
    replica = group.replicas[broker_id]
    name = incarnation(replica.folder)
    await replica.start()

    async def has_said_so() -> bool:
        with contextlib.suppress(FileNotFoundError):  # while it is replaced
            return LINE in replica.log and incarnation(replica.folder) != name
        return False

    await until(has_said_so)
    await asyncio.sleep(LEASE_MS / 1_000 + 3)
    record = await group.record()
    instance = ReplicaState.decode((replica.folder / STATE_PATH).read_bytes()).instance
    assert record.master_instance != instance
    assert list(record.unclean_epochs) == []
    stats = await group.stats(broker_id)
    assert not stats.writable
    assert "the folder lacks messages that this replica once had" in stats.slave.trouble


@pytest.mark.thorough
@pytest.mark.parametrize("is_running", [False, True], ids=["of-a-stopped", "of-a-running"])
async def test_a_copy_of_a_replica_is_not_elected_and_an_intact_one_loses_nothing(
    tmp_path: Path, etcd_process: EtcdProcess, etcd: Etcd, is_running: bool
) -> None:
    copy = tmp_path / "copy"
    async with replica_group(tmp_path, etcd_process.endpoint, flush="sync") as group:
        await group.in_sync(*group.replicas)
        await group.create_topic("t")
        await group.send_until_stored("t", b"first")
        master = await group.master()
        slave, other = (one for one in group.replicas if one != master)
        await group.logs_equal(*group.replicas)
        if is_running:
            # Nothing is written at this moment, as in a snapshot of the volume.
            shutil.copytree(group.replicas[slave].folder, copy)
        else:
            await group.replicas[slave].stop()
            shutil.copytree(group.replicas[slave].folder, copy)
            await group.replicas[slave].start()
            await group.in_sync(*group.replicas)
        later = await acknowledged(group, 20)
        assert incarnation(copy) == incarnation(group.replicas[slave].folder)
        await put_back(etcd, group, slave, copy)

        await refuses_to_lead(group, slave)
        # As they died one after the other, the set may name fewer: then all are waited for.
        is_named = other in {name.broker_id for name in (await group.record()).in_sync}
        await group.replicas[other].start()
        if not is_named:
            await group.replicas[master].start()
        leader = await group.master()
        assert leader != slave
        assert await group.pull_all(leader, "t") == [b"first", *later]
        assert bool((await group.record()).unclean_epochs) == (not is_named)
        if is_named:
            await group.replicas[master].start()
        await group.in_sync(*group.replicas)
        await group.logs_equal(*group.replicas)


@pytest.mark.thorough
async def test_a_group_of_one_goes_on_with_the_copy_and_its_epoch_says_so(
    tmp_path: Path, etcd_process: EtcdProcess, etcd: Etcd
) -> None:
    copy = tmp_path / "copy"
    async with replica_group(tmp_path, etcd_process.endpoint, (0,)) as group:
        await group.in_sync(0)
        await group.create_topic("t")
        await group.send_until_stored("t", b"first")
        await group.replicas[0].stop()
        shutil.copytree(group.replicas[0].folder, copy)
        await group.replicas[0].start()
        await acknowledged(group, 20)
        await put_back(etcd, group, 0, copy)
        epoch = (await group.record()).epoch

        await group.replicas[0].start()
        await until(lambda: is_unclean(group))
        assert LINE in group.replicas[0].log
        await group.master()
        assert await group.pull_all(0, "t") == [b"first"]
        assert (await group.send(0, "t", b"goes on")).code == common_pb2.OK
        record = await group.record()
        assert list(record.unclean_epochs) == [record.epoch]
        assert record.epoch > epoch
        await group.replicas[0].stop()
        await group.replicas[0].start()
        await group.send_until_stored("t", b"again")
        assert list((await group.record()).unclean_epochs) == [record.epoch], "it is told once"


async def is_unclean(group: ReplicaGroup) -> bool:
    return bool((await group.record()).unclean_epochs)
