"""`aerobee up` as a program, and what a test wants to know of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Self

from tests.faults.serving import Process
from tests.support.waiting import until


class ClusterProcess(Process):
    """A whole cluster on free ports, supervised as users run it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.data = folder / "data"
        self._ready_file = folder / "ready.json"
        super().__init__(
            "aerobee up",
            (
                *(sys.executable, "-m", "aerobee.cli", "up", "--data", str(self.data)),
                *("--ports", "auto", "--ready-file", str(self._ready_file), *arguments),
            ),
            folder / "up.log",
        )

    async def start(self) -> Self:
        await super().start()
        await until(lambda: self.has_ended or self._ready_file.exists(), "the ready file")
        assert not self.has_ended, self.said()
        return self

    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._ready_file.read_text())
        return document

    @property
    def nameserver(self) -> str:
        return str(self._document()["nameserver"])

    def addresses(self) -> dict[str, str]:
        """By name; brokers, the nameserver and etcd."""
        document = self._document()
        return {
            "nameserver": document["nameserver"],
            "etcd": document["etcd"],
            **{broker["name"]: broker["address"] for broker in document["brokers"]},
        }

    def pids(self) -> dict[str, int]:
        """Of those that run at this moment."""
        return {name: pid for name, pid in self._document()["pids"].items() if pid is not None}

    def kill(self, name: str) -> int:
        """kill -9 of one of its processes; the process id that it had."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    async def wait_restarted(self, name: str, killed: int) -> None:
        """Until another process of that name runs and the whole cluster was seen serving."""
        await until(lambda: self.pids().get(name) not in (None, killed), f"a new process of {name}")

    async def close(self) -> None:
        """Stop it as Ctrl-C does, so that its children are gone too."""
        if not self.has_ended:
            await self.end(signal.SIGTERM)
        await super().close()
