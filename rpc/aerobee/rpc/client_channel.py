"""A client's connection to one address, with either engine.

It has the interface of `grpc_core.Channel`, which implements it, and the same errors, `CallError`.
Where the engines differ, the weaker promise holds: after a cancelled `read` or `write`, a stream
can only be cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from aerobee.rpc.core.channel import Channel
from aerobee.rpc.core.channel_limits import ChannelLimits, client_connection_limits
from aerobee.rpc.core.connection_set import MemoryLimit
from aerobee.rpc.core.limits import Limit
from aerobee.rpc.core.status import Metadata
from aerobee.rpc.core.tls import FollowedTls
from aerobee.rpc.grpc_config import ENGINE_VARIABLE, Engine
from aerobee.rpc.server_engine import FRAME_BYTES_MAX
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import log_event

BACKOFF_MAX_S = 1.0
"""The longest pause between two attempts to connect. All calls during a pause fail."""

log = logging.getLogger(__name__)


DialledTls = FollowedTls
"""How a client's connections are encrypted."""


class ClientCall(Protocol):
    """One request, one answer."""

    @property
    def answer(self) -> Awaitable[bytes]:
        """Await once; raises CallError."""
        ...

    @property
    def trailing_metadata(self) -> Metadata:
        """The metadata that came with the status; empty until the answer has arrived."""
        ...

    def cancel(self) -> None:
        """End the call at once, if its answer is no longer wanted."""
        ...


class ClientStream(Protocol):
    """A streaming call: one task may write while another reads."""

    async def wait_connected(self) -> None:
        """Wait until the call has begun. What was not written before this failed cannot have
        reached the server. Raises CallError."""
        ...

    def write_at_once(self, message: bytes) -> bool:
        """Hand one message over if that needs no waiting; otherwise do nothing. It may leave
        immediately, ahead of others of this turn."""
        ...

    async def write(self, message: bytes) -> None:
        """Hand one message over; waits for the connection, and while the server is too far behind.
        Raises CallError."""
        ...

    def done_writing(self) -> None:
        """Tell the server that nothing more will be written."""
        ...

    async def read(self) -> bytes | None:
        """The next answer; None after the last. Raises CallError."""
        ...

    async def read_each(self, told: Callable[[bytes], None]) -> None:
        """Pass each answer to `told` as it arrives; return after the last. Raises CallError, and
        what `told` raises."""
        ...

    def cancel(self) -> None:
        """End the call at once; a waiting `read` or `write` raises CallError."""
        ...


class ClientChannel(Protocol):
    """Connects on first use and reconnects when necessary, with connections of its own: after
    `close`, a new channel to the address starts with a new connection."""

    def start(
        self, path: str, request: bytes, *, timeout_s: float | None, metadata: Metadata
    ) -> ClientCall: ...

    def stream(
        self,
        path: str,
        request: bytes | None = None,
        *,
        timeout_s: float | None = None,
        metadata: Metadata,
    ) -> ClientStream:
        """A `request` given here is the only one."""
        ...

    async def close(self) -> None:
        """End all calls now, and the connection."""
        ...


def open_channel(
    address: str,
    engine: Engine,
    chance: random.Random,
    tls: DialledTls | None = None,
    memory: MemoryLimit | None = None,
) -> ClientChannel:
    """A channel to host:port. `chance` randomises the pauses between attempts to connect. Without
    `tls` it is plain text. `memory` is shared with other channels; our own engine only.

    Raises:
        InvalidArgument: `address` is not host:port, or the engine has no TLS.
    """
    if engine is Engine.GRPCIO:
        if tls is not None:
            raise InvalidArgument(
                f"the gRPC engine grpcio is without TLS here; unset {ENGINE_VARIABLE}"
            )
        from aerobee.rpc.grpcio_channel import GrpcioChannel

        return GrpcioChannel(address)
    try:
        return Channel(
            address,
            now=asyncio.get_running_loop().time,
            random=chance,
            observer=_Observer(address),
            limits=_LIMITS,
            user_agent="aerobee",
            tls=tls,
            memory=memory,
        )
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


_LIMITS = ChannelLimits(
    connection=replace(client_connection_limits(), message_bytes_max=FRAME_BYTES_MAX),
    backoff_max_s=BACKOFF_MAX_S,
)


class _Observer:
    """Logs misbehaviour of servers."""

    def __init__(self, address: str) -> None:
        self._address = address

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        event = "connection ended by a limit"
        log_event(
            log, event, level=logging.DEBUG, address=self._address, limit=limit, reason=reason
        )
