"""What a server needs from a gRPC implementation.

There are two (`own_engine`, `grpcio_engine`), with the same methods and options. Only our own
reports which limits peers exceed: grpcio does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from aerobee.rpc.core.first_bytes import Beside
from aerobee.rpc.core.tls import FollowedTls
from aerobee.rpc.served_method import ServedMethod

FRAME_BYTES_MAX: Final = 32 * 1024 * 1024
"""Largest gRPC message that either side accepts: a maximal batch plus its envelope, with a margin.
"""


@dataclass(frozen=True, slots=True)
class AcceptedTls:
    """How a port uses TLS."""

    context: FollowedTls
    accepts_plain_text: bool
    """In addition to TLS, on the same port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a server allows its peers. They may send a PING every 5 s, even without a call."""

    message_bytes_max: int = FRAME_BYTES_MAX
    """Per message, in either direction."""
    request_bytes_max: int = FRAME_BYTES_MAX
    """Per message that it receives, if that is less. Our own engine only."""
    memory_bytes_max: int = 512 << 20
    """For all that waits to be sent or read. Our own engine only."""
    connections_max: int | None = None
    """Further ones are closed at once; None: no limit."""
    idle_s: float | None = None
    """How long a connection may be without a call, or even without HTTP/2; None: unlimited."""
    tls: AcceptedTls | None = None
    """None: plain text. Our own engine only."""
    busy_poll_us: int = 0
    """See `GrpcConfig`. Our own engine only."""
    on_disconnected: Callable[[str], None] | None = None
    """Called with the peer of each connection that ends. Our own engine only."""
    beside: Beside | None = None
    """Another protocol on the same ports, without TLS. Our own engine only."""


class ServerEngine(Protocol):
    """One server. Belongs to the event loop it was made in."""

    def add(self, method: ServedMethod) -> None:
        """Serve this method; add all of them before `listen`."""
        ...

    @property
    def memory_used_bytes(self) -> int | None:
        """Of `memory_bytes_max`; None: the engine does not count it."""
        ...

    async def listen(self, address: str) -> int:
        """Serve on host:port; returns the port. A wildcard of either family listens on both.

        Raises:
            OSError: the address is in use or not of this machine.
        """
        ...

    async def listen_outside(self, address: str, tls: AcceptedTls | None) -> int:
        """Serve on a second address, whose calls `came_outside`.

        Raises:
            OSError: as `listen`.
            InvalidArgument: only our own engine can tell its callers apart.
        """
        ...

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running ones end for `grace_s` seconds, then cancel them. May be
        called again."""
        ...
