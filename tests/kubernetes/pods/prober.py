"""Asks a pod's probes as the kubelet does, with the manifest's periods and limits.

Owns: what the probes of one container said so far. It only looks: what follows is kubelet.py's.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from aerobee.rpc.health_check import check_health
from aerobee.runtime import errors
from tests.kubernetes.manifests import Object

SINCE_3_5_11 = {"/livez": "/health", "/readyz": "/health"}
"""Where an etcd before 3.5.11 tells the same, which the image has where no Go is to build one."""


class Prober:
    """Probes of one start of one container; `run` until it is cancelled."""

    def __init__(self, container: Object, address: str) -> None:
        self.started_after_s: float | None = None
        self.ready_after_s: float | None = None
        """When it was ready first."""
        self.is_ready = False
        self.reason = "not asked yet"
        """Of the newest probe that failed."""
        self.must_restart: str | None = None
        """Why a kubelet would restart the container."""
        self._container = container
        self._address = address
        self._ports: dict[str, int] = {
            one["name"]: one["containerPort"] for one in container.get("ports", ())
        }
        self._begin_s = time.monotonic()

    async def run(self) -> None:
        if "startupProbe" in self._container:
            await self._start()
        self.started_after_s = time.monotonic() - self._begin_s
        async with asyncio.TaskGroup() as probes:
            probes.create_task(self._live())
            probes.create_task(self._look_ready())

    async def _start(self) -> None:
        probe = self._container["startupProbe"]
        for _ in range(probe.get("failureThreshold", 3)):
            if await self._succeeds(probe):
                return
            await asyncio.sleep(probe.get("periodSeconds", 10))
        self.must_restart = f"startup: {self.reason}"

    async def _live(self) -> None:
        if (probe := self._container.get("livenessProbe")) is None:
            return
        failures = 0
        while failures < probe.get("failureThreshold", 3):
            failures = 0 if await self._succeeds(probe) else failures + 1
            await asyncio.sleep(probe.get("periodSeconds", 10))
        self.must_restart = f"liveness: {self.reason}"

    async def _look_ready(self) -> None:
        probe = self._container.get("readinessProbe")
        failures = 0
        while True:
            if probe is None or await self._succeeds(probe):
                failures = 0
                self.is_ready = True
                self.ready_after_s = self.ready_after_s or time.monotonic() - self._begin_s
            else:
                failures += 1
                self.is_ready &= failures < probe.get("failureThreshold", 3)
            if probe is None:
                return
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _succeeds(self, probe: Object) -> bool:
        timeout_s = probe.get("timeoutSeconds", 1)
        try:
            async with asyncio.timeout(timeout_s):
                if "grpc" in probe:
                    return await self._ask_grpc(probe["grpc"], timeout_s)
                return await self._ask_http(probe["httpGet"])
        except TimeoutError:
            self.reason = f"no answer within {timeout_s} s"
        except OSError as error:
            self.reason = str(error)
        return False

    async def _ask_grpc(self, probe: Object, timeout_s: float) -> bool:
        target = f"{self._address}:{probe['port']}"
        try:
            answer = await check_health(
                target, probe.get("service", ""), timeout_ms=int(timeout_s * 1_000)
            )
        except errors.AerobeeError as error:
            self.reason = f"{probe}: {error}"
            return False
        if not answer.is_serving:
            self.reason = f"{probe}: {answer.reason}"
        return answer.is_serving

    async def _ask_http(self, probe: Object) -> bool:
        named: str | int = probe["port"]
        port = self._ports[named] if isinstance(named, str) else named
        status = await _status(self._address, port, probe["path"])
        if status == 404 and probe["path"] in SINCE_3_5_11:
            status = await _status(self._address, port, SINCE_3_5_11[probe["path"]])
        if status != 200:
            self.reason = f"{probe}: HTTP {status}"
        return status == 200


async def _status(address: str, port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        words = (await reader.readline()).split()
        return int(words[1]) if len(words) > 1 else 0
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
