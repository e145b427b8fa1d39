"""What a server of ours needs of an implementation of gRPC.

There are two (`own_engine`, `grpcio_engine`). Both take the same methods and keep to the same
options. Only our own tells of the limits that peers met: grpcio does not say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from aerobee.runtime.served_method import ServedMethod

FRAME_BYTES_MAX: Final = 32 * 1024 * 1024
"""Largest gRPC message either side accepts: a maximal batch plus its envelope, with room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a server allows its peers. They may send a PING every 5 s, also without a call."""

    message_bytes_max: int = FRAME_BYTES_MAX
    """Of one message, in either direction."""
    connections_max: int | None = None
    """Further ones are closed at once; None: no limit."""
    idle_s: float | None = None
    """A connection without a call, or one that has not even become HTTP/2, is closed after it;
    None: it may stay."""


class ServerEngine(Protocol):
    """One server. Belongs to the event loop it was made in."""

    def add(self, method: ServedMethod) -> None:
        """Serve it, too; all must be added before it listens."""
        ...

    async def listen(self, address: str) -> int:
        """Serve on host:port; returns the port. A wildcard of either family listens on both.

        Raises:
            OSError: the address is in use or not of this machine.
        """
        ...

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running ones end for `grace_s` seconds, then cancel them. May be
        called again."""
        ...
