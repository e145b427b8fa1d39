"""The demo's consumer processes: started, watched through their notes, killed, stopped.

Owns: the processes, the readers of their files, and the tally of each group. What a consumer saw is
taken from its file alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aerobee.cli.demo.sightings import Sighting, SightingsReader
from aerobee.cli.failures import Failure
from aerobee.cli.local_cluster.child import spawn_tied
from aerobee.runtime.clock import Clock

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
        """Raises Failure if it ended without being asked to."""
        code = self.process.returncode
        if code is not None and not self.was_killed:
            raise Failure(
                f"{self.name} ended by itself with code {code}: {_last_line(self.spec.log)}"
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


@dataclass(slots=True)
class GroupTally:
    """A group's consumers and the distinct events that they have seen together."""

    group: str
    consumers: Sequence[ConsumerProcess]
    clock: Clock
    seen: set[str] = field(default_factory=set)
    first_s: float | None = None
    """When the first sighting was read."""
    last_s: float = 0.0
    """When something new was last read."""

    def read_new(self) -> list[tuple[ConsumerProcess, Sighting]]:
        """Everything that the group's consumers have noted since the last call."""
        found: list[tuple[ConsumerProcess, Sighting]] = []
        for consumer in self.consumers:
            new = consumer.read_new()
            found.extend((consumer, sighting) for sighting in new)
            self.seen.update(sighting.identity for sighting in new)
        if found:
            self.last_s = self.clock.monotonic_s()
            if self.first_s is None:
                self.first_s = self.last_s
        return found

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self.first_s is None else self.last_s - self.first_s

    def check_alive(self) -> None:
        """Raises Failure if a consumer ended that was not killed."""
        for consumer in self.consumers:
            consumer.check_alive()

    def note(self) -> str:
        """How the work is shared, for the display."""
        if len(self.consumers) == 1:
            return ""
        return ", ".join(
            f"{consumer.name} {len(consumer.sightings):,}{' †' if consumer.was_killed else ''}"
            for consumer in self.consumers
        )


async def start_consumer(spec: ConsumerSpec) -> ConsumerProcess:
    """Start the process; it joins its group within a second or so."""
    process = await spawn_tied(
        (
            sys.executable,
            "-m",
            "aerobee.cli.demo.reader",
            *("--name", spec.name),
            *("--group", spec.group),
            *("--tags", spec.tags),
            *("--nameserver", spec.nameserver),
            *("--cluster", spec.cluster),
            *("--topic", spec.topic),
            *("--session-timeout-ms", str(spec.session_timeout_ms)),
            *("--commit-interval-ms", str(spec.commit_interval_ms)),
            *("--notes", str(spec.notes)),
        ),
        log=spec.log,
    )
    return ConsumerProcess(spec, process, SightingsReader(spec.notes))


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "no output"
