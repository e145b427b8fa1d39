"""A unary call, as a client makes it: one Future and two calls of `pack`, no task, timer or header
encoding of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aerobee.rpc.core import frames
from aerobee.rpc.core.answer_head import AnswerHead, CallError
from aerobee.rpc.core.client_call import ClientCall
from aerobee.rpc.core.frames import ErrorCode, pack_data_header, pack_header
from aerobee.rpc.core.inbox import PREFIX_BYTES
from aerobee.rpc.core.status import RpcError, Status
from aerobee.rpc.core.stream import Stream

if TYPE_CHECKING:
    from aerobee.rpc.core.channel import Channel
    from aerobee.rpc.core.client_connection import ClientConnection

_BLOCK_BYTES_FAST: Final = frames.FRAME_BYTES_MIN


class UnaryCall(ClientCall):
    """One request, one answer: await `answer`, which raises CallError. To abandon it, call
    `cancel`."""

    __slots__ = ("_message", "answer", "is_compressed")

    def __init__(
        self,
        channel: Channel,
        head_fields: bytes,
        timeout: bytes,
        metadata: bytes,
        request: bytes,
        waits_for_ready: bool,
    ) -> None:
        ClientCall.__init__(self, channel, head_fields, timeout, metadata, request, waits_for_ready)
        self.answer: asyncio.Future[bytes] = channel.loop.create_future()
        self.is_compressed = 0
        self._message: bytes | None = None

    def begin(self, connection: ClientConnection, stream_id: int) -> None:
        Stream.__init__(self, connection, stream_id)
        self.client_connection = connection
        self.is_begun = True
        request = self.request
        assert request is not None, "a unary call has its request"
        block = self.block(connection)
        size = len(request) + PREFIX_BYTES
        block_size = len(block)
        if (
            connection.is_fast
            and size <= self.send_window
            and size <= connection.send_window
            and size <= connection.whole_bytes
            and block_size <= _BLOCK_BYTES_FAST
        ):
            connection.sent_data(size)
            self.is_local_closed = True
            connection.write_parts(
                pack_header(
                    block_size >> 8, block_size & 0xFF, frames.HEADERS, frames.END_HEADERS,
                    stream_id,
                )
                + block
                + pack_data_header(
                    size >> 8, size & 0xFF, frames.DATA, frames.END_STREAM, stream_id,
                    self.is_compressed, size - PREFIX_BYTES,
                ),
                request,
            )  # fmt: skip
        else:
            connection.send_headers(stream_id, block, end_stream=False)
            self.send_message(request, self.is_compressed)
            self.finish_sending(frames.frame(frames.DATA, frames.END_STREAM, stream_id))
        connection.control.tokens = connection.control.burst

    def receive_head(self, head: AnswerHead, end_stream: bool) -> None:
        if self.head is None:
            if head.is_plain_head and not end_stream:
                self.head = head
                return
        elif (
            end_stream
            and head.is_plain_end
            and self._message is not None
            and self.is_local_closed
            and self.inbox is None
        ):
            self._succeed(head, self._message)
            return
        ClientCall.receive_head(self, head, end_stream)

    def _succeed(self, trailers: AnswerHead, message: bytes) -> None:
        self.trailers = trailers
        self.is_remote_closed = self.is_over = True
        connection = self.client_connection
        connection.answered()
        if connection.is_draining:
            connection.close_stream(self)
        else:
            del connection.streams[self.stream_id]
            self.is_closed = True
            if self._channel.waiting:
                self._channel.on_room()
        if self.bucket is not None:
            self.bucket.discard(self)
        if not self.answer.done():
            self.answer.set_result(message)

    def receive_data(self, data: bytes, start: int, end: int, end_stream: bool) -> None:
        size = end - start - PREFIX_BYTES
        if (
            self._message is None
            and self.inbox is None
            and self.head is not None
            and size >= 0
            and data[start] == 0
            and int.from_bytes(data[start + 1 : start + PREFIX_BYTES], "big") == size
            and size <= self.connection.limits.message_bytes_max
            and not end_stream
        ):
            self._message = data[start + PREFIX_BYTES : end]
        else:
            self._receive_part(data, start, end, end_stream)

    def _receive_part(self, data: bytes, start: int, end: int, end_stream: bool) -> None:
        """A message in parts, compressed, or where none is expected."""
        if self.head is None:
            self.client_connection.fail_stream(self, ErrorCode.PROTOCOL_ERROR)
            return
        if self.inbox is None:
            self.open_inbox(self.head.encoding)
        try:
            messages = self.feed(data, start, end).messages
            if messages:
                if len(messages) > 1 or self._message is not None:
                    self.stop(CallError(Status.INTERNAL, "the server sent more than one answer"))
                    return
                self._message = self.take(0)
        except RpcError as error:
            self.refuse_message(error)
            return
        if end_stream:
            self.end_without_status()

    def stop_or_end(self, error: CallError | None) -> None:
        is_partial = self.inbox is not None and self.inbox.is_partial
        if error is None and (self._message is None or is_partial):
            what = "cut its answer off" if is_partial else "answered OK without an answer"
            error = CallError(Status.INTERNAL, f"the server {what}")
        self.stop(error)

    def on_over(self, error: CallError | None) -> None:
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
            if error.status is Status.CANCELLED and not error.is_answer:
                self.answer.exception()  # a cancelled call need not be awaited
        else:
            assert self._message is not None, "a call without an answer has an error"
            self.answer.set_result(self._message)
