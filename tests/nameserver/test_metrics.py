"""What a nameserver tells while etcd is away."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from aerobee.cli.etcd_backup import note_key, note_value
from aerobee.nameserver.app import serve_nameserver
from aerobee.nameserver.config import EtcdConfig, NameserverConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import Put
from aerobee.nameserver.metrics import table_families
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import Keys
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.runtime.metrics.config import MetricsConfig
from aerobee.runtime.supervise import Lifecycle
from tests.support.etcd import running_etcd
from tests.support.ports import free_port
from tests.support.scrapes import Scrape


async def test_a_nameserver_without_etcd_says_so_and_tells_nothing_of_routes() -> None:
    metrics = f"127.0.0.1:{free_port()}"
    config = NameserverConfig(
        listen="127.0.0.1:0",
        stop_grace_ms=0,
        etcd=EtcdConfig(endpoints=(f"127.0.0.1:{free_port()}",), call_timeout_ms=200),
        metrics=MetricsConfig(listen=metrics),
    )
    lifecycle = Lifecycle()
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        serving = serve_nameserver(
            config,
            lifecycle,
            clock=SystemClock(),
            chance=system_random(),
            on_listening=listening.set_result,
        )
        tasks.create_task(serving)
        port = await listening
        found = await asyncio.to_thread(Scrape.of, metrics)
        while found.get("aerobee_etcd_reachable") is None:
            await asyncio.sleep(0.05)
            found = await asyncio.to_thread(Scrape.of, metrics)
        lifecycle.stop.set()
    assert found.get("aerobee_etcd_reachable", node_id=f"127.0.0.1:{port}") == 0
    assert (found.get("aerobee_etcd_call_failures_total") or 0) > 0
    assert found.get("aerobee_nameserver_routes_stale") == 1
    assert found.get("aerobee_health", question="readiness") == 0
    assert found.get("aerobee_health", question="liveness") == 1
    for name in ("rocketmq_topic_number", "aerobee_etcd_confirmed_age_seconds",
                 "aerobee_group_has_master", "aerobee_nameserver_live_brokers"):  # fmt: skip
        assert not found.rows(name), name


async def test_calls_that_etcd_does_not_answer_are_failures() -> None:
    config = EtcdConfig(
        endpoints=(f"127.0.0.1:{free_port()}",), call_timeout_ms=200, read_attempts_max=1
    )
    async with Etcd(config, chance=random.Random(1)) as etcd:
        assert etcd.calls.is_reachable is None
        with pytest.raises(RegistryUnavailable):
            await etcd.get("key")
        assert etcd.calls.is_reachable is False
        assert etcd.calls.failures == 1


async def test_when_something_was_backed_up_is_told_once_it_was_noted(tmp_path: Path) -> None:
    """As `aerobee etcd` notes it; docs/internals/etcd-keys.md."""
    with running_etcd(tmp_path) as process:
        config = EtcdConfig(endpoints=(process.endpoint,))
        keys = Keys("aerobee")
        async with Etcd(config, chance=random.Random(1)) as etcd:
            table = RouteTable.from_snapshot(keys, await etcd.snapshot(keys.prefix))
            assert table.backups == {}
            noted = Put(note_key("aerobee", "etcd"), note_value(1_732_000_000_500))
            wrong = Put(note_key("aerobee", "broker-a"), b"yesterday")
            await etcd.transaction({}, [noted, wrong])
            table = RouteTable.from_snapshot(keys, await etcd.snapshot(keys.prefix))
    assert table.backups == {"etcd": 1_732_000_000_500}
    assert table.unreadable == {note_key("aerobee", "broker-a")}
    (family,) = (
        one for one in table_families(table) if one.name == "aerobee_backup_timestamp_seconds"
    )
    assert family.rows == [(("etcd",), 1_732_000_000.5)]
