"""Frames, parsed where they arrive: RFC 9113, sections 3.4, 4 and 6.

Owns: input of one connection that is not yet a whole frame, and the header block whose
CONTINUATIONs are still to come. Checks a frame by itself; `connection` checks what it means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final

from aerobee.rpc.core import frames
from aerobee.rpc.core.frames import ErrorCode, unpack_header
from aerobee.rpc.core.limits import ConnectionFailure, ConnectionLimits, Limit

_NOTHING: Final = 0
_SETTINGS: Final = -1
_LONG_BYTES: Final = 1_024
"""Payload size; shorter frames cost little, unless they are HEADERS."""
_WHOLE_BYTES_MAX: Final = frames.FRAME_BYTES_MIN
"""DATA frames with a longer payload are handled as it arrives."""
_READ_APART_BYTES_MIN: Final = 64 << 10
"""A shorter frame is cheaper to copy than to read in two parts."""
_PIECE_BYTES_MIN: Final = 1_024
"""Less of such a payload waits for more: a peer must not cause work for each of its bytes."""
_NO_STREAM: Final = -1
PRIORITY_BYTES: Final = 5
_HANDLERS: Final = (
    "_on_data",
    "_on_headers",
    "_on_priority",
    "_on_rst_stream",
    "_on_settings",
    "_on_push_promise",
    "_on_ping",
    "_on_goaway",
    "_on_window_update",
    "_on_continuation",
)
"""By the kind of frame."""
_Handler = Callable[[Any, bytes, int, int, int, int], None]


class FrameParser(ABC):
    """Calls a handler for each whole frame: handler(data, start, end, flags, stream_id), whose
    payload is data[start:end]. A long DATA frame is handled in pieces, as if each were a frame."""

    # Tens of thousands of connections only wait: none of them has a dict of its own.
    __slots__ = (
        "_block",
        "_block_flags",
        "_block_frames",
        "_expected",
        "_left_bytes",
        "_left_flags",
        "_left_padding",
        "_left_stream",
        "ends_long",
        "expects_preface",
        "is_closing",
        "is_settled",
        "limits",
        "must_yield",
        "reads_with_frames",
        "rest",
    )

    begins_with_preface: ClassVar = False
    _handlers: ClassVar[tuple[_Handler, ...]] = ()

    def __init__(self, limits: ConnectionLimits) -> None:
        self.expects_preface = self.begins_with_preface
        self.limits = limits
        self.is_closing = False
        """Nothing more is read."""
        self.is_settled = False
        """The peer's first SETTINGS have arrived."""
        self.must_yield = False
        """Stop after this frame, and continue in the loop's next turn."""
        self.rest = b""
        self.ends_long = False
        """The last input ended inside or with a frame that is worth being read apart."""
        self.reads_with_frames = 0
        """How many times input completed a frame."""
        # Nothing special, or SETTINGS, or the stream whose header block continues.
        self._expected = _SETTINGS
        self._block = b""
        self._block_flags = 0
        self._block_frames = 0
        # What of a long DATA frame is still to come, and then its padding.
        self._left_bytes = self._left_padding = 0
        self._left_flags = self._left_stream = 0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._handlers = tuple(getattr(cls, name) for name in _HANDLERS)

    @abstractmethod
    def spend(self, cost: float) -> None:
        """The peer has caused work without any use. Raises ConnectionFailure if that happens too
        often."""

    @abstractmethod
    def is_turn_over(self) -> bool:
        """Whether processing the input has taken long enough for one turn of the loop."""

    @abstractmethod
    def yield_turn(self) -> None:
        """Continue with the rest in the loop's next turn."""

    @abstractmethod
    def receive_headers(self, stream_id: int, block: bytes, end_stream: bool) -> None:
        """A whole header block. It must be decoded whatever happens to its stream."""

    @abstractmethod
    def _on_data(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None: ...

    @abstractmethod
    def _on_padding(self, size: int, stream_id: int) -> None:
        """So much of a DATA frame is padding."""

    @abstractmethod
    def _on_priority(
        self, data: bytes, start: int, end: int, flags: int, stream_id: int
    ) -> None: ...

    @abstractmethod
    def _on_rst_stream(
        self, data: bytes, start: int, end: int, flags: int, stream_id: int
    ) -> None: ...

    @abstractmethod
    def _on_settings(
        self, data: bytes, start: int, end: int, flags: int, stream_id: int
    ) -> None: ...

    @abstractmethod
    def _on_ping(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None: ...

    @abstractmethod
    def _on_goaway(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None: ...

    @abstractmethod
    def _on_window_update(
        self, data: bytes, start: int, end: int, flags: int, stream_id: int
    ) -> None: ...

    def parse(self, data: bytes) -> None:
        """Parse all whole frames of this input; the rest is kept in `rest`, and comes first next
        time.

        Raises:
            ConnectionFailure: the peer broke the protocol or exceeded a limit.
        """
        length = 0
        is_long = self._left_bytes > 0 and self.ends_long
        position = self._continue(data)
        if position < 0:
            return
        available = len(data)
        handlers = self._handlers
        frame_bytes_max = self.limits.frame_bytes_max
        while not self._left_bytes and available - position >= frames.HEADER_BYTES:
            high, low, kind, flags, stream_id = unpack_header(data, position)
            length = high << 8 | low
            if length > frame_bytes_max:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame is too long")
            start = position + frames.HEADER_BYTES
            end = start + length
            if length > _WHOLE_BYTES_MAX and kind != frames.DATA:
                self._check_long(kind, length)
            if end > available:
                if length > _WHOLE_BYTES_MAX and kind == frames.DATA:
                    position = self._begin_long(data, start, length, flags, stream_id)
                break
            position = end
            stream_id &= frames.STREAM_ID_MAX  # the reserved bit is ignored
            if self._expected:
                self._check_expected(kind, flags, stream_id)
            if kind < len(handlers):
                handlers[kind](self, data, start, end, flags, stream_id)
            else:
                self.spend(1)  # frames of unknown kind are ignored
            may_be_dear = length > _LONG_BYTES or kind == frames.HEADERS
            if self.must_yield or (may_be_dear and self.is_turn_over()):
                if self.is_closing:
                    return
                self.yield_turn()
                break
        self.ends_long = is_long or length > _READ_APART_BYTES_MIN
        if position:
            self.reads_with_frames += 1
        self.rest = data[position:]

    def _continue(self, data: bytes) -> int:
        """How much of the input belongs to what has begun: the preface or a long frame. Negative:
        more must come."""
        if self._left_bytes:
            return self._take_piece(data, 0)
        if not self.expects_preface:
            return 0
        return len(frames.PREFACE) if self._check_preface(data) else -1

    def parse_placed(self, size: int) -> None:
        """So much of the long DATA frame that is arriving was put where it belongs. Raises as
        `parse`."""
        left = self._left_bytes = self._left_bytes - size
        self.reads_with_frames += 1
        self._on_data(b"", 0, size, 0 if left else self._left_flags, self._left_stream)
        if not left:
            self._end_long()
        if self.must_yield or self.is_turn_over():
            self.yield_turn()

    def _begin_long(self, data: bytes, start: int, length: int, flags: int, stream_id: int) -> int:
        """A DATA frame begins whose payload has not arrived; returns how far the input was used."""
        if len(data) - start < _PIECE_BYTES_MIN:
            return start - frames.HEADER_BYTES
        stream_id &= frames.STREAM_ID_MAX
        if self._expected:
            self._check_expected(frames.DATA, flags, stream_id)
        if flags & frames.PADDED:
            padding = data[start]
            start += 1
            length -= 1 + padding
            self._on_padding(1 + padding, stream_id)
            self._left_padding = padding
        self._left_bytes = length
        self._left_flags = flags & frames.END_STREAM
        self._left_stream = stream_id
        return self._take_piece(data, start)

    def _take_piece(self, data: bytes, start: int) -> int:
        """Handle what has arrived of the long frame's payload; returns where it ends."""
        left = self._left_bytes
        size = min(left, len(data) - start)
        if size < left and size < _PIECE_BYTES_MIN:
            return start
        end = start + size
        self._left_bytes = left - size
        if self._left_stream != _NO_STREAM:
            flags = 0 if size < left else self._left_flags
            self._on_data(data, start, end, flags, self._left_stream)
        if size == left:
            self._end_long()
            if self._left_bytes:
                return self._take_piece(data, end)
        return end

    def _end_long(self) -> None:
        """Its payload is complete: what follows is its padding, which means nothing."""
        self._left_bytes, self._left_padding = self._left_padding, 0
        self._left_stream = _NO_STREAM

    def _check_long(self, kind: int, length: int) -> None:
        """A frame other than DATA waits until it is complete, so it may not be of any size."""
        if length > self.limits.header_block_bytes_max:
            raise ConnectionFailure(
                ErrorCode.ENHANCE_YOUR_CALM,
                "a frame is too long for its kind",
                Limit.HEADER_BLOCK if kind == frames.HEADERS else Limit.PROTOCOL,
            )

    @property
    def is_mid_frame(self) -> bool:
        """A frame or a header block has begun and is incomplete."""
        return bool(self.rest or self._left_bytes) or self._expected > _NOTHING

    def _check_preface(self, data: bytes) -> bool:
        """Whether the preface is complete."""
        preface = frames.PREFACE
        if data[: len(preface)] != preface[: len(data)]:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "not HTTP/2", Limit.PREFACE)
        if len(data) < len(preface):
            self.rest = data
            return False
        self.expects_preface = False
        return True

    def _check_expected(self, kind: int, flags: int, stream_id: int) -> None:
        if self._expected == _SETTINGS:
            if kind != frames.SETTINGS or flags & frames.ACK:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "SETTINGS must come first")
            self._expected = _NOTHING
            self.is_settled = True
        elif kind != frames.CONTINUATION or stream_id != self._expected:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")

    def _on_headers(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        if stream_id == 0:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "HEADERS without a stream")
        if flags & (frames.PADDED | frames.HAS_PRIORITY):
            start, end = self._unpadded(data, start, end, flags, stream_id)
        if flags & frames.END_HEADERS:
            self.receive_headers(stream_id, data[start:end], bool(flags & frames.END_STREAM))
            return
        self._block = data[start:end]
        self._block_flags = flags
        self._block_frames = 0
        self._expected = stream_id

    def _unpadded(
        self, data: bytes, start: int, end: int, flags: int, stream_id: int
    ) -> tuple[int, int]:
        if flags & frames.PADDED:
            if start == end or data[start] >= end - start:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "more padding than frame")
            end -= data[start]
            start += 1
        if flags & frames.HAS_PRIORITY:
            if end - start < PRIORITY_BYTES:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "no room for a priority")
            if stream_id_at(data, start) == stream_id:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
            start += PRIORITY_BYTES
        return start, end

    def _on_continuation(
        self, data: bytes, start: int, end: int, flags: int, stream_id: int
    ) -> None:
        if not self._expected:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        self._block += data[start:end]
        self._block_frames += 1
        limits = self.limits
        if (
            len(self._block) > limits.header_block_bytes_max
            or self._block_frames > limits.continuations_max
        ):
            raise ConnectionFailure(
                ErrorCode.ENHANCE_YOUR_CALM, "a header block is too large", Limit.HEADER_BLOCK
            )
        if flags & frames.END_HEADERS:
            block, self._block = self._block, b""
            self._expected = _NOTHING
            self.receive_headers(stream_id, block, bool(self._block_flags & frames.END_STREAM))

    def _on_push_promise(
        self, data: bytes, start: int, end: int, flags: int, stream_id: int
    ) -> None:
        raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE, which was never allowed")


def stream_id_at(data: bytes, start: int) -> int:
    """Four bytes, without the reserved bit."""
    return int.from_bytes(data[start : start + 4], "big") & frames.STREAM_ID_MAX
