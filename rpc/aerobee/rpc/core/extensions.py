"""Windows for messages that are larger than a stream's window, one after another.

Owns: how far the windows of a connection's streams are extended, and which streams wait. A message
that has begun always gets its window in the end, because the ones before it get their whole
windows; so a connection's memory is bounded by the windows every stream has, plus this.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from aerobee.rpc.core.inbox import Inbox
from aerobee.rpc.core.stream import Stream


class WindowExtensions:
    """First come, first served."""

    __slots__ = ("_bytes_max", "_extended_bytes", "_send_window", "_wanted")

    def __init__(self, bytes_max: int, send_window: Callable[[int, int], None]) -> None:
        """`send_window(stream_id, increment)` tells the peer."""
        self._bytes_max = bytes_max
        self._send_window = send_window
        self._extended_bytes = 0
        self._wanted: OrderedDict[Inbox, tuple[Stream, int]] = OrderedDict()

    def extend(self, stream: Stream, size: int) -> None:
        """Let the stream receive `size` more bytes, now or later."""
        inbox = stream.inbox
        assert inbox is not None, "a message has begun"
        inbox.extension = size
        self._wanted[inbox] = (stream, size)
        self._serve()

    def end(self, inbox: Inbox) -> None:
        """The message is complete, or its stream has ended."""
        size, inbox.extension = inbox.extension, 0
        if size and self._wanted.pop(inbox, None) is None:
            self._extended_bytes -= size
            self._serve()

    def _serve(self) -> None:
        while self._wanted:
            inbox, (stream, size) = next(iter(self._wanted.items()))
            if self._extended_bytes and self._extended_bytes + size > self._bytes_max:
                return
            del self._wanted[inbox]
            self._extended_bytes += size
            stream.receive_window += size
            self._send_window(stream.stream_id, size)
