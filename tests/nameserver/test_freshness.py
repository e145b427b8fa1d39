"""A nameserver says 'not stale' only while it can prove it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aerobee.nameserver.config import EtcdConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.freshness import FRESH_FOR_S, Freshness
from aerobee.nameserver.key_values import Delete, KeyEvent, Put, WatchBatch
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.stored import Keys, Topic, encode_topic
from aerobee.runtime.clock import ManualClock, SystemClock
from aerobee.runtime.retry import Backoff
from aerobee.v1 import nameserver_pb2 as pb

NOTICE_S = 0.5
"""Beyond the promise: for a machine that is busy."""


async def freshness_of(etcd: Etcd, cluster: str, clock: ManualClock) -> Freshness:
    freshness = Freshness(etcd, f"/{cluster}/", clock)
    freshness.begin(await etcd.snapshot(f"/{cluster}/"), asked_s=clock.monotonic_s())
    return freshness


@pytest.mark.slow
async def test_routes_are_marked_stale_within_two_seconds_of_a_dead_network_for_watchers_too(
    link: Any, start_nameserver: Any
) -> None:
    server = await start_nameserver(link.endpoint)
    watch = server.stub.WatchRoutes(pb.WatchRoutesRequest(topics=["orders"]))
    while (await watch.read()).stale:
        pass
    link.silence()
    silent_s = time.monotonic()
    async with asyncio.timeout(FRESH_FOR_S + NOTICE_S):
        while not (await watch.read()).stale:
            pass
    assert (await server.stub.QueryRoute(pb.QueryRouteRequest(topics=["orders"]))).stale
    assert time.monotonic() - silent_s < FRESH_FOR_S + NOTICE_S
    await link.heal()
    async with asyncio.timeout(5):
        while (await watch.read()).stale:
            pass
    watch.cancel()


@pytest.mark.thorough
@pytest.mark.slow
async def test_quiet_times_and_other_users_of_etcd_make_no_route_stale(
    etcd: Etcd, cluster: str, shared_etcd: Any, start_nameserver: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    watch = server.stub.WatchRoutes(pb.WatchRoutesRequest(topics=["orders"]))
    while (await watch.read()).stale:
        pass
    told = asyncio.ensure_future(watch.read())
    await asyncio.sleep(FRESH_FOR_S * 1.5)
    assert not told.done(), "nothing happened, and it was told"
    for number in range(30):
        await etcd.transaction({}, [Put(f"/other-{cluster}/{number}", b"x")])
        await asyncio.sleep(FRESH_FOR_S / 20)
    assert not told.done(), "changes elsewhere count for nothing"
    watch.cancel()


async def test_a_proof_lasts_two_seconds_from_the_asking(etcd: Etcd, cluster: str) -> None:
    clock = ManualClock()
    freshness = await freshness_of(etcd, cluster, clock)
    clock.advance_ms(1_900)
    assert freshness.is_proven
    clock.advance_ms(100)
    assert not freshness.is_proven
    assert await freshness.prove()
    assert freshness.is_proven


@pytest.mark.parametrize("is_deletion", [False, True])
async def test_what_the_watch_has_not_brought_yet_is_no_proof(
    etcd: Etcd, cluster: str, is_deletion: bool
) -> None:
    clock, key = ManualClock(), f"/{cluster}/a"
    if is_deletion:
        await etcd.transaction({}, [Put(key, b"1")])
    freshness = await freshness_of(etcd, cluster, clock)
    clock.advance_ms(5_000)
    change = Delete(key) if is_deletion else Put(key, b"2")
    done = await etcd.transaction({}, [change])
    await etcd.transaction({}, [Put(f"/other-{cluster}", b"")])
    assert not await freshness.prove()
    assert not freshness.is_proven
    event = KeyEvent(key, None if is_deletion else b"2", done.revision)
    freshness.add(WatchBatch((event,)))
    assert await freshness.prove()
    assert freshness.is_proven


class DeafEtcd(Etcd):
    """Its first watch stands, and brings nothing."""

    watches = 0

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, from_revision: int
    ) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        self.watches += 1
        is_deaf = self.watches == 1
        async with super().watch(prefix, from_revision=from_revision) as batches:

            async def first_only() -> AsyncIterator[WatchBatch]:
                yield await anext(batches)
                await asyncio.Event().wait()

            yield first_only() if is_deaf else batches


@pytest.mark.slow
async def test_a_watch_that_brings_nothing_is_replaced(shared_etcd: Any, cluster: str) -> None:
    chance, keys = random.Random(1), Keys(cluster)
    config = EtcdConfig(endpoints=(shared_etcd.endpoint,))
    backoff = Backoff(base_ms=10, max_ms=50)
    etcd = DeafEtcd(config, chance=chance)
    async with etcd:
        cache = RouteCache(etcd, keys, backoff=backoff, chance=chance, clock=SystemClock())
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(cache.run())
            assert await cache.changed.wait_until(lambda: not cache.stale, 5)
            value = encode_topic(Topic("orders", queues_by_broker={"broker-a": 1}))
            await etcd.transaction({}, [Put(keys.topic("orders"), value)])
            assert await cache.changed.wait_until(lambda: cache.stale, FRESH_FOR_S + NOTICE_S)
            assert await cache.changed.wait_until(lambda: not cache.stale, 5)
            assert "orders" in cache.table.topics
            assert etcd.watches == 2
            running.cancel()
