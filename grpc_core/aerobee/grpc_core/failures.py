"""How a connection or a stream ends before its time."""

from __future__ import annotations

from aerobee.grpc_core.frames import ErrorCode
from aerobee.grpc_core.limits import Limit


class ConnectionFailure(Exception):
    """The peer broke the protocol or a limit: GOAWAY, and the connection ends (RFC 9113, 5.4.1)."""

    def __init__(self, code: ErrorCode, reason: str = "", limit: Limit = Limit.PROTOCOL) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.limit = limit
