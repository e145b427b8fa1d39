"""A real single-member etcd for tests, which may kill and restart it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aerobee.cli.local_cluster.programs import etcd_binary
from aerobee.nameserver.config import EtcdConfig
from aerobee.nameserver.etcd_connection import open_connection
from tests.support.ports import free_ports

HOST = "127.0.0.1"
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
SHORT_ELECTIONS = ("--heartbeat-interval=20", "--election-timeout=200")
"""They allow short leases: the minimum is then one second."""


def etcd_command(
    data: Path,
    client_port: int,
    peer_port: int,
    *flags: str,
    host: str = HOST,
    scheme: str = "http",
) -> list[str]:
    """The command that starts a single-member cluster; `scheme` and `host` are how clients reach
    it."""
    client, peer = f"{scheme}://{host}:{client_port}", f"http://{HOST}:{peer_port}"
    return [
        str(etcd_binary()),
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        *flags,
    ]


class EtcdProcess:
    """One member that keeps its ports and data across kills and restarts."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._flags = flags
        self.client_port, self.peer_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{HOST}:{self.client_port}"

    def start(self) -> None:
        """Returns once it is healthy."""
        assert self._process is None
        command = etcd_command(
            self.folder / "etcd",
            self.client_port,
            self.peer_port,
            *SHORT_ELECTIONS,
            "--log-level=error",
            # A killed process leaves its writes to the kernel, which survives.
            "--unsafe-no-fsync",
            *self._flags,
        )
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_healthy():
            assert self._process.poll() is None, (self.folder / "etcd.log").read_text()
            assert time.monotonic() < deadline, "etcd did not become healthy"
            time.sleep(0.02)

    def check_alive(self) -> None:
        """AssertionError with the end of its log if it ended unexpectedly."""
        process = self._process
        if process is not None and process.poll() is not None:
            self._process = None
            told = (self.folder / "etcd.log").read_text()[-4_000:]
            raise AssertionError(f"etcd ended by itself with {process.returncode}: {told}")

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        self.check_alive()
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(STOP_TIMEOUT_S)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=1) as answer:
                return b'"true"' in answer.read()
        except (OSError, urllib.error.URLError):
            return False


async def compact(endpoint: str, revision: int) -> None:
    """Let etcd forget how it came to the revision."""
    config = EtcdConfig(endpoints=(endpoint,))
    client = (await asyncio.to_thread(open_connection, endpoint, config)).client
    try:
        await asyncio.to_thread(client.compact, revision)
    finally:
        await asyncio.to_thread(client.close)


@contextmanager
def running_etcd(folder: Path, *flags: str) -> Iterator[EtcdProcess]:
    """An etcd that ends with the block."""
    process = EtcdProcess(folder, *flags)
    process.start()
    try:
        yield process
    finally:
        process.stop()
