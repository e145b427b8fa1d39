"""The answer of a call on the server: gRPC over HTTP/2, `Response`.

Owns: how much of the answer was sent. One that fits the windows leaves as HEADERS, DATA and HEADERS
in one piece, encoded by two calls of `pack` without encoding any header of its own.
"""

from __future__ import annotations

import base64
from abc import abstractmethod
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from aerobee.rpc.core import frames, hpack
from aerobee.rpc.core.deadlines import Bucket
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.inbox import PREFIX_BYTES, compressed
from aerobee.rpc.core.metadata import encoded_metadata
from aerobee.rpc.core.method import Method
from aerobee.rpc.core.request_head import RequestHead
from aerobee.rpc.core.status import Metadata, RpcError, Status, percent_encoded
from aerobee.rpc.core.stream import Stream

if TYPE_CHECKING:
    from aerobee.rpc.core.server_connection import ServerConnection

_HEAD: Final = hpack.encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
_HEAD_GZIP: Final = _HEAD + hpack.encode([(b"grpc-encoding", b"gzip")])
_ACCEPTED: Final = hpack.encode([(b"grpc-accept-encoding", b"identity,gzip")])
_OK: Final = hpack.encode([(b"grpc-status", b"0")])
_pack_head: Final = Struct(f">HBBBL{len(_HEAD)}s HBBBLBL".replace(" ", "")).pack
_pack_tail: Final = Struct(f">HBBBL{len(_OK)}s").pack
_END: Final = frames.END_STREAM | frames.END_HEADERS


