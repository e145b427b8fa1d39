"""How a call ends: gRPC's status codes, messages and details, as encoded by gRPC over HTTP/2."""

from __future__ import annotations

from enum import IntEnum
from typing import Final
from urllib.parse import unquote_to_bytes

Metadata = tuple[tuple[str, str | bytes], ...]
"""Lowercase keys; those that end with `-bin` have bytes, all others printable ASCII."""


class Status(IntEnum):
    """The numbers of `grpc-status`."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(Exception):
    """A call that ends, or ended, with a status other than OK.

    A handler raises it to end its call; a client's call raises it to report how it ended.
    """

    def __init__(
        self,
        status: Status,
        message: str = "",
        *,
        details: bytes = b"",
        trailers: Metadata = (),
    ) -> None:
        """`details`: a serialized google.rpc.Status, for `grpc-status-details-bin`. `trailers`:
        additional metadata sent with the status."""
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message
        self.details = details
        self.trailers = trailers


# Percent-encoding leaves space and printable ASCII unchanged, except the percent sign.
_ENCODED: Final = tuple(
    chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in range(256)
)


def percent_encoded(message: str) -> bytes:
    """The value of `grpc-message`."""
    raw = message.encode("utf-8", "replace")
    return "".join([_ENCODED[byte] for byte in raw]).encode()


def percent_decoded(message: bytes) -> str:
    """Decodes whatever a peer has sent: malformed parts stay as they are."""
    return unquote_to_bytes(message).decode("utf-8", "replace")


# How a client interprets an answer without grpc-status, by its HTTP status.
STATUS_OF_HTTP: Final = {
    400: Status.INTERNAL,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.UNIMPLEMENTED,
    429: Status.UNAVAILABLE,
    502: Status.UNAVAILABLE,
    503: Status.UNAVAILABLE,
    504: Status.UNAVAILABLE,
}
