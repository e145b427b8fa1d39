"""A broker in a separate process, which a test can kill as the system does."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from aerobee.broker.config import BrokerConfig
from aerobee.testing.node_disk import DiskFaults
from aerobee.testing.nodes import START_TIMEOUT_S

LOOK_S = 0.02
STOP_TIMEOUT_S = 30.0
TAIL_LINES = 20


def end_of(log: Path) -> list[str]:
    """Its last lines."""
    return log.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]


class BrokerEnded(RuntimeError):
    """A broker's process ended on its own; the text contains its output."""


class BrokerProcess:
    """As `BrokerNode`. Its disk is the system's: a test cannot make it hang or be full."""

    def __init__(self, name: str, config: BrokerConfig) -> None:
        self.name = name
        self.config = replace(config, listen=f"127.0.0.1:{_free_port()}")
        self.faults = DiskFaults()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return self.config.listen

    @property
    def log(self) -> Path:
        return self.config.store_root.with_suffix(".log")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """May be called again, on the same port and folder. Raises BrokerEnded."""
        if self.is_running:
            raise RuntimeError(f"{self.name} runs already")
        self._process = self._spawn()
        async with asyncio.timeout(START_TIMEOUT_S):
            while not _listens(self.address):
                if not self.is_running:
                    told = "\n".join(end_of(self.log))
                    raise BrokerEnded(f"{self.name} did not start; the end of {self.log}:\n{told}")
                await asyncio.sleep(LOOK_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "aerobee.cli", "broker", *_flags(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    async def stop(self) -> None:
        """SIGTERM, and wait."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """SIGKILL."""
        await self._end(signal.SIGKILL)

    def answer_disk(self) -> None:
        """It always does."""

    async def _end(self, told: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(told)
        try:
            await asyncio.to_thread(process.wait, STOP_TIMEOUT_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _flags(config: BrokerConfig) -> list[str]:
    """The settings of `cluster_nodes`, as flags of the program."""
    store, replication = config.store, config.replication
    settings: dict[str, object] = {
        "cluster": config.cluster,
        "broker-name": config.broker_name,
        "broker-id": config.broker_id,
        "listen": config.listen,
        "nameservers": ",".join(config.nameservers),
        "store-root": config.store_root,
        "registration-lease-ms": config.registration_lease_ms,
        "stop-grace-ms": config.stop_grace_ms,
        "store-segment-bytes": store.segment_bytes,
        "store-consume-queue-entries-per-file": store.consume_queue_entries_per_file,
        "store-index-slots-max": store.index_slots_max,
        "store-index-entries-max": store.index_entries_max,
        "store-retention-enabled": str(store.retention.enabled).lower(),
        "replication-mode": replication.mode.value,
    }
    return [f"--{name}={value}" for name, value in settings.items()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
