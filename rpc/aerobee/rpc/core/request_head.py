"""Parses a request's header block: gRPC over HTTP/2, `Request-Headers`, and RFC 9113, 8.3.1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aerobee.rpc.core import hpack
from aerobee.rpc.core.hpack import Field
from aerobee.rpc.core.metadata import named_metadata, timeout_s
from aerobee.rpc.core.method import Method

MALFORMED: Final = 1
"""RFC 9113, 8.1.1: the stream is reset."""
NOT_GRPC: Final = 2
"""A content-type other than application/grpc: answered with HTTP status 415."""
BAD_TIMEOUT: Final = 3

_REQUIRED: Final = hpack.METHOD | hpack.SCHEME | hpack.PATH
_CONTENT_TYPE: Final = b"application/grpc"


class RequestHead:
    """Parsed once for blocks that repeat, so nothing that can be seen of it changes."""

    __slots__ = ("_named", "_names", "accepts_gzip", "content_length", "encoding", "fields",
                 "flaw", "is_plain", "may_compress", "method", "path", "timeout_s")  # fmt: skip

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = fields
        self.flaw = 0
        self.method: Method | None = None
        """None: it is not served."""
        self.path = b""
        self.timeout_s: float | None = None
        self.encoding = b""
        self.accepts_gzip = False
        self.content_length: int | None = None
        self.may_compress = False
        self.is_plain = False
        """One message is expected, and nothing else needs attention."""
        self._names: Mapping[bytes, str] | None = None
        self._named: Mapping[str, str] = {}

    def named(self, names: Mapping[bytes, str]) -> Mapping[str, str]:
        """See `named_metadata`. Asked again with the same `names`, it answers from memory.

        Raises:
            RpcError: as `named_metadata`.
        """
        if self._names is not names:
            self._named = named_metadata(self.fields, names)
            self._names = names
        return self._named


def reader(methods: dict[bytes, Method]) -> Callable[[list[Field]], RequestHead]:
    """Makes a parser of heads; `methods` by path."""

    def read(fields: list[Field]) -> RequestHead:
        head = _read(fields)
        head.method = method = methods.get(head.path)
        head.is_plain = (
            method is not None
            and not method.streams_requests
            and head.flaw == 0
            and head.content_length is None
        )
        head.may_compress = (
            head.accepts_gzip and method is not None and method.compress_bytes_min is not None
        )
        return head

    return read


def _read(fields: list[Field]) -> RequestHead:
    head = RequestHead(fields)
    seen = 0
    is_regular = is_grpc = False
    for field in fields:
        kind = field[3]
        if not kind:
            is_regular = True
            continue
        value = field[1]
        if kind & hpack.PSEUDO:
            if is_regular or seen & kind or kind & (hpack.BAD | hpack.STATUS):
                head.flaw = MALFORMED
                return head
            seen |= kind
            if kind == hpack.PATH:
                head.path = value
        else:
            is_regular = True
            if kind == hpack.CONTENT_TYPE:
                is_grpc = value.startswith(_CONTENT_TYPE)
            elif kind == hpack.TIMEOUT:
                head.timeout_s = timeout_s(value)
                if head.timeout_s is None:
                    head.flaw = BAD_TIMEOUT
            elif kind != hpack.TE:
                _read_rare(head, value, kind)
    if seen & _REQUIRED != _REQUIRED or not head.path:
        head.flaw = MALFORMED
    elif head.flaw != MALFORMED and not is_grpc:
        head.flaw = NOT_GRPC
    return head


def _read_rare(head: RequestHead, value: bytes, kind: int) -> None:
    if kind & hpack.BAD:
        head.flaw = MALFORMED
    elif kind == hpack.ENCODING:
        head.encoding = value
    elif kind == hpack.ACCEPT_ENCODING:
        head.accepts_gzip = b"gzip" in [part.strip() for part in value.split(b",")]
    elif kind == hpack.CONTENT_LENGTH:
        head.content_length = int(value)
