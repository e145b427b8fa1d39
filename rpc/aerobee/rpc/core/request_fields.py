"""The header fields of a channel's requests, each encoded once for all calls that have it.

A header block comes in three fragments: the head, shared by all calls of a method; the timeout,
shared by most; and the metadata of the call.
"""

from __future__ import annotations

from typing import Final

from aerobee.rpc.core import hpack
from aerobee.rpc.core.metadata import MetadataEncoder, timeout_field

_CACHED_MAX: Final = 1_024


class RequestFields:
    """The fields of one channel. `heads` and `timeouts` are public because each call looks there
    first."""

    __slots__ = ("_after", "_before", "heads", "metadata", "timeouts")

    def __init__(
        self, *, authority: bytes, user_agent: str, is_tls: bool, compresses: bool
    ) -> None:
        self._before = hpack.encode(
            [
                (b":method", b"POST"),
                (b":scheme", b"https" if is_tls else b"http"),
                (b":authority", authority),
            ]
        )
        regular = [
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", user_agent.encode("ascii")),
            (b"grpc-accept-encoding", b"identity,gzip"),
        ]
        if compresses:
            regular.append((b"grpc-encoding", b"gzip"))
        self._after = hpack.encode(regular)
        self.heads: dict[str, bytes] = {}
        self.timeouts: dict[float, bytes] = {}
        self.metadata = MetadataEncoder()

    def head(self, path: str) -> bytes:
        """All fields except those specific to a call. `path`: `/package.Service/Method`.

        Raises:
            ValueError: `path` is malformed.
        """
        head = self.heads.get(path)
        if head is None:
            if path[:1] != "/":
                raise ValueError(f"{path!r} is no path of a method; use /package.Service/Method")
            # No pseudo-field may come after a regular one.
            named = hpack.encode_field(b":path", path.encode("ascii"))
            head = self._before + named + self._after
            if len(self.heads) >= _CACHED_MAX:
                self.heads.clear()
            self.heads[path] = head
        return head

    def timeout(self, timeout_s: float) -> bytes:
        field = self.timeouts.get(timeout_s)
        if field is None:
            field = timeout_field(timeout_s)
            if len(self.timeouts) >= _CACHED_MAX:
                self.timeouts.clear()
            self.timeouts[timeout_s] = field
        return field