class AnsweringStream(Stream):
    """The sending half of a server's call; the call sets all of these fields when it begins."""

    __slots__ = (
        "_deadline",
        "_initial_metadata",
        "_is_head_sent",
        "_is_over",
        "_is_special",
        "_trailers",
        "head",
        "method",
        "server_connection",
    )
    server_connection: ServerConnection
    head: RequestHead
    method: Method | None
    _is_head_sent: bool
    _is_special: bool
    """The answer needs more than what was encoded in advance."""
    _is_over: bool
    """It has its status, and the interceptor's `ended` was called."""
    _deadline: Bucket | None
    _initial_metadata: bytes
    _trailers: Metadata

    # ------------------------------------------------------------------- what the call decides

    @abstractmethod
    def _over(self, status: Status) -> None:
        """Called once the call has its status."""

    @abstractmethod
    def _bug(self, error: Exception) -> None:
        """A handler, or the serializer of its answer, has failed."""

    # -------------------------------------------------------------------------------- metadata

    def send_initial_metadata(self, metadata: Metadata = ()) -> None:
        """Send the header block now, with this metadata; otherwise it goes with the first answer.

        Raises:
            ValueError: HTTP/2 cannot carry the metadata, or the block was already sent.
        """
        if self._is_head_sent:
            raise ValueError("the initial metadata was sent already")
        self._is_special = True
        self._initial_metadata += encoded_metadata(metadata)
        if not self._is_over:
            self._send_head()

    def add_trailers(self, metadata: Metadata) -> None:
        """Metadata to send with the status, whatever it is."""
        self._is_special = True
        self._trailers += metadata

    def set_trailers(self, metadata: Metadata) -> None:
        """The same, replacing what was added before."""
        self._is_special = True
        self._trailers = metadata

    # --------------------------------------------------------------------------------- answers

    async def send(self, answer: Any) -> None:
        """Send one of several answers; waits while the client is too far behind.

        Raises:
            RpcError: CANCELLED, the call has ended.
        """
        self.send_nowait(answer)
        if self.outbox is not None:
            await self.sendable()

    def send_nowait(self, answer: Any) -> None:
        """The same without waiting: a handler that sends a lot should await `sendable` in
        between."""
        if self._is_over:
            raise RpcError(Status.CANCELLED, "the call has ended")
        method = self.method
        assert method is not None, "calls of other methods have ended"
        data = answer if method.serialize is None else method.serialize(answer)
        if isinstance(data, tuple):
            self._send_bytes(data[0], data[1])
        else:
            self._send_bytes(data)

    def send_now(self, answer: Any) -> None:
        """`send_nowait` for an answer that leaves at once. If more requests have already arrived,
        it leaves with their answers instead, because each write is a system call."""
        connection = self.connection
        if connection.is_write_due or (self.inbox is not None and self.inbox.messages):
            self.send_nowait(answer)
            return
        connection.is_write_due = True
        try:
            self.send_nowait(answer)
        finally:
            connection.flush()

    def _send_bytes(self, data: bytes, rest: bytes = b"") -> None:
        bytes_max = self.connection.limits.sent_message_bytes_max
        size = len(data) + len(rest)
        if bytes_max and size > bytes_max:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED,
                f"the answer has a message of {size} bytes, and {bytes_max} are allowed",
            )
        if not self._is_head_sent:
            self._send_head()
            # A client that cancels a stream which has delivered a message did not reset it for
            # nothing.
            self.server_connection.streams_answered += 1
        if self.head.may_compress and self._compresses(size):
            self.send_message(compressed(data + rest), 1)
        else:
            self.send_message(data, rest=rest)

    def finish(self, answer: Any) -> None:
        """End the call with OK and its one answer. Does nothing after the call's end."""
        if self._is_over:
            return
        method = self.method
        assert method is not None, "calls of other methods have ended"
        try:
            data = answer if method.serialize is None else method.serialize(answer)
        except RpcError as error:
            self._end(error)
        except Exception as bug:
            self._bug(bug)
        else:
            self.finish_bytes(data)

    def finish_bytes(self, data: bytes) -> None:
        """The same with a serialized answer."""
        connection = self.server_connection
        size = len(data) + PREFIX_BYTES
        if (
            connection.is_fast
            and self.is_remote_closed
            and size <= self.send_window
            and size <= connection.send_window
            and size <= connection.whole_bytes
            and not self._is_special
            and not self._is_over
        ):
            stream_id = self.stream_id
            connection.sent_data(size)
            connection.control.tokens = connection.control.burst
            connection.write_parts(
                _pack_head(
                    0, len(_HEAD), frames.HEADERS, frames.END_HEADERS, stream_id, _HEAD,
                    size >> 8, size & 0xFF, frames.DATA, 0, stream_id, 0, size - PREFIX_BYTES,
                ),
                data,
                _pack_tail(0, len(_OK), frames.HEADERS, _END, stream_id, _OK),
            )  # fmt: skip
            self._is_over = True
            if self._deadline is not None or connection.interceptor is not None:
                self._over(Status.OK)
            connection.streams_answered += 1
            if self.inbox is None and not connection.is_draining:
                del connection.streams[stream_id]
                self.is_closed = True
            else:
                self.connection.close_stream(self)
        elif not self._is_over:
            try:
                self._send_bytes(data)
            except RpcError as error:
                self._end(error)
            else:
                self._end(None)

    def abort(
        self,
        status: Status,
        message: str = "",
        *,
        details: bytes = b"",
        trailers: Metadata = (),
    ) -> None:
        """End the call with a status other than OK; see RpcError. Does nothing after its end."""
        self._end(RpcError(status, message, details=details, trailers=trailers))

    # -------------------------------------------------------------------------------- encoding

    def _compresses(self, size: int) -> bool:
        least = self.method.compress_bytes_min if self.method is not None else None
        return least is not None and size >= least

    def _send_head(self) -> None:
        self._is_head_sent = self._is_special = True
        block = _HEAD_GZIP if self.head.may_compress else _HEAD
        self.connection.send_headers(
            self.stream_id, block + self._initial_metadata, end_stream=False
        )

    def _end(self, error: RpcError | None) -> None:
        """Trailers; an answer without a message has no other header block."""
        if self._is_over:
            return
        block = b"" if self._is_head_sent else _HEAD + self._initial_metadata
        block += _OK if error is None else _error_fields(error)
        trailers = self._trailers if error is None else self._trailers + error.trailers
        try:
            block += encoded_metadata(trailers)
        except ValueError as wrong:
            self._trailers = ()
            self._bug(wrong)
            return
        self._over(Status.OK if error is None else error.status)
        self._is_head_sent = True
        self.server_connection.streams_answered += 1
        self.finish_sending(self.connection.header_frames(self.stream_id, block, end_stream=True))

    def end_local(self) -> None:
        """All of the answer was sent: the rest of the request is not needed (RFC 9113, 8.1)."""
        if not self.is_remote_closed and not self.is_closed:
            self.connection.write(frames.rst_stream(self.stream_id, ErrorCode.NO_ERROR))
        self.connection.close_stream(self)


def _error_fields(error: RpcError) -> bytes:
    fields = [(b"grpc-status", b"%d" % error.status)]
    if error.message:
        fields.append((b"grpc-message", percent_encoded(error.message)))
    if error.details:
        encoded = base64.b64encode(error.details).rstrip(b"=")
        fields.append((b"grpc-status-details-bin", encoded))
    block = hpack.encode(fields)
    return block + _ACCEPTED if error.status is Status.UNIMPLEMENTED else block
