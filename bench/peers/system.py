"""What the run needs of each measured system: programs, a server, its parts."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from peers.parts import (
    ECHO,
    ECHO_WARM_UP,
    PAGE_CACHE,
    SYNC_FLUSH,
    WARM_UP,
    NamedPart,
    Part,
)
from peers.processes import Server


@dataclass(frozen=True, slots=True)
class Stage:
    """One run of a server, with `warm_up` before the parts that count. `is_on_one_core`: the server
    and its helpers have one core, and the load another."""

    sync_flush: bool
    warm_up: tuple[Part, ...]
    parts: tuple[NamedPart, ...]
    is_on_one_core: bool = False


BROKER_STAGES = (Stage(False, WARM_UP, PAGE_CACHE), Stage(True, WARM_UP, SYNC_FLUSH))
ECHO_STAGES = (Stage(False, ECHO_WARM_UP, ECHO),)


class System(Protocol):
    """A server and the load for it."""

    @property
    def title(self) -> str:
        """Its column title: name, version, the client's language."""

    @property
    def stages(self) -> tuple[Stage, ...]: ...

    def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AbstractAsyncContextManager[Server]:
        """A server on an empty folder, until the context ends."""


class Fetched(Protocol):
    """Programs that are not part of Aerobee."""

    @property
    def folder(self) -> Path:
        """Where they are once fetched; named after their inputs."""

    @property
    def source(self) -> str:
        """What is fetched from where, with which tool; for people."""

    async def fetch(self, into: Path) -> None:
        """Fill an empty folder.

        Raises:
            EnvironmentFailure: a tool is missing, or what was fetched is not what was expected.
            RuntimeError: a tool failed; the message has its output.
        """


class Peer(System, Protocol):
    """Another project's system."""

    @property
    def programs(self) -> tuple[Fetched, ...]:
        """Everything that `running` needs."""
