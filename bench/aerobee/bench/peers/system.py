"""What each measured system is to the run: programs, a server, the parts that it takes."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aerobee.bench.peers.parts import (
    ECHO,
    ECHO_WARM_UP,
    PAGE_CACHE,
    SYNC_FLUSH,
    WARM_UP,
    NamedPart,
    Part,
)
from aerobee.bench.peers.processes import Server


@dataclass(frozen=True, slots=True)
class Stage:
    """One life of a server, with `warm_up` before the parts that count. `is_on_one_core`: the
    server and what belongs to it have one core, and the load another."""

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
        """Its column: name, version, the client's language."""

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
        """Where they are once they are fetched; named after what they are made of."""

    @property
    def source(self) -> str:
        """What is fetched from where, and with which tool, for people."""

    async def fetch(self, into: Path) -> None:
        """Fill an empty folder.

        Raises:
            EnvironmentFailure: a tool is missing, or what came is not what was wanted.
            RuntimeError: a tool failed; what it said is in the message.
        """


class Peer(System, Protocol):
    """A system of others."""

    @property
    def programs(self) -> tuple[Fetched, ...]:
        """All that `running` needs."""
