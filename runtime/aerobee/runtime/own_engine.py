"""Our own gRPC core (`aerobee.grpc_core`) as an engine of servers."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Any

import grpc

from aerobee.grpc_core.generated import ServicerContext
from aerobee.grpc_core.limits import ConnectionLimits, LimitObserver
from aerobee.grpc_core.method import Method, Style
from aerobee.grpc_core.server import Server
from aerobee.grpc_core.server_call import ServerCall
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event
from aerobee.runtime.served_method import ServedMethod
from aerobee.runtime.server_engine import ServerOptions

_UNLIMITED = 1 << 30

log = logging.getLogger(__name__)


class OwnEngine:
    """See ServerEngine."""

    def __init__(self, options: ServerOptions, clock: Clock, observer: LimitObserver) -> None:
        limits = ConnectionLimits(
            message_bytes_max=options.message_bytes_max,
            sent_message_bytes_max=options.message_bytes_max,
        )
        if options.idle_s is not None:
            limits = replace(limits, idle_s=options.idle_s, preface_s=options.idle_s)
        self._server = Server(
            now=clock.monotonic_s,
            # Spreads the ages of connections, and ours have none.
            random=random.Random(0),
            observer=observer,
            on_bug=_log_bug,
            limits=limits,
            connections_max=options.connections_max or _UNLIMITED,
        )

    def add(self, method: ServedMethod) -> None:
        self._server.add(
            Method(
                method.path,
                _handler(method),
                method.style,
                method.streams_requests,
                method.streams_answers,
                method.read,
                method.write,
            )
        )

    async def listen(self, address: str) -> int:
        host, _, port = address.rpartition(":")
        return await self._server.listen(host.strip("[]"), int(port))

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


def _handler(method: ServedMethod) -> Any:
    handle, end = method.handler, grpc.aio.EOF
    if method.style is Style.COMPLETION:
        return lambda request, call: handle(request, ServicerContext(call, end), call)
    return lambda request, call: handle(request, ServicerContext(call, end))


def _log_bug(call: ServerCall, error: Exception) -> None:
    log_event(
        log, "a call failed because of a bug", level=logging.ERROR, call=call.path, error=error
    )
