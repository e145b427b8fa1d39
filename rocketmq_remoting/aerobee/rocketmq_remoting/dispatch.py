"""From the code of a request to what serves it, and from its error to an answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.remoting_core.limits import Limit
from aerobee.rocketmq_remoting.codes import Code, refusal
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

_INSTEAD: Final = {
    18: "code 17 for each topic, or aerobee apply",
    25: "the settings in the broker's file, which SIGHUP or a start reads",
    50: "aerobee user and aerobee acl",
    51: "aerobee user and aerobee acl",
    100: "nothing: routes need no key-value settings",
    317: "aerobee group show",
    318: "the settings in the nameserver's file",
    319: "the settings in the nameserver's file",
    321: "mqadmin printMsg, or aerobee message",
    323: "aerobee transaction list",
    200052: "a pull, which takes nothing either",
    **dict.fromkeys(range(3001, 3004), "a nameserver (mqadmin: -b NAMESERVER), or aerobee user"),
    **dict.fromkeys(range(3006, 3009), "a nameserver (mqadmin: -b NAMESERVER), or aerobee acl"),
}
"""For what Apache's mqadmin asks."""

Answered = Command | Coroutine[Any, Any, Command | None] | None
"""An answer, what gives it later, or None: it was or will be sent to the connection."""
Serve = Callable[[Connection, Command], Answered]
"""Serves a request. Raises AerobeeError, also later."""


class Dispatch:
    """The handler of a `RemotingServer`."""

    def __init__(
        self, table: Mapping[int, Serve], *, on_closed: Callable[[Connection], None]
    ) -> None:
        """`table` by the code of requests."""
        self._table = table
        self._on_closed = on_closed

    def handle(self, connection: Connection, request: Command) -> Answered:
        serve = self._table.get(request.code)
        if serve is None:
            return request.answer(
                Code.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"request code {request.code} is not supported here; use "
                + _INSTEAD.get(request.code, "gRPC, or the command aerobee"),
            )
        try:
            found = serve(connection, request)
        except AerobeeError as error:
            return refusal(request, error)
        if found is None or isinstance(found, Command):
            return found
        return _later(request, found)

    def closed(self, connection: Connection) -> None:
        self._on_closed(connection)


async def _later(request: Command, work: Coroutine[Any, Any, Command | None]) -> Command | None:
    try:
        return await work
    except AerobeeError as error:
        return refusal(request, error)


def failure(request: Command, error: Exception) -> Command:
    """The answer to a request that failed for a reason that no error type names, which is
    logged."""
    log_bug(request, error)
    words = "the broker failed because of a bug of its own; see its log"
    return request.answer(Code.SYSTEM_ERROR, remark=words)


class LoggedLimits:
    """What peers do that ends their connections, in the log."""

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        """See `LimitObserver`."""
        log_event(
            log,
            "a peer met a limit of remoting",
            level=logging.WARNING,
            limit=limit,
            peer=peer,
            reason=reason,
        )


def log_bug(request: Command, error: Exception) -> None:
    """A request failed for a reason that no error type names."""
    log_event(
        log,
        "a remoting request failed because of a bug",
        level=logging.ERROR,
        code=request.code,
        error=error,
    )
