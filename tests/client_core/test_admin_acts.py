"""What an administrator does to brokers and users, on a real cluster with access control: another
master, a lost replica, a new cluster secret."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from aerobee import AdminClient, Broker, Message, Producer, errors, user_credentials
from aerobee.access.credentials import Credentials, credentials_of_environment
from tests.support.local_up import Up, running
from tests.support.waiting import until

pytestmark = pytest.mark.slow

GROUP = "broker-a"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--access", "--replicas", "2") as up:
        yield up


@pytest.fixture
def operator(up: Up) -> Credentials:
    """Of the cluster secret, which gives all rights."""
    file = up.data / "access" / "cluster-secret"
    return credentials_of_environment({"AEROBEE_CLUSTER_SECRET_FILE": str(file)})


@pytest_asyncio.fixture
async def admin(up: Up, operator: Credentials) -> AsyncIterator[AdminClient]:
    async with AdminClient(up.document()["nameserver"], credentials=operator) as admin:
        yield admin


async def master_and_slave(admin: AdminClient) -> tuple[Broker, Broker]:
    """Once both are in sync."""

    async def found() -> tuple[Broker, Broker] | None:
        brokers = (await admin.cluster()).brokers
        masters = [each for each in brokers if each.is_master]
        slaves = [each for each in brokers if not each.is_master]
        if len(masters) == len(slaves) == 1 and all(each.is_in_sync for each in brokers):
            return masters[0], slaves[0]
        return None

    pair: tuple[Broker, Broker] = await until(found, "a master and a slave in sync")
    return pair


async def test_a_hand_over_makes_the_slave_master_and_loses_nothing(
    up: Up, admin: AdminClient, operator: Credentials
) -> None:
    await admin.topics.create("orders", queues=2)
    async with Producer(up.document()["nameserver"], credentials=operator) as producer:
        await producer.send_batch([Message("orders", b"%d" % n) for n in range(20)])
    before, after = await master_and_slave(admin)
    with pytest.raises(errors.InvalidArgument, match="9"):
        await admin.brokers.hand_over(GROUP, successor_id=9)
    done = await admin.brokers.hand_over(GROUP, successor_id=after.broker_id, timeout=30.0)
    assert done.master_id == after.broker_id
    assert done.epoch > before.epoch
    master, slave = await master_and_slave(admin)
    assert (master.broker_id, slave.broker_id) == (after.broker_id, before.broker_id)
    queues = [each.queue for each in (await admin.topics.describe("orders")).queues]
    bounds = await admin.offsets.bounds(queues, of_master=True)
    assert sum(each.count for each in bounds.values()) == 20
    with pytest.raises(errors.NoBrokerAvailable, match="broker-z has no master"):
        await admin.brokers.hand_over("broker-z")


async def test_a_replica_is_forgotten_once_it_is_lost_and_not_before(
    up: Up, admin: AdminClient
) -> None:
    _, slave = await master_and_slave(admin)
    with pytest.raises(errors.InvalidArgument):
        await admin.brokers.remove_replica(GROUP, slave.broker_id)
    with pytest.raises(errors.GroupNotFound):
        await admin.brokers.remove_replica("broker-z", slave.broker_id)
    (pid,) = [each["pid"] for each in up.document()["brokers"] if each["id"] == slave.broker_id]
    # Stopped, not killed: what dies is started again.
    os.kill(pid, signal.SIGSTOP)
    try:

        async def is_lost() -> bool:
            state = await admin.cluster()
            (group,) = state.groups
            registered = {each.broker_id for each in state.brokers}
            return slave.broker_id not in {*registered, *group.in_sync}

        await until(is_lost, "the slave to be missed")
        left = await admin.brokers.remove_replica(GROUP, slave.broker_id)
        assert (left.broker_name, left.replicas) == (GROUP, left.in_sync)
        assert slave.broker_id not in left.replicas
    finally:
        os.kill(pid, signal.SIGCONT)


# The last one, since afterwards the cluster has another secret.
async def test_a_resealed_user_outlives_the_former_cluster_secret(
    up: Up, admin: AdminClient
) -> None:
    nameserver = up.document()["nameserver"]
    file = up.data / "access" / "cluster-secret"
    former, new = file.read_text().strip(), "e" * 64
    log = up.data / "logs" / "nameserver.log"
    await admin.topics.create("seen-by-kept", queues=1)
    kept, left = [
        AdminClient(nameserver, credentials=user_credentials(name, made.secret))
        for name in ("kept", "left")
        if (made := await admin.users.create(name, is_super=True))
    ]

    async def is_read(secrets: str, user: AdminClient) -> None:
        """A nameserver looks at its file while it is asked."""
        count = log.read_text().count("file read again")
        file.write_text(secrets)

        async def look() -> bool:
            # Between the file and the table of users, a call may come too early.
            with contextlib.suppress(errors.Unauthenticated):
                await user.topics.list()
            return log.read_text().count("file read again") > count

        await until(look, "the nameserver to read its secrets again")

    async with kept, left:
        await is_read(f"{new}\n{former}\n", left)
        resealed = await admin.users.reseal("kept")
        assert (resealed.name, resealed.is_super, resealed.secrets) == ("kept", True, 1)
        await is_read(f"{new}\n", kept)
        assert await kept.topics.list()
        with pytest.raises(errors.Unauthenticated):
            await left.topics.list()
    with pytest.raises(errors.IllegalName):
        await admin.users.reseal("nobody")
