"""Programs come back at other addresses, and nobody goes on asking the old ones.

A broker may be advertised at another host and port after a restart; broker, nameserver and etcd may
have another address behind the same name, as pods have. Clients that run through all of it go on
within seconds, without an error.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.ordered_cluster import Place, open_traffic, ordered_cluster

pytestmark = pytest.mark.slow

LONG_LEASE_MS = 20_000
STOP_S_MAX = 8.0
"""From the start of the moved program to messages that flow; its own start takes two of it."""


async def test_a_broker_that_comes_back_at_another_port_is_found_at_once(tmp_path: Path) -> None:
    """Killed, not stopped: its registration still stands. It proves by its folder that it may take
    its own place."""
    async with ordered_cluster(tmp_path, replicas=1, lease_ms=LONG_LEASE_MS) as cluster:
        for name in ("etcd", "nameserver", "0"):
            await cluster.start(name)
        async with open_traffic(cluster) as traffic:
            await traffic.both_after(time.monotonic(), cluster)
            await cluster.process("0").kill()
            cluster.brokers[0] = Place(host="127.0.0.5", name="127.0.0.5")
            await cluster.start("0")
            serves = "broker serves"
            await cluster.until(lambda: _said(cluster.process("0").log, serves), serves)
            served_s = time.monotonic()
            found_s = await traffic.both_after(served_s, cluster)
            await traffic.all_read(cluster)
        assert not traffic.failed, traffic.failed[:3]
        assert found_s < LONG_LEASE_MS / 2_000, "nobody waits for the end of the old registration"


async def _said(log: str, words: str) -> bool:
    return words in log


async def test_a_slave_and_then_the_master_of_a_group_move_to_other_ports(tmp_path: Path) -> None:
    async with ordered_cluster(tmp_path) as cluster:
        for name in ("etcd", "nameserver", "0", "1"):
            await cluster.start(name)
        await cluster.ready("0", "1")
        async with open_traffic(cluster) as traffic:
            await traffic.both_after(time.monotonic(), cluster)
            for broker_id in (1, 0):
                await cluster.process(str(broker_id)).stop()
                cluster.brokers[broker_id] = Place(host="127.0.0.6", name="127.0.0.6")
                await cluster.start(str(broker_id))
                began_s = time.monotonic()
                await cluster.ready("0", "1")
                await traffic.both_after(began_s, cluster)
                assert time.monotonic() - began_s < STOP_S_MAX
            await traffic.all_read(cluster)
        assert not traffic.failed, traffic.failed[:3]


def can_make_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "--map-root-user", "mount", "--bind", "/etc", "/mnt"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.thorough
async def test_all_programs_move_behind_their_names(tmp_path: Path) -> None:
    if not can_make_namespaces():
        pytest.skip("a table of names of one's own needs mount namespaces")
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--map-root-user"),
        *(sys.executable, "-m", "tests.faults.moved_names", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()[-6_000:]
    stopped_s: dict[str, float] = json.loads(output)
    print(stopped_s)
    assert max(stopped_s.values()) < STOP_S_MAX, stopped_s
