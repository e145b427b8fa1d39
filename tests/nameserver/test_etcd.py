"""The async face of etcd, against a real etcd."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.nameserver.config import EtcdConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.etcd_connection import OtherCluster
from aerobee.nameserver.key_values import Compacted, Delete, KeyEvent, LeaseNotFound, Put
from aerobee.runtime.errors import RegistryUnavailable
from tests.support.etcd import EtcdProcess, compact


async def test_a_transaction_succeeds_once_per_expected_revision(etcd: Etcd, cluster: str) -> None:
    key = f"/{cluster}/a"
    created = await etcd.transaction({key: 0}, [Put(key, b"1")])
    again = await etcd.transaction({key: 0}, [Put(key, b"2")])
    changed = await etcd.transaction({key: created.revision}, [Put(key, b"3")])
    found = await etcd.get(key)
    assert (created.succeeded, again.succeeded, changed.succeeded) == (True, False, True)
    assert found is not None
    assert (found.value, found.revision) == (b"3", changed.revision)


async def test_a_failed_transaction_changes_nothing(etcd: Etcd, cluster: str) -> None:
    first, second = f"/{cluster}/a", f"/{cluster}/b"
    await etcd.transaction({first: 0}, [Put(first, b"1")])
    done = await etcd.transaction({first: 0, second: 0}, [Put(second, b"2"), Delete(first)])
    assert not done.succeeded
    assert await etcd.get(second) is None
    assert await etcd.get(first) is not None


async def test_a_snapshot_larger_than_a_page_is_complete_and_of_one_revision(
    etcd: Etcd, cluster: str
) -> None:
    for start in range(0, 2_100, 100):
        await etcd.transaction(
            {}, [Put(f"/{cluster}/{n:05}", b"x") for n in range(start, start + 100)]
        )
    snapshot = await etcd.snapshot(f"/{cluster}/")
    assert [entry.key for entry in snapshot.entries] == [f"/{cluster}/{n:05}" for n in range(2_100)]
    assert snapshot.revision >= max(entry.revision for entry in snapshot.entries)


async def test_a_key_ends_with_its_lease_and_a_revoked_lease_is_gone(
    etcd: Etcd, cluster: str
) -> None:
    key = f"/{cluster}/leased"
    lease = await etcd.grant_lease(1_000)
    await etcd.transaction({key: 0}, [Put(key, b"1", lease.lease_id)])
    assert (await etcd.keep_alive(lease.lease_id)).duration_ms == lease.duration_ms == 1_000
    await etcd.revoke_lease(lease.lease_id)
    await etcd.revoke_lease(lease.lease_id)
    assert await etcd.get(key) is None
    with pytest.raises(LeaseNotFound):
        await etcd.keep_alive(lease.lease_id)
    with pytest.raises(LeaseNotFound):
        await etcd.transaction({key: 0}, [Put(key, b"1", lease.lease_id)])


async def test_a_watch_says_that_it_stands_and_then_every_change_in_order(
    etcd: Etcd, cluster: str
) -> None:
    key = f"/{cluster}/a"
    snapshot = await etcd.snapshot(f"/{cluster}/")
    put = await etcd.transaction({}, [Put(key, b"1")])
    async with etcd.watch(f"/{cluster}/", from_revision=snapshot.revision + 1) as batches:
        assert (await anext(batches)).events == ()
        deleted = await etcd.transaction({}, [Delete(key)])
        together = await etcd.transaction({}, [Put(key, b"2"), Put(f"/{cluster}/b", b"3")])
        await etcd.transaction({}, [Put(f"/other-{cluster}", b"")])
        events: list[KeyEvent] = []
        while len(events) < 4:
            batch = await anext(batches)
            assert {e.revision for e in batch.events} != {together.revision} or len(
                batch.events
            ) == 2, "a revision was torn apart"
            events += batch.events
    assert events == [
        KeyEvent(key, b"1", put.revision),
        KeyEvent(key, None, deleted.revision),
        KeyEvent(key, b"2", together.revision),
        KeyEvent(f"/{cluster}/b", b"3", together.revision),
    ]


async def test_a_watch_hands_over_more_changes_than_may_wait_at_once(
    etcd: Etcd, cluster: str
) -> None:
    async with etcd.watch(f"/{cluster}/", from_revision=0) as batches:
        await anext(batches)
        for n in range(150):
            await etcd.transaction({}, [Put(f"/{cluster}/{n:03}", b"")])
        await asyncio.sleep(0.1)
        seen: list[str] = []
        while len(seen) < 150:
            seen += [event.key for event in (await anext(batches)).events]
    assert seen == [f"/{cluster}/{n:03}" for n in range(150)]


async def test_a_watch_from_a_compacted_revision_says_so(own_etcd: Any, cluster: str) -> None:
    own_etcd.start()
    async with Etcd(EtcdConfig(endpoints=(own_etcd.endpoint,)), chance=random.Random(1)) as etcd:
        first = await etcd.transaction({}, [Put(f"/{cluster}/a", b"1")])
        last = await etcd.transaction({}, [Put(f"/{cluster}/a", b"2")])
        await compact(own_etcd.endpoint, last.revision)
        async with etcd.watch(f"/{cluster}/", from_revision=first.revision) as batches:
            assert (await anext(batches)).events == ()
            with pytest.raises(Compacted):
                await anext(batches)


async def test_an_etcd_that_is_away_is_one_clear_error_in_bounded_time(own_etcd: Any) -> None:
    config = EtcdConfig(endpoints=(own_etcd.endpoint,), call_timeout_ms=500)
    async with Etcd(config, chance=random.Random(1)) as etcd, asyncio.timeout(5):
        with pytest.raises(RegistryUnavailable, match=own_etcd.endpoint):
            await etcd.get("/a")
        with pytest.raises(RegistryUnavailable):
            await etcd.transaction({}, [Put("/a", b"")])
        with pytest.raises(RegistryUnavailable):
            async with etcd.watch("/", from_revision=1) as batches:
                await anext(batches)


async def test_an_etcd_lives_on_when_those_who_read_it_give_up(own_etcd: Any) -> None:
    """etcd 3.5.1 ended when a transaction that only reads was cancelled."""
    own_etcd.start()
    config = EtcdConfig(endpoints=(own_etcd.endpoint,))
    async with Etcd(config, chance=random.Random(1)) as etcd:
        for start in range(0, 3_000, 100):
            await etcd.transaction({}, [Put(f"/a/{n}", b"x") for n in range(start, start + 100)])
    pauses = random.Random(2)
    for _ in range(15):
        async with Etcd(config, chance=random.Random(1)) as etcd:
            await etcd.get("/a/0")
            reads: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(etcd.get_with_prefixes("/a/0", "/a/")) for _ in range(8)
            ]
            reads += [
                asyncio.ensure_future(etcd.is_unchanged("/a/", count=3_000, revision=1))
                for _ in range(8)
            ]
            await asyncio.sleep(pauses.uniform(0.0, 0.02))
        await asyncio.gather(*reads, return_exceptions=True)
        own_etcd.check_alive()


async def test_a_killed_etcd_ends_watches_and_works_again_after_its_restart(own_etcd: Any) -> None:
    own_etcd.start()
    config = EtcdConfig(endpoints=(own_etcd.endpoint,), call_timeout_ms=1_000)
    async with Etcd(config, chance=random.Random(1)) as etcd:
        await etcd.transaction({}, [Put("/a", b"1")])
        async with etcd.watch("/", from_revision=1) as batches:
            await anext(batches)
            await anext(batches)
            await asyncio.to_thread(own_etcd.kill)
            with pytest.raises(RegistryUnavailable):
                await anext(batches)
        await asyncio.to_thread(own_etcd.start)
        async with asyncio.timeout(10):
            while True:
                try:
                    found = await etcd.get("/a")
                    break
                except RegistryUnavailable:
                    await asyncio.sleep(0.05)
        assert found is not None
        assert found.value == b"1"


async def test_the_next_endpoint_is_used_when_one_is_dead(shared_etcd: Any, own_etcd: Any) -> None:
    endpoints = (own_etcd.endpoint, shared_etcd.endpoint)
    async with Etcd(EtcdConfig(endpoints=endpoints), chance=random.Random(1)) as etcd:
        await etcd.get("/a")
        assert etcd.endpoint == shared_etcd.endpoint


@pytest.fixture
def late_etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """One of another cluster; not started yet."""
    folder = tmp_path / "late"
    folder.mkdir()
    process = EtcdProcess(folder)
    yield process
    process.stop()


async def test_an_endpoint_of_another_cluster_is_refused_and_the_right_one_used_again(
    own_etcd: Any, late_etcd: EtcdProcess, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    own_etcd.start()
    key = f"/{cluster}/a"
    endpoints = (own_etcd.endpoint, late_etcd.endpoint)
    config = EtcdConfig(endpoints=endpoints, call_timeout_ms=1_000)
    async with Etcd(config, chance=random.Random(1)) as etcd:
        await etcd.transaction({key: 0}, [Put(key, b"ours")])
        await asyncio.to_thread(late_etcd.start)
        await asyncio.to_thread(own_etcd.kill)
        with pytest.raises(RegistryUnavailable, match="cannot be reached"):
            await etcd.transaction({}, [Put(key, b"1")])
        with pytest.raises(OtherCluster, match=late_etcd.endpoint):
            await etcd.transaction({}, [Put(key, b"2")])
        with pytest.raises(RegistryUnavailable, match="cannot be reached"):
            await etcd.transaction({}, [Put(key, b"3")])
        with pytest.raises(OtherCluster):
            async with etcd.watch(f"/{cluster}/", from_revision=1) as batches:
                await anext(batches)
        assert "an etcd member is refused" in caplog.text
        await asyncio.to_thread(own_etcd.start)
        found = await etcd.get(key)
        assert found is not None
        assert found.value == b"ours"
    async with Etcd(EtcdConfig(endpoints=(late_etcd.endpoint,)), chance=random.Random(1)) as other:
        assert await other.get(key) is None, "nothing was written there"


async def test_endpoints_of_several_clusters_are_refused_before_anything_is_written(
    shared_etcd: Any, own_etcd: Any, cluster: str
) -> None:
    own_etcd.start()
    key = f"/{cluster}/a"
    for endpoints in (
        (own_etcd.endpoint, shared_etcd.endpoint),
        (shared_etcd.endpoint, own_etcd.endpoint),
    ):
        async with Etcd(EtcdConfig(endpoints=endpoints), chance=random.Random(1)) as etcd:
            for _ in range(3):
                with pytest.raises(OtherCluster, match=r"etcd\.endpoints must be members of one"):
                    await etcd.transaction({key: 0}, [Put(key, b"1")])
    for endpoint in (own_etcd.endpoint, shared_etcd.endpoint):
        async with Etcd(EtcdConfig(endpoints=(endpoint,)), chance=random.Random(1)) as etcd:
            assert await etcd.get(key) is None
