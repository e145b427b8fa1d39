"""Parses an answer's header blocks (gRPC over HTTP/2, `Response-Headers` and `Trailers`, and RFC
9113, 8.3.2), and derives how the call ended."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from aerobee.rpc.core import hpack
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.hpack import Field
from aerobee.rpc.core.metadata import metadata_of
from aerobee.rpc.core.status import (
    STATUS_OF_HTTP,
    Metadata,
    RpcError,
    Status,
    percent_decoded,
)

_CONTENT_TYPE: Final = b"application/grpc"
_HTTP_OK: Final = 200
_STATUS_MAX: Final = max(Status)

# The meaning of a reset for a call: gRPC over HTTP/2, "Errors". Every other code is INTERNAL.
_STATUS_OF_RESET: Final = {
    ErrorCode.REFUSED_STREAM: Status.UNAVAILABLE,
    ErrorCode.CANCEL: Status.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
}


class CallError(RpcError):
    """A call ended with a status other than OK, sent by its server or determined on this side."""

    def __init__(
        self,
        status: Status,
        message: str = "",
        *,
        details: bytes = b"",
        trailers: Metadata = (),
        is_answer: bool = False,
        is_unprocessed: bool = False,
    ) -> None:
        """`is_answer`: the status is the server's. `is_unprocessed`: the server is known not to
        have begun the call, so any call may be repeated."""
        super().__init__(status, message, details=details, trailers=trailers)
        self.is_answer = is_answer
        self.is_unprocessed = is_unprocessed


class AnswerHead:
    """One header block of an answer. Parsed once for blocks that repeat, so it is immutable."""

    __slots__ = ("encoding", "fields", "http_status", "is_grpc", "is_malformed", "is_plain_end",
                 "is_plain_head", "message", "status")  # fmt: skip

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = fields
        self.is_malformed = False
        self.http_status = 0
        """0: none, as in trailers."""
        self.is_grpc = False
        self.encoding = b""
        self.status: int | None = None
        """`grpc-status`."""
        self.message = b""
        self.is_plain_head = False
        """The first block of a gRPC answer, with nothing wrong in it."""
        self.is_plain_end = False
        """Trailers that say OK, with nothing wrong in them."""

    @property
    def is_informational(self) -> bool:
        """1xx: another head follows."""
        return 100 <= self.http_status < _HTTP_OK

    def metadata(self) -> Metadata:
        """The part that the application sees.

        Raises:
            RpcError: INTERNAL, a binary value cannot be read.
        """
        return metadata_of(self.fields)


def read_head(fields: list[Field]) -> AnswerHead:
    """Parses a head or trailers."""
    head = AnswerHead(fields)
    is_regular = False
    for name, value, _, kind in fields:
        if not kind:
            is_regular = True
            if name == b"grpc-status":
                head.status = int(value) if value.isdigit() and len(value) < 4 else Status.UNKNOWN
            elif name == b"grpc-message":
                head.message = value
        elif kind & hpack.BAD:
            head.is_malformed = True
        elif kind & hpack.PSEUDO:
            is_status = kind == hpack.STATUS and len(value) == 3 and value.isdigit()
            if is_regular or head.http_status or not is_status:
                head.is_malformed = True
            else:
                head.http_status = int(value)
        else:
            is_regular = True
            if kind == hpack.CONTENT_TYPE:
                head.is_grpc = value.startswith(_CONTENT_TYPE)
            elif kind == hpack.ENCODING:
                head.encoding = value
    if not head.is_malformed:
        head.is_plain_head = head.is_grpc and head.http_status == _HTTP_OK
        head.is_plain_end = head.status == Status.OK and not head.http_status
    return head


def refusal(head: AnswerHead) -> CallError | None:
    """Why a first head is not that of a gRPC answer; None: it is one."""
    if head.http_status == _HTTP_OK and (head.is_grpc or head.status is not None):
        return None
    if head.status is not None:
        return outcome(head)
    status = STATUS_OF_HTTP.get(head.http_status, Status.UNKNOWN)
    kind = "" if head.is_grpc else ", and not application/grpc"
    return CallError(status, f"the server answered HTTP {head.http_status}{kind}")


def outcome(trailers: AnswerHead) -> CallError | None:
    """How the call ended, according to the server; None: OK."""
    status = trailers.status
    if status == Status.OK:
        return None
    if status is None:
        return CallError(Status.UNKNOWN, "the answer ended without a grpc-status")
    try:
        metadata = trailers.metadata()
    except RpcError:
        metadata = ()
    message = percent_decoded(trailers.message)
    if status > _STATUS_MAX:
        message = f"{message} (grpc-status {status})".lstrip()
        status = Status.UNKNOWN
    return CallError(
        Status(status),
        message,
        details=_details(trailers.fields),
        trailers=metadata,
        is_answer=True,
    )


def _details(fields: Sequence[Field]) -> bytes:
    for name, value, _, _ in fields:
        if name == b"grpc-status-details-bin":
            try:
                return base64.b64decode(value + b"=" * (-len(value) % 4))
            except binascii.Error:
                return b""
    return b""


def error_of_reset(code: int) -> CallError:
    """The error for a stream that was reset by the server, or by something in between."""
    try:
        known: ErrorCode | None = ErrorCode(code)
    except ValueError:
        known = None
    name = known.name if known is not None else str(code)
    status = _STATUS_OF_RESET.get(known, Status.INTERNAL) if known is not None else Status.INTERNAL
    return CallError(
        status,
        f"the server reset the stream: {name}",
        is_unprocessed=known is ErrorCode.REFUSED_STREAM,
    )
