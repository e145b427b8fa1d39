"""Our own gRPC core (`aerobee.rpc.core`) as an engine of servers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import grpc

from aerobee.rpc.core.limits import ConnectionLimits, LimitObserver
from aerobee.rpc.core.method import Method, Style
from aerobee.rpc.core.server import Server
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.status import Metadata, RpcError
from aerobee.rpc.outside import OUTSIDE
from aerobee.rpc.served_method import ServedMethod, joined_parts
from aerobee.rpc.server_engine import AcceptedTls, ServerOptions
from aerobee.runtime.busy_poll import busy_poll
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event

_UNLIMITED = 1 << 30
_HIGH_WATER_BYTES_MIN: Final = 64 << 10
_HIGH_WATER_BYTES_MAX: Final = 1 << 20
_SLOW_READERS: Final = 512
_END_OF_STREAM: Final = grpc.aio.EOF

log = logging.getLogger(__name__)


class OwnEngine:
    """A ServerEngine with the core's server."""

    def __init__(self, options: ServerOptions, clock: Clock, observer: LimitObserver) -> None:
        limits = ConnectionLimits(
            message_bytes_max=min(options.message_bytes_max, options.request_bytes_max),
            sent_message_bytes_max=options.message_bytes_max,
            # Up to this, what a connection holds unsent is counted only once a second.
            send_high_water_bytes=min(
                _HIGH_WATER_BYTES_MAX,
                max(_HIGH_WATER_BYTES_MIN, options.memory_bytes_max // _SLOW_READERS),
            ),
        )
        if options.idle_s is not None:
            limits = replace(limits, idle_s=options.idle_s, preface_s=options.idle_s)
        polling = busy_poll(options.busy_poll_us)
        self._server = Server(
            now=clock.monotonic_s,
            # Randomises the maximum ages of connections, which ours do not have.
            random=random.Random(0),
            observer=observer,
            on_bug=_log_bug,
            limits=limits,
            connections_max=options.connections_max or _UNLIMITED,
            memory_bytes_max=options.memory_bytes_max,
            on_disconnected=options.on_disconnected,
            heard=None if polling is None else polling.heard,
            beside=options.beside,
        )
        self._tls = options.tls

    def add(self, method: ServedMethod) -> None:
        self._server.add(
            Method(
                method.path,
                _handler(method),
                method.style,
                method.streams_requests,
                method.streams_answers,
                method.read,
                None if method.write is joined_parts else method.write,
                takes_views=method.takes_views,
                plain_bytes_max=method.request_bytes_max,
            )
        )

    @property
    def memory_used_bytes(self) -> int | None:
        return self._server.memory.used

    async def listen(self, address: str) -> int:
        return await self._listen(address, self._tls)

    async def listen_outside(self, address: str, tls: AcceptedTls | None) -> int:
        return await self._listen(address, tls, OUTSIDE)

    async def _listen(self, address: str, tls: AcceptedTls | None, listener: str = "") -> int:
        host, _, port = address.rpartition(":")
        return await self._server.listen(
            host.strip("[]"),
            int(port),
            tls=None if tls is None else tls.context,
            accepts_plain_text=tls is not None and tls.accepts_plain_text,
            listener=listener,
        )

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


class ServicerContext:
    """One call, with the parts of grpcio's context that servicers use, plus `write_at_once`, which
    grpcio does not have. A call that has ended is cancelled, which is the only sign of it."""

    __slots__ = ("_call",)

    def __init__(self, call: ServerCall) -> None:
        self._call = call

    def peer(self) -> str:
        return self._call.peer

    @property
    def listener(self) -> str:
        """The listener through which the call came; see `aerobee.rpc.outside`."""
        return self._call.listener

    def peer_certificate(self) -> dict[str, Any] | None:
        """The content of the client's certificate, as `ssl` returns it, if TLS asked for one."""
        return self._call.peer_certificate()

    def is_encrypted(self) -> bool:
        return self._call.is_encrypted

    def invocation_metadata(self) -> Metadata:
        return self._call.metadata

    def metadata_named(self, names: Mapping[bytes, str]) -> Mapping[str, str]:
        return self._call.metadata_named(names)

    def time_remaining(self) -> float | None:
        return self._call.time_remaining_s()

    def request_bytes(self) -> int:
        """Size of the request read last."""
        return self._call.request_bytes

    def send_head(self) -> None:
        """Send the header block now; otherwise it goes with the first answer."""
        if not self._call.is_over:
            self._call.send_initial_metadata()

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Metadata to send with the status, whatever it is."""
        self._call.set_trailers(metadata)

    async def read(self) -> Any:
        """The next request, or grpc.aio.EOF after the last."""
        call = self._call
        if call.is_over:
            raise asyncio.CancelledError
        try:
            request = await call.read()
        except RpcError:
            if call.is_over:
                raise asyncio.CancelledError from None
            raise
        return _END_OF_STREAM if request is None else request

    async def write(self, answer: Any) -> None:
        call = self._call
        if call.is_over:
            raise asyncio.CancelledError
        # Not immediately: only what leaves with the turn counts towards the bytes of a turn, after
        # which others have theirs. A servicer may write without end.
        call.send_nowait(answer)
        if call.outbox is not None:
            await call.sendable()

    def write_at_once(self, answer: Any) -> bool:
        """The same if it needs no waiting; otherwise do nothing."""
        call = self._call
        if call.is_over or call.outbox is not None:
            return False
        call.send_now(answer)
        return True


def _handler(method: ServedMethod) -> Any:
    handle = method.handler
    if method.style is Style.COMPLETION:
        return lambda request, call: handle(request, ServicerContext(call), call)
    return lambda request, call: handle(request, ServicerContext(call))


def _log_bug(call: ServerCall, error: Exception) -> None:
    log_event(
        log, "a call failed because of a bug", level=logging.ERROR, call=call.path, error=error
    )
