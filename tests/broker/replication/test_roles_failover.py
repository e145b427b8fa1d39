"""Three replicas in processes of their own: fail-over, fencing and hand-over."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.broker.replication.state_file import STATE_PATH, ReplicaState
from aerobee.rpc.own_protocol import code_of
from aerobee.runtime import errors
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.replicas.closed_log import begin_log_at
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.etcd import running_etcd
from tests.support.replica_group import LEASE_MS, MIB, Replica, ReplicaGroup, replica_group
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


async def ready(group: ReplicaGroup) -> int:
    """All replicas in sync and a topic `t`; returns the master's id."""
    await group.in_sync(*group.replicas)
    await group.create_topic("t")
    await group.send_until_stored("t", b"first")
    return await group.master()


async def bodies(group: ReplicaGroup, broker_id: int) -> list[bytes]:
    """What a replica shows of queue 0."""
    return await group.pull_all(broker_id, "t")


async def test_after_kill_9_of_the_master_nothing_acknowledged_is_lost(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        former = await ready(group)
        acknowledged = [b"first"]
        for number in range(50):
            ack = await group.send(former, "t", b"%d" % number)
            assert ack.code == common_pb2.OK
            assert ack.durability == broker_pb2.REPLICATED
            acknowledged.append(b"%d" % number)
        began_s = time.monotonic()
        await group.replicas[former].kill()
        successor = await group.send_until_stored("t", b"after")
        assert time.monotonic() - began_s < LEASE_MS / 1_000 + 1.5
        assert successor != former
        assert await bodies(group, successor) == [*acknowledged, b"after"]
        await group.replicas[former].start()
        await group.in_sync(*group.replicas)
        await group.logs_equal(*group.replicas)


async def test_a_master_stopped_beyond_its_lease_acknowledges_nothing_more(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        former = await ready(group)
        epoch = (await group.record()).epoch
        group.replicas[former].signal(signal.SIGSTOP)
        async with asyncio.TaskGroup() as tasks:
            # In its socket before it goes on, so that it is read before any news.
            late = tasks.create_task(outcome(group, former, b"late"))
            successor = await group.master(not_id=former)
            assert (await group.send(successor, "t", b"new")).code == common_pb2.OK
            group.replicas[former].signal(signal.SIGCONT)
            assert await late not in (common_pb2.OK, common_pb2.FLUSH_DISK_TIMEOUT)
        assert (await group.record()).epoch > epoch
        await group.in_sync(*group.replicas)
        await group.logs_equal(*group.replicas)
        for broker_id in group.replicas:
            assert await bodies(group, broker_id) == [b"first", b"new"]


async def test_with_async_replication_a_stopped_master_is_fenced_as_well(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, mode="async_master") as group:
        former = await ready(group)
        group.replicas[former].signal(signal.SIGSTOP)
        async with asyncio.TaskGroup() as tasks:
            late = tasks.create_task(outcome(group, former, b"late"))
            await group.master(not_id=former)
            group.replicas[former].signal(signal.SIGCONT)
            assert await late != common_pb2.OK
        await group.in_sync(*group.replicas)
        await group.logs_equal(*group.replicas)


async def test_a_hand_over_pauses_briefly_and_moves_the_master_where_it_was_told(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        master = await ready(group)
        pauses_ms = []
        for _ in range(4):
            successor = (master + 1) % 3
            done = await group.hand_over(master, successor)
            pauses_ms.append(done.paused_ms)
            assert done.master_id == successor
            assert await group.send_until_stored("t", b"to %d" % successor) == successor
            await group.in_sync(*group.replicas)
            master = successor
        assert min(pauses_ms) < 300, pauses_ms
        await group.logs_equal(*group.replicas)


async def test_a_hand_over_to_a_replica_that_is_not_in_sync_is_refused(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        master = await ready(group)
        slave = (master + 1) % 3
        with pytest.raises(errors.NotMaster):
            await group.hand_over(slave)
        with pytest.raises(errors.InvalidArgument, match="replica 7 cannot take over"):
            await group.hand_over(master, 7)
        assert (await group.send(master, "t", b"goes on")).code == common_pb2.OK


async def test_a_hand_over_to_a_silent_replica_is_called_off(tmp_path: Path, etcd: str) -> None:
    # Neither lag nor leases end within the test: the silent replica stays in sync, and the master
    # keeps its epoch, however slow the machine is.
    async with replica_group(tmp_path, etcd, in_sync_lag_max_ms=60_000, lease_ms=60_000) as group:
        master = await ready(group)
        epoch = (await group.record()).epoch
        slave = (master + 1) % 3
        group.replicas[slave].signal(signal.SIGSTOP)
        late = await group.send(master, "t", b"not copied", timeout_ms=100)
        assert late.code in (common_pb2.FLUSH_SLAVE_TIMEOUT, common_pb2.SLAVE_NOT_AVAILABLE)
        with pytest.raises(errors.DeadlineExceeded, match="stays master"):
            await group.hand_over(master, slave, timeout_ms=500)
        group.replicas[slave].signal(signal.SIGCONT)
        assert await group.send_until_stored("t", b"goes on") == master
        record = await group.record()
        assert (record.master_id, record.epoch) == (master, epoch)


async def test_too_few_replicas_refuse_sends_and_store_nothing(tmp_path: Path, etcd: str) -> None:
    async with replica_group(tmp_path, etcd, min_insync_replicas=3) as group:
        master = await ready(group)
        end = (await group.stats(master)).log_appended_end
        await group.replicas[(master + 1) % 3].kill()
        late = await group.send(master, "t", b"with two", timeout_ms=200)
        assert late.code in (common_pb2.FLUSH_SLAVE_TIMEOUT, common_pb2.SLAVE_NOT_AVAILABLE)
        await group.in_sync(master, (master + 2) % 3)

        async def refuses() -> bool:
            ack = await group.send(master, "t", b"refused")
            return ack.code == common_pb2.NOT_ENOUGH_REPLICAS

        await until(refuses)
        end = (await group.stats(master)).log_appended_end
        assert (await group.send(master, "t", b"refused")).code == common_pb2.NOT_ENOUGH_REPLICAS
        assert (await group.stats(master)).log_appended_end == end
        await group.replicas[(master + 1) % 3].start()
        await group.in_sync(*group.replicas)
        assert (await group.send(master, "t", b"with three")).code == common_pb2.OK


async def test_a_graceful_stop_hands_everything_to_the_next_master_at_once(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, mode="async_master") as group:
        former = await ready(group)
        for number in range(200):
            assert (await group.send(former, "t", b"%d" % number)).code == common_pb2.OK
        began_s = time.monotonic()
        assert await group.replicas[former].stop() == 0
        successor = await group.send_until_stored("t", b"after")
        assert time.monotonic() - began_s < LEASE_MS / 1_000, "nobody waited for its lease"
        expected = [b"first", *(b"%d" % number for number in range(200)), b"after"]

        async def shows_all() -> bool:
            shown = await bodies(group, successor)
            assert shown == expected[: len(shown)]
            return shown == expected

        # Asynchronously replicated, `after` is acknowledged before its slave confirms it.
        await until(shows_all)


async def test_a_slave_that_is_stopped_under_load_stops_at_once_and_keeps_its_name(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, (0, 1), mode="async_master") as group:
        master = await ready(group)
        slave = 1 - master

        async def load() -> None:
            body = bytes(100_000)
            while True:
                await group.send(master, "t", body)

        def incarnation() -> str:
            path = group.replicas[slave].folder / STATE_PATH
            return ReplicaState.decode(path.read_bytes()).incarnation

        loads = [asyncio.create_task(load()) for _ in range(4)]
        try:
            await asyncio.sleep(0.5)
            before = incarnation()
            began_s = time.monotonic()
            assert await group.replicas[slave].stop() == 0
            assert time.monotonic() - began_s < 3, "it does not wait for what still comes"
        finally:
            for task in loads:
                task.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
        await group.replicas[slave].start()
        await group.in_sync(0, 1)
        assert incarnation() == before
        await group.logs_equal(0, 1)


async def outcome(
    group: ReplicaGroup, broker_id: int, body: bytes, *, timeout_ms: int = 8_000
) -> int:
    """The code of one send, whatever becomes of it."""
    try:
        return (await group.send(broker_id, "t", body, timeout_ms=timeout_ms)).code
    except errors.AerobeeError as error:
        return code_of(error)


async def test_what_a_deposed_master_never_had_confirmed_is_cut_from_its_log(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, in_sync_lag_max_ms=30_000) as group:
        former = await ready(group)
        slaves = [one for one in group.replicas if one != former]
        for slave in slaves:
            group.replicas[slave].signal(signal.SIGSTOP)
        for number in range(5):
            late = await group.send(former, "t", b"tail-%d" % number, timeout_ms=50)
            assert late.code == common_pb2.FLUSH_SLAVE_TIMEOUT
        end = (await group.stats(former)).log_appended_end
        await group.replicas[former].kill()
        for slave in slaves:
            # What the kernel has for them in their sockets is of a stream that is over.
            group.replicas[slave].signal(signal.SIGCONT)
        successor = await group.send_until_stored("t", b"new")
        await group.replicas[former].start()
        await group.in_sync(*group.replicas)
        await group.logs_equal(*group.replicas)
        for broker_id in group.replicas:
            found = await bodies(group, broker_id)
            assert found[0] == b"first"
            assert found[-1] == b"new"
            assert found == await bodies(group, successor)
        assert (await group.stats(former)).log_appended_end <= end + 1_000


async def test_a_master_that_crashed_and_is_back_at_once_leads_again_without_waiting(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, lease_ms=20_000) as group:
        master = await ready(group)
        epoch = (await group.record()).epoch
        began_s = time.monotonic()
        await group.replicas[master].kill()
        await group.replicas[master].start()
        await group.send_until_stored("t", b"again")
        assert time.monotonic() - began_s < 10, "the lease of its former run was not waited for"
        assert (await group.record()).epoch > epoch
        await group.in_sync(*group.replicas)
        await group.logs_equal(*group.replicas)


@pytest.mark.thorough
async def test_a_second_broker_with_the_same_identity_is_refused_and_ends(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        master = await ready(group)
        # Longer than a lease: an owner that had died would be gone by then.
        settings = {**group.replicas[master].settings, "duplicate_wait_ms": 2 * LEASE_MS}
        twin = await Replica(master, tmp_path / "twin", settings).start()
        try:
            assert twin.process is not None
            async with asyncio.timeout(60):
                assert await twin.process.wait() != 0
            assert "already registered" in twin.log
        finally:
            await twin.kill()
        assert (await group.send(master, "t", b"undisturbed")).code == common_pb2.OK


@pytest.mark.thorough
async def test_while_etcd_is_away_beyond_the_lease_nothing_is_acknowledged(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as own_etcd:
        async with replica_group(tmp_path, own_etcd.endpoint) as group:
            master = await ready(group)
            own_etcd.kill()
            gone_s = time.monotonic()

            async def is_fenced() -> bool:
                asked_s = time.monotonic() - gone_s
                code = await outcome(group, master, b"?", timeout_ms=1_000)
                if code == common_pb2.OK:
                    assert asked_s < LEASE_MS / 1_000, "acknowledged without a lease"
                return code == common_pb2.NOT_MASTER

            await until(is_fenced)
            own_etcd.start()
            await group.send_until_stored("t", b"back", timeout_s=30)
            await group.in_sync(*group.replicas)
            await group.logs_equal(*group.replicas)


async def test_alone_it_serves_while_etcd_is_away_and_after_a_restart_too(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as own_etcd:
        async with replica_group(tmp_path, own_etcd.endpoint, ids=(0,)) as group:
            await ready(group)
            own_etcd.kill()
            await asyncio.sleep(LEASE_MS / 1_000 + 0.5)
            assert (await group.send(0, "t", b"without etcd")).code == common_pb2.OK
            await group.replicas[0].kill()
            await group.replicas[0].start()
            await group.send_until_stored("t", b"restarted")
            assert await bodies(group, 0) == [b"first", b"without etcd", b"restarted"]


async def test_a_group_of_one_takes_a_second_replica_which_gets_everything(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, ids=(0,)) as group:
        await ready(group)
        for number in range(100):
            assert (await group.send(0, "t", b"%d" % number)).code == common_pb2.OK
        settings = group.replicas[0].settings
        group.replicas[1] = await Replica(1, tmp_path / "replica-1", settings).start()
        await group.in_sync(0, 1)
        await group.logs_equal(0, 1)
        expected = [b"first", *(b"%d" % number for number in range(100))]
        assert await bodies(group, 1) == expected
        await group.replicas[0].kill()
        assert await group.send_until_stored("t", b"after") == 1
        assert await bodies(group, 1) == [*expected, b"after"]


async def test_a_new_replica_begins_where_its_masters_log_begins(tmp_path: Path, etcd: str) -> None:
    begin = 4 * MIB
    folder = tmp_path / "replica-0"
    folder.mkdir()
    # As if retention had removed the first segment.
    begin_log_at(RealDisk(folder), StoreConfig(segment_bytes=begin, disk_free_bytes_min=0), begin)
    async with replica_group(tmp_path, etcd, ids=(0,)) as group:
        await ready(group)
        settings = group.replicas[0].settings
        group.replicas[1] = await Replica(1, tmp_path / "replica-1", settings).start()
        await group.in_sync(0, 1)
        await group.logs_equal(0, 1)
        assert (await group.stats(1)).log_min_offset == begin
        assert await bodies(group, 1) == [b"first"]


@pytest.mark.thorough
async def test_only_an_operator_allows_a_replica_that_lacks_messages_to_lead(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, ids=(0, 1), unclean_election=True) as group:
        former = await ready(group)
        other = 1 - former
        await group.replicas[other].kill()
        await group.in_sync(former)
        assert (await group.send(former, "t", b"only here")).code == common_pb2.OK
        await group.replicas[former].kill()
        await group.replicas[other].start()
        assert await group.send_until_stored("t", b"unclean") == other
        record = await group.record()
        assert list(record.unclean_epochs) == [record.epoch]
        await group.replicas[former].start()
        await group.in_sync(0, 1)
        await group.logs_equal(0, 1)
        assert await bodies(group, former) == [b"first", b"unclean"]
