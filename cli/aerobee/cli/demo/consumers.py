"""The demo's consumer processes: started, watched through their notes, killed, stopped.

Owns: the processes and the readers of their files. What a consumer saw is taken from its file
alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

from aerobee.cli.demo.sightings import Sighting, SightingsReader
from aerobee.cli.failures import Failure
from aerobee.cli.local_cluster.spawn import spawn_tied

STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """One consumer process. `tags` is its tag expression."""

    name: str
    group: str
    tags: str
    nameserver: str
    cluster: str
    topic: str
    session_timeout_ms: int
    commit_interval_ms: int
    folder: Path

    @property
    def notes(self) -> Path:
        return self.folder / f"{self.name}.sightings"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"


@dataclass(slots=True)
class ConsumerProcess:
    """A started consumer and what it has written down so far."""

    spec: ConsumerSpec
    process: asyncio.subprocess.Process
    reader: SightingsReader
    sightings: list[Sighting] = field(default_factory=list)
    was_killed: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    def read_new(self) -> list[Sighting]:
        """Take over what it has written down since the last call."""
        new = self.reader.read_new()
        self.sightings.extend(new)
        return new

    def check_alive(self) -> None:
        """Raises Failure when it ended and nobody asked it to."""
        code = self.process.returncode
        if code is not None and not self.was_killed:
            raise Failure(
                f"{self.name} ended unasked with code {code}: {_last_line(self.spec.log)}"
            )

    async def kill(self) -> None:
        """kill -9; returns when the process is gone."""
        self.was_killed = True
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        """Ask it to commit, leave the group and end.

        Raises:
            Failure: it did not end by itself, or with an error.
        """
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                code = await self.process.wait()
        except TimeoutError:
            raise Failure(f"{self.name} did not stop within {STOP_TIMEOUT_S:g} s") from None
        if code != 0 and not self.was_killed:
            raise Failure(f"{self.name} ended with code {code}: {_last_line(self.spec.log)}")


async def start_consumer(spec: ConsumerSpec) -> ConsumerProcess:
    """Start the process; it joins its group within a second or so."""
    process = await spawn_tied(
        (
            sys.executable,
            "-m",
            "aerobee.cli.demo.reader",
            "--name",
            spec.name,
            "--group",
            spec.group,
            "--tags",
            spec.tags,
            "--nameserver",
            spec.nameserver,
            "--cluster",
            spec.cluster,
            "--topic",
            spec.topic,
            "--session-timeout-ms",
            str(spec.session_timeout_ms),
            "--commit-interval-ms",
            str(spec.commit_interval_ms),
            "--notes",
            str(spec.notes),
        ),
        log=spec.log,
    )
    return ConsumerProcess(spec, process, SightingsReader(spec.notes))


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it said nothing"
