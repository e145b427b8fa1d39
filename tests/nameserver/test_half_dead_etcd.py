"""An etcd that answers some calls and leaves others waiting: nobody waits without a limit."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aerobee.nameserver.config import EtcdConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.etcd_watch import EtcdWatch
from aerobee.nameserver.key_values import Put
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.dying_path import dying_path
from tests.support.etcd_proxy import EtcdProxy
from tests.support.waiting import until

CALL_TIMEOUT_S = 1.0
"""As the fixture's nameservers have it."""


@pytest.fixture
async def proxy(shared_etcd: Any) -> AsyncIterator[EtcdProxy]:
    async with EtcdProxy(shared_etcd.endpoint) as proxy:
        yield proxy


async def is_fresh(server: Any) -> bool:
    return not (await server.stub.ListTopics(pb.ListTopicsRequest())).stale


async def set_in_sync(server: Any, group: pb.GroupRecord, *replicas: Any) -> pb.GroupRecord:
    """As the group's master would."""
    wanted = [
        pb.ReplicaName(broker_id=one.broker_id, incarnation=one.incarnation) for one in replicas
    ]
    request = pb.AlterInSyncSetRequest(
        broker_name=group.broker_name,
        master_id=group.master_id,
        master_instance=group.master_instance,
        epoch=group.epoch,
        expected_revision=group.revision,
        in_sync=wanted,
    )
    answer: pb.GroupRecord = await server.stub.AlterInSyncSet(request)
    return answer


def watch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "etcd-watch"]


async def test_a_watch_that_etcd_accepts_and_never_confirms_is_given_up_for_another(
    proxy: EtcdProxy, start_nameserver: Any
) -> None:
    proxy.watches_mute = 2
    server = await start_nameserver(proxy.endpoint)
    assert not await is_fresh(server)
    await until(lambda: is_fresh(server), timeout_s=10 * CALL_TIMEOUT_S)
    assert proxy.watch_count == 3


async def test_a_member_that_confirms_no_watch_is_left_for_the_next_one(
    proxy: EtcdProxy, shared_etcd: Any
) -> None:
    proxy.watches_mute = 1
    config = EtcdConfig(endpoints=(proxy.endpoint, shared_etcd.endpoint), call_timeout_ms=1_000)
    async with Etcd(config, chance=random.Random(1)) as etcd:
        async with asyncio.timeout(5), etcd.watch("/", from_revision=0) as batches:
            with pytest.raises(RegistryUnavailable, match="did not confirm the watch"):
                await anext(batches)
        assert etcd.endpoint == shared_etcd.endpoint
        async with etcd.watch("/", from_revision=0) as batches:
            assert (await anext(batches)).events == ()


async def test_a_watch_that_stands_may_be_silent_for_as_long_as_nothing_happens(
    proxy: EtcdProxy, cluster: str
) -> None:
    config = EtcdConfig(endpoints=(proxy.endpoint,), call_timeout_ms=200)
    async with (
        Etcd(config, chance=random.Random(1)) as etcd,
        etcd.watch(f"/{cluster}/", from_revision=0) as batches,
    ):
        await anext(batches)
        later = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0.6)
        assert not later.done()
        await etcd.transaction({}, [Put(f"/{cluster}/a", b"")])
        assert [event.key for event in (await later).events] == [f"/{cluster}/a"]


class _Bug(Exception):
    """Nothing that gRPC raises."""


class _FailingCall:
    def __iter__(self) -> Any:
        raise _Bug("a response that nobody can read")

    def cancel(self) -> None: ...


class _FailingStubs:
    """etcd's stubs, with a watch that fails as no watch should."""

    @staticmethod
    def WatchCreateRequest(**fields: object) -> object:
        return fields

    @staticmethod
    def WatchRequest(**fields: object) -> object:
        return fields

    class WatchStub:
        def __init__(self, channel: object) -> None: ...

        def Watch(self, requests: object, metadata: object) -> _FailingCall:
            return _FailingCall()


