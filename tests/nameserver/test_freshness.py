"""A nameserver says 'not stale' only while it can prove it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.freshness import FRESH_FOR_S, Freshness
from aerobee.nameserver.key_values import Delete, KeyEvent, Put, WatchBatch
from aerobee.runtime.clock import ManualClock
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
