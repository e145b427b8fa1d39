"""What a broker answers to startup, liveness and readiness, from its first moment to its last."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.app import serve_broker
from aerobee.broker.config import BrokerConfig
from aerobee.broker.observe.health import STALLED_S, BrokerHealth
from aerobee.broker.opening import close_replicated
from aerobee.broker.wiring import FEATURES
from aerobee.rpc.health_check import check_health
from aerobee.runtime.clock import ManualClock, SystemClock, system_random
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.health import HealthConfig, Question
from aerobee.runtime.supervise import Lifecycle
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import DiskFile, RealDisk
from aerobee.store.engine.statistics import RecoveryProgress
from tests.faults.ordered_cluster import ordered_cluster
from tests.faults.serving import Client
from tests.support.demotion import Demotable
from tests.support.ports import free_port
from tests.support.real_brokers import RealBroker
from tests.support.waiting import until

GIB = 1024**3
STALLED_MS = int(STALLED_S * 1_000)


def answers(health: BrokerHealth) -> dict[str, bool]:
    return {question.value: not health.why_not(question) for question in Question}


def said(startup: bool, liveness: bool, readiness: bool) -> dict[str, bool]:
    return {"startup": startup, "liveness": liveness, "readiness": readiness}


def test_a_recovery_of_many_hours_is_alive_as_long_as_it_gets_on() -> None:
    clock = ManualClock()
    health = BrokerHealth(clock)
    assert answers(health) == said(False, True, False)
    health.opens()
    assert answers(health) == said(False, True, False), "the folder may be another process's"
    for done in range(200):
        clock.advance_ms(STALLED_MS)
        health.advanced(RecoveryProgress(done * GIB, 1_000 * GIB))
        assert answers(health) == said(True, True, False)
    assert "(20%)" in health.why_not(Question.READINESS)
    health.serves(lambda: "")
    clock.advance_ms(100 * STALLED_MS)
    assert answers(health) == said(True, True, True)


def test_a_recovery_that_hangs_is_not_alive_and_says_where_it_stands() -> None:
    clock = ManualClock()
    health = BrokerHealth(clock)
    health.opens()
    health.advanced(RecoveryProgress(3 * GIB, 4 * GIB))
    clock.advance_ms(STALLED_MS + 1)
    assert answers(health) == said(False, False, False)
    assert "(75%)" in health.why_not(Question.LIVENESS)
    health.advanced(RecoveryProgress(4 * GIB, 4 * GIB))
    assert answers(health) == said(True, True, False)


def test_a_folder_that_is_not_even_begun_hangs_too() -> None:
    clock = ManualClock()
    health = BrokerHealth(clock)
    health.opens()
    clock.advance_ms(STALLED_MS + 1)
    assert answers(health) == said(False, False, False)


def test_a_folder_that_is_opened_again_was_started_all_the_same() -> None:
    clock = ManualClock()
    health = BrokerHealth(clock)
    health.opens()
    health.serves(lambda: "")
    clock.advance_ms(STALLED_MS * 10)
    health.opens()
    assert answers(health) == said(True, True, False)


def test_a_folder_that_takes_long_to_close_is_alive_and_not_ready() -> None:
    clock = ManualClock()
    health = BrokerHealth(clock)
    health.opens()
    health.serves(lambda: "")
    health.closes()
    clock.advance_ms(STALLED_MS * 10)
    assert answers(health) == said(True, True, False)
    assert "closed" in health.why_not(Question.READINESS)
    health.opens()
    assert answers(health) == said(True, True, False), "the time of opening begins now"


def test_a_failed_disk_ends_everything_and_a_stop_only_readiness() -> None:
    health = BrokerHealth(ManualClock())
    health.opens()
    health.serves(lambda: "")
    health.ends()
    assert answers(health) == said(True, True, False)
    health.failed("fsync failed: Input/output error")
    assert answers(health) == said(True, False, False)
    assert "Input/output" in health.why_not(Question.LIVENESS)


class HeldDisk(RealDisk):
    """Opens files of the log only when it may."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.may_open = threading.Event()
        self.waits = threading.Event()

    def open_file(self, path: str, *arguments: Any, **options: Any) -> DiskFile:
        if path.startswith("commitlog/"):
            self.waits.set()
            assert self.may_open.wait(30)
        return super().open_file(path, *arguments, **options)

    @contextmanager
    def held(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.may_open.set()


async def asked(address: str) -> dict[str, bool]:
    return {one.value: (await check_health(address, one)).is_serving for one in Question}


async def test_the_health_port_lives_while_the_folder_is_being_opened(tmp_path: Path) -> None:
    broker = await RealBroker("broker-a", tmp_path, {"orders": 1}).start()
    async with Client(broker.address) as client:
        await client.send("orders", 0, b"one")
    await broker.stop()
    (tmp_path / "abort").touch()  # as after a crash
    disk, lifecycle = HeldDisk(tmp_path), Lifecycle()
    address = f"127.0.0.1:{free_port()}"
    config = BrokerConfig(
        listen="127.0.0.1:0",
        nameservers=(),
        store_root=tmp_path,
        store=StoreConfig(segment_bytes=16 * 1024 * 1024, disk_free_bytes_min=0),
        health=HealthConfig(listen=address),
    )
    with disk.held():
        serving = asyncio.create_task(
            serve_broker(config, lifecycle, clock=SystemClock(), chance=system_random(), disk=disk)
        )
        await until(disk.waits.is_set, "recovery to begin")
        assert await asked(address) == said(False, True, False)
        disk.may_open.set()
        await until(lambda: is_ready(address), "the broker to be ready")
        assert await asked(address) == said(True, True, True)
        lifecycle.stop.set()
        await serving
    with pytest.raises(AerobeeError):
        await check_health(address)


async def test_a_demotion_whose_close_hangs_on_a_slow_disk_is_not_judged_by_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closes, may_close, made = threading.Event(), threading.Event(), list[Demotable]()

    class Watched(Demotable):
        def __init__(self, parts: Any, opened: None) -> None:
            super().__init__(parts, opened)
            made.append(self)

    def close_slowly(*arguments: Any) -> None:
        closes.set()
        assert may_close.wait(30)
        close_replicated(*arguments)

    monkeypatch.setattr("aerobee.broker.app.close_replicated", close_slowly)
    lifecycle, address = Lifecycle(), f"127.0.0.1:{free_port()}"
    config = BrokerConfig(
        listen="127.0.0.1:0",
        nameservers=(),
        store_root=tmp_path,
        store=StoreConfig(segment_bytes=16 * 1024 * 1024, disk_free_bytes_min=0),
        health=HealthConfig(listen=address),
    )
    serving = asyncio.create_task(
        serve_broker(
            config,
            lifecycle,
            clock=SystemClock(),
            chance=system_random(),
            features=(*FEATURES, Watched),
        )
    )
    try:
        await until(lambda: has_started(address), "the broker to start")
        await until(lambda: is_ready(address), "the broker to be ready")
        with monkeypatch.context() as patience:
            patience.setattr("aerobee.broker.observe.health.STALLED_S", -1.0)
            made[0].demote()
            await until(closes.is_set, "the folder to be closed")
            assert await asked(address) == said(True, True, False)
        may_close.set()
        await until(lambda: is_ready(address), "the broker to be ready again")
    finally:
        may_close.set()
        lifecycle.stop.set()
        await serving


async def is_ready(address: str) -> bool:
    return (await check_health(address, "readiness")).is_serving


@pytest.mark.slow
async def test_readiness_needs_a_live_registration_a_master_and_all_that_it_has(
    tmp_path: Path,
) -> None:
    async with ordered_cluster(tmp_path) as cluster:
        for name in ("etcd", "nameserver", "0"):
            await cluster.start(name)
        await cluster.ready("0")
        await cluster.start("1")
        await cluster.ready("0", "1", "nameserver")

        await cluster.process("nameserver").kill()
        for place in cluster.brokers:
            await until(partial(not_ready, place.health, "has not been renewed"), "its lease's end")
            assert (await check_health(place.health, "liveness")).is_serving
        await cluster.start("nameserver")
        await cluster.ready("0", "1", "nameserver")

        # The slave leaves first, so only the master has everything.
        for name in ("1", "0"):
            await cluster.process(name).stop()
        await cluster.start("1")
        alone = cluster.brokers[1].health
        await until(lambda: has_started(alone), "replica 1 to start")
        await until(partial(not_ready, alone, "not in sync"), "the broker group's record")
        await cluster.start("0")
        await cluster.ready("0", "1")


async def not_ready(address: str, why: str) -> bool:
    answer = await check_health(address, "readiness")
    return not answer.is_serving and why in answer.reason


async def has_started(address: str) -> bool:
    try:
        return (await check_health(address, "startup")).is_serving
    except AerobeeError:
        return False
