"""Real processes of a cluster: started, killed, stopped for a while, ended; never left behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from aerobee.cli.local_cluster.child import spawn_tied

STOP_TIMEOUT_S = 30.0


class Process:
    """One program that is started again and again with the same arguments.

    It ends with this process, whatever kills that.
    """

    def __init__(self, name: str, argv: Sequence[str], log: Path) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.environment: dict[str, str] = {}
        """Of the next start, beside that of the tests."""
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopped = False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    async def start(self) -> None:
        """Does nothing when it is running."""
        if not self.is_running:
            self._process = await spawn_tied(
                self.argv,
                log=self._log,
                environment={"PYTHONFAULTHANDLER": "1", **self.environment},
            )

    async def kill(self) -> None:
        """kill -9."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return await self._end(signal.SIGTERM)

    async def end_with_tracebacks(self) -> None:
        """It writes where each of its threads stands, and ends."""
        if self.is_running:
            await self._end(signal.SIGABRT)

    def stand_still(self) -> None:
        """SIGSTOP: as a machine that sleeps."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._is_stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if self._process is not None and self._is_stopped:
            self._process.send_signal(signal.SIGCONT)
        self._is_stopped = False

    async def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(ProcessLookupError):
            process.send_signal(how)
            if self._is_stopped:
                process.send_signal(signal.SIGCONT)
        self._is_stopped = False
        async with asyncio.timeout(STOP_TIMEOUT_S):
            return await process.wait()
