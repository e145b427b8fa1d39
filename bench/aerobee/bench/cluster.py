"""A cluster for one benchmark: the real `aerobee up`, in a temporary folder, on free ports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aerobee.bench.grpcio_client import grpcio_channel
from aerobee.bench.measure import Stopwatch
from aerobee.store.engine.config import StoreConfig
from aerobee.v1 import broker_pb2, broker_pb2_grpc

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """Its addresses, and how long it took to become ready."""

    nameserver: str
    brokers: tuple[str, ...]
    start_s: float
    folder: Path
    ready_file: Path

    def nameserver_process(self) -> int:
        """The nameserver's process id."""
        return int(json.loads(self.ready_file.read_text())["pids"]["nameserver"])

    def process_of(self, broker_name: str, broker_id: int) -> int | None:
        """The current process id of a broker; None while it is not running."""
        for broker in json.loads(self.ready_file.read_text())["brokers"]:
            if (broker["name"], broker["id"]) == (broker_name, broker_id):
                return None if broker["pid"] is None else int(broker["pid"])
        return None


@contextlib.asynccontextmanager
async def running_cluster(
    *, brokers: int = 1, flags: Sequence[str] = ()
) -> AsyncIterator[BenchCluster]:
    """Start a cluster, yield it, stop it and delete its folder.

    Raises:
        RuntimeError: it did not become ready; the message has its output.
    """
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as name:
        folder = Path(name)
        ready = folder / "ready.json"
        output = folder / "up.log"
        watch = Stopwatch()
        with output.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "aerobee.cli",
                "up",
                "--data",
                str(folder / "data"),
                "--brokers",
                str(brokers),
                "--ports",
                "auto",
                "--ready-file",
                str(ready),
                *_production_sizes(flags),
                *flags,
                stdout=sink,
                stderr=sink,
                env=dict(os.environ),
            )
        try:
            await _wait_for(ready, process, output)
            start_s = watch.elapsed_s()
            addresses = json.loads(ready.read_text())
            yield BenchCluster(
                nameserver=addresses["nameserver"],
                brokers=tuple(broker["address"] for broker in addresses["brokers"]),
                start_s=start_s,
                folder=folder / "data",
                ready_file=ready,
            )
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                try:
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()


def _production_sizes(given: Sequence[str]) -> list[str]:
    """A local cluster has small files; benchmarks use a server's sizes, where none is given."""
    store = StoreConfig()
    flags = []
    for name in ("segment_bytes", "index_slots_max", "index_entries_max"):
        if not any(flag.startswith(f"store.{name}=") for flag in given):
            flags += ["--broker-set", f"store.{name}={getattr(store, name)}"]
    return flags


async def _wait_for(ready: Path, process: asyncio.subprocess.Process, output: Path) -> None:
    watch = Stopwatch()
    while not ready.exists():
        if process.returncode is not None or watch.elapsed_s() > START_TIMEOUT_S:
            raise RuntimeError(f"the cluster did not start:\n{output.read_text(errors='replace')}")
        await asyncio.sleep(0.01)


async def broker_stats(address: str) -> broker_pb2.BrokerStats:
    """The broker's own counters: processor time, memory, ends of the log."""
    async with grpcio_channel(address) as channel:
        stats: broker_pb2.BrokerStats = await broker_pb2_grpc.AdminServiceStub(channel).GetStats(
            broker_pb2.GetStatsRequest()
        )
        return stats
