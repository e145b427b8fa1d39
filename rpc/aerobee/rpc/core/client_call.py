"""One call made by a client: gRPC over HTTP/2, `Request` and `Response`.

Owns: the state of the call, from its creation to its outcome. It may wait for a connection or for
room on one, so its stream half begins later, in `begin`, and a second time if its server is known
not to have begun it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from aerobee.rpc.core.answer_head import AnswerHead, CallError, error_of_reset, outcome, refusal
from aerobee.rpc.core.deadlines import Bucket
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.metadata import timeout_field
from aerobee.rpc.core.status import Metadata, RpcError, Status
from aerobee.rpc.core.stream import Stream

if TYPE_CHECKING:
    from aerobee.rpc.core.channel import Channel
    from aerobee.rpc.core.client_connection import ClientConnection


class ClientCall(Stream):
    """What unary and streaming calls have in common."""

    __slots__ = (
        "_channel",
        "bucket",
        "client_connection",
        "error",
        "expires_s",
        "has_waited",
        "head",
        "head_fields",
        "is_begun",
        "is_local_closed",
        "is_over",
        "is_retried",
        "metadata",
        "request",
        "timeout",
        "trailers",
        "waits_for_ready",
    )
    client_connection: ClientConnection

    def __init__(
        self,
        channel: Channel,
        head_fields: bytes,
        timeout: bytes,
        metadata: bytes,
        request: bytes | None,
        waits_for_ready: bool,
    ) -> None:
        """The header block comes in three fragments: `head_fields`, shared by all calls of a
        method, `timeout`, shared by most of them, and `metadata`. `request` None: it is written
        later."""
        self._channel = channel
        self.head_fields = head_fields
        self.timeout = timeout
        self.metadata = metadata
        self.request = request
        self.waits_for_ready = waits_for_ready
        self.expires_s: float | None = None
        """By the event loop's clock."""
        self.bucket: Bucket | None = None
        self.is_begun = False
        self.has_waited = False
        self.is_local_closed = False
        self.is_over = False
        self.is_retried = False
        self.head: AnswerHead | None = None
        self.trailers: AnswerHead | None = None
        self.error: CallError | None = None

    # ----------------------------------------------------------------------- what callers ask

    @property
    def initial_metadata(self) -> Metadata:
        """The metadata that came before the answer; empty until it has arrived.

        Raises:
            RpcError: INTERNAL, a binary value cannot be read.
        """
        return self.head.metadata() if self.head is not None else ()

    @property
    def trailing_metadata(self) -> Metadata:
        """The metadata that came with the status; empty until the call is over."""
        return self.trailers.metadata() if self.trailers is not None else ()

    def cancel(self, reason: str = "the call was cancelled") -> None:
        """End the call at once, here and on its server. Does nothing once the call is over."""
        self.stop(CallError(Status.CANCELLED, reason, is_unprocessed=not self.is_begun))

    # ------------------------------------------------------------------------------ beginning

    @abstractmethod
    def begin(self, connection: ClientConnection, stream_id: int) -> None:
        """Send what there is of the request on this stream."""

    def block(self, connection: ClientConnection) -> bytes:
        """The header block, which must be sent immediately."""
        table = connection.table
        short = table.short
        block = short.get(self.head_fields) or table.shorten(self.head_fields)
        if self.expires_s is not None:
            if self.has_waited or self.is_retried:
                block += timeout_field(self.expires_s - self._channel.loop.time())
            else:
                # Shortening one fragment may move the index in another: within one block that is
                # correct.
                block += short.get(self.timeout) or table.shorten(self.timeout)
        return block + self.metadata

    @property
    def can_repeat(self) -> bool:
        """All of the request is still available."""
        return not self.is_retried

    def on_refused(self) -> None:
        """The server is known not to have begun it; the stream is already closed."""
        if self.is_over:
            return
        if self.can_repeat:
            self.is_retried = True
            self.is_begun = self.is_local_closed = False
            self._channel.place(self)
        else:
            reason = "the server has refused the call, and has not begun it"
            self.end(CallError(Status.UNAVAILABLE, reason, is_unprocessed=True))

    # ---------------------------------------------------------------------------- the answer

    def receive_head(self, head: AnswerHead, end_stream: bool) -> None:
        """A header block: the first one, or trailers."""
        if head.is_malformed or (self.head is not None and (head.http_status or not end_stream)):
            self.client_connection.fail_stream(self, ErrorCode.PROTOCOL_ERROR)
        elif self.head is not None:
            self._finish(head)
        elif head.is_informational and not end_stream:
            pass  # another one follows
        elif (error := refusal(head)) is not None:
            if end_stream:
                self.trailers = head
            self.stop(error)
        elif end_stream:
            self._finish(head)
        else:
            self.head = head
            self.on_head(head)

    def on_head(self, head: AnswerHead) -> None:
        """The first header block has come, and more will follow."""

    def _finish(self, trailers: AnswerHead) -> None:
        """The server has ended the call."""
        self.is_remote_closed = True
        self.trailers = trailers
        self.client_connection.answered()
        self.stop_or_end(outcome(trailers))

    @abstractmethod
    def stop_or_end(self, error: CallError | None) -> None:
        """The server has ended the call like this; its answer may still be incomplete."""

    def end_without_status(self) -> None:
        self.is_remote_closed = True
        self.stop(CallError(Status.UNKNOWN, "the answer ended without trailers"))

    def refuse_answer(self, reason: str, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """What the server sent is not acceptable."""
        kind = Status.RESOURCE_EXHAUSTED if code is ErrorCode.CANCEL else Status.INTERNAL
        self.stop(CallError(kind, reason), code)

    def refuse_message(self, error: RpcError) -> None:
        self.stop(CallError(error.status, error.message))

    # --------------------------------------------------------------------------------- ending

    def stop(self, error: CallError | None, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """End it here, and tell the server unless both sides have ended."""
        if self.is_over:
            return
        if self.is_begun and not self.is_closed:
            if self.is_remote_closed and self.is_local_closed:
                self.connection.close_stream(self)
            else:
                self.reset(code)
        self.end(error)

    def end(self, error: CallError | None) -> None:
        """It has its outcome; its stream is closed, or was never begun."""
        if self.is_over:
            return
        self.is_over = True
        if self.bucket is not None:
            self.bucket.discard(self)
            self.bucket = None
        if not self.is_begun:
            self._channel.forget(self)
        self.error = error
        self.on_over(error)

    @abstractmethod
    def on_over(self, error: CallError | None) -> None:
        """Wake the waiting tasks."""

    def end_local(self) -> None:
        self.is_local_closed = True
        if self.is_remote_closed:
            self.connection.close_stream(self)

    def on_deadline(self) -> None:
        self.bucket = None
        reason = "the call's deadline has passed"
        if not self.is_begun:
            reason = self._channel.unconnected(f"{reason} before it had a connection")
        self.stop(CallError(Status.DEADLINE_EXCEEDED, reason, is_unprocessed=not self.is_begun))

    def on_reset(self, code: int) -> None:
        if code == ErrorCode.REFUSED_STREAM and self.head is None:
            self.on_refused()
        elif code == ErrorCode.CANCEL and self._is_late():
            self.on_deadline()  # the server watches it too; grpc-go then sends nothing else
        else:
            self.end(error_of_reset(code))

    def _is_late(self) -> bool:
        return self.expires_s is not None and self._channel.loop.time() >= self.expires_s

    def on_lost(self, reason: str) -> None:
        self.end(CallError(Status.UNAVAILABLE, f"{self._channel.address}: {reason}"))