async def test_whatever_ends_a_watch_is_heard_by_those_who_read_it() -> None:
    watch = EtcdWatch(_FailingStubs, None, "/", 0)  # type: ignore[arg-type]
    watch.start()
    async with asyncio.timeout(5):
        with pytest.raises(_Bug):
            await anext(watch.batches(5))
    await asyncio.to_thread(watch.close)


async def test_a_watch_whose_changes_nobody_takes_ends_when_it_is_closed(
    etcd: Etcd, cluster: str
) -> None:
    """Its thread waits for room then."""
    before = set(watch_threads())
    async with etcd.watch(f"/{cluster}/", from_revision=0) as batches:
        await anext(batches)
        for number in range(100):
            await etcd.transaction({}, [Put(f"/{cluster}/{number}", b"")])
        assert set(watch_threads()) > before
    assert set(watch_threads()) <= before


async def half_dead(proxy: EtcdProxy, server: Any) -> None:
    """From now on the nameserver behind the proxy is stale; leases and transactions go on."""
    proxy.refuses_reads_of_all = True
    proxy.watches_mute = 1_000_000
    proxy.end_watches()

    async def is_stale() -> bool:
        return not await is_fresh(server)

    await until(is_stale)


async def test_a_stale_nameserver_tells_a_master_of_the_record_as_etcd_has_it(
    proxy: EtcdProxy, shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    """A lease counts only together with a record that is not older than the one that the master
    got when it changed its in-sync set."""
    server = await start_nameserver(proxy.endpoint)
    other = await start_nameserver(shared_etcd.endpoint)
    master, slave = make_replica(0, "m1", lease_ms=60_000), make_replica(1, "s1", lease_ms=60_000)
    await master.connect(server)
    await slave.connect(other)
    await master.until(lambda: list(master.last.group.replicas) == [0, 1])
    await half_dead(proxy, server)
    record = await set_in_sync(other, master.last.group, master, slave)
    directive = await master.beat()
    assert (directive.stale, directive.renewed_sequence) == (False, master.sequence)
    assert directive.group.revision == record.revision
    assert not await is_fresh(server)


async def test_behind_a_stale_nameserver_who_was_elected_leads_and_the_others_follow_it_there(
    proxy: EtcdProxy, shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(proxy.endpoint)
    other = await start_nameserver(shared_etcd.endpoint)
    master, heir, third = (make_replica(broker_id, f"i{broker_id}") for broker_id in range(3))
    for one, its_server in ((master, other), (heir, server), (third, server)):
        await one.connect(its_server)
        one.keep_beating()
    await master.until(lambda: list(master.last.group.replicas) == [0, 1, 2])
    await set_in_sync(other, master.last.group, master, heir, third)
    await third.until(lambda: len(third.last.group.in_sync) == 3)
    await half_dead(proxy, server)
    # It starts again, elsewhere, with more in its log than the other one.
    await heir.leave()
    heir = heir.restarted("i1-again", address="127.0.0.9:1", log_epoch=1, log_end=100)
    await heir.connect(server)
    heir.keep_beating()
    master.kill()
    await heir.until_master(2)
    await third.until(lambda: third.last.epoch == 2)
    addresses = {one.identity.broker_id: one.address for one in third.last.replicas}
    assert addresses[1] == "127.0.0.9:1"
    assert not await is_fresh(server)


@pytest.mark.slow
async def test_an_only_etcd_whose_address_has_died_is_reached_by_another_connection(
    shared_etcd: Any, start_nameserver: Any
) -> None:
    """As when its pod is replaced behind the same address; keepalive would need 13 s."""
    async with dying_path(shared_etcd.client_port) as path:
        server = await start_nameserver(path.address)
        await until(lambda: is_fresh(server))
        path.die()
        died_s = time.monotonic()

        async def is_stale() -> bool:
            return not await is_fresh(server)

        await until(is_stale)
        await until(lambda: is_fresh(server))
        assert time.monotonic() - died_s < 8
