"""A streaming call, as a client makes it: messages are written and read one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from aerobee.rpc.core import frames
from aerobee.rpc.core.answer_head import AnswerHead, CallError
from aerobee.rpc.core.client_call import ClientCall
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.inbox import Inbox
from aerobee.rpc.core.status import Metadata, RpcError, Status
from aerobee.rpc.core.stream import Stream

if TYPE_CHECKING:
    from aerobee.rpc.core.channel import Channel
    from aerobee.rpc.core.client_connection import ClientConnection


class StreamCall(ClientCall):
    """A call that streams requests, answers or both: one task may write while another reads.

    The caller must read it to the end or cancel it: unread data stays in memory, within the
    stream's window. A cancelled `read` or `write` leaves the call as it was.
    """

    __slots__ = ("_has_written", "_is_done_writing", "_told", "_waiters")

    def __init__(
        self,
        channel: Channel,
        head_fields: bytes,
        timeout: bytes,
        metadata: bytes,
        request: bytes | None,
        waits_for_ready: bool,
    ) -> None:
        """A `request` given here is the only one."""
        ClientCall.__init__(self, channel, head_fields, timeout, metadata, request, waits_for_ready)
        self._is_done_writing = request is not None
        self._has_written = False
        self._told: Callable[[bytes], None] | None = None
        """Gets each answer in the turn in which it arrives."""
        self._waiters: dict[asyncio.Future[None], None] = {}

    @property
    def can_repeat(self) -> bool:
        return not self.is_retried and not self._has_written

    def begin(self, connection: ClientConnection, stream_id: int) -> None:
        Stream.__init__(self, connection, stream_id)
        self.client_connection = connection
        self.is_begun = True
        connection.control.tokens = connection.control.burst
        connection.send_headers(stream_id, self.block(connection), end_stream=False)
        self.open_inbox(b"", window_bytes=connection.limits.streaming_window_bytes)
        if self.request is not None:
            self._send(self.request)
        if self._is_done_writing:
            self._send_end()
        self._wake()

    def _send(self, message: bytes) -> None:
        self.send_message(*self._channel.maybe_compressed(message))

    def _send_end(self) -> None:
        self.finish_sending(frames.frame(frames.DATA, frames.END_STREAM, self.stream_id))

    # -------------------------------------------------------------------------------- writing

    async def wait_connected(self) -> None:
        """Wait until the call has begun. What was not written before this failed cannot have
        reached the server.

        Raises:
            CallError: the call has ended.
        """
        while not self.is_begun and not self.is_over:
            await self._wait()
        if self.error is not None:
            self._raise_ended()

    async def write(self, message: bytes) -> None:
        """Hand one message to the connection, in order; waits for the connection, and while the
        server is too far behind. If it raises or is cancelled, nothing of the message was sent.

        Raises:
            CallError: the call has ended.
            ValueError: after `done_writing`.
        """
        if self._is_done_writing:
            raise ValueError("nothing can be written after done_writing")
        if not self.is_begun:
            await self.wait_connected()
        if self.outbox is not None:
            await self.sendable()
        if self.is_over:
            self._raise_ended()
        if not self.is_begun:  # refused in the meantime, and repeated
            await self.wait_connected()
        self._has_written = True
        self._send(message)

    def write_at_once(self, message: bytes) -> bool:
        """The same if it needs no waiting; otherwise returns False without doing anything. For
        callers with nothing more to write: the message does not wait for others of this turn."""
        if not self.is_begun or self.is_over or self._is_done_writing or self.outbox is not None:
            return False
        self._has_written = True
        self.send_at_once(*self._channel.maybe_compressed(message))
        return True

    def done_writing(self) -> None:
        """Tell the server that nothing more will be written."""
        if self._is_done_writing:
            return
        self._is_done_writing = True
        if self.is_begun and not self.is_over:
            self._send_end()

    # -------------------------------------------------------------------------------- reading

    async def read(self) -> bytes | None:
        """The next answer; None when the server has ended the call with OK. Only one reader at a
        time.

        Raises:
            CallError: the call ended with another status.
        """
        while True:
            inbox = self.inbox if self.is_begun else None
            if inbox is not None and inbox.messages:
                return self._taken()
            if self.is_over:
                if self.error is not None:
                    self._raise_ended()
                return None
            if inbox is None:
                await self._wait()
                continue
            inbox.reader = self.connection.loop.create_future()
            try:
                await inbox.reader
            finally:
                inbox.reader = None

    def _taken(self) -> bytes:
        try:
            return self.take(self.connection.limits.streaming_window_bytes)
        except RpcError as error:
            self.refuse_message(error)
            raise CallError(error.status, error.message) from None

    async def read_each(self, told: Callable[[bytes], None]) -> None:
        """Pass each answer to `told` as soon as it arrives, without a task in between; return when
        the server has ended the call with OK. Exceptions from `told` are raised here.

        Raises:
            CallError: the call ended with another status.
        """
        self._told = told
        try:
            while (message := await self.read()) is not None:
                told(message)
        finally:
            self._told = None

    def _tell(self, inbox: Inbox) -> None:
        reader = inbox.reader
        if self._told is None or reader is None or reader.done():
            inbox.wake()
            return
        try:
            while inbox.messages and self._told is not None:
                self._told(self._taken())
        except Exception as error:
            if reader.done():
                raise
            reader.set_exception(error)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        message = await self.read()
        if message is None:
            raise StopAsyncIteration
        return message

    async def read_only(self) -> bytes:
        """The one answer of a call that only streams requests; nothing more can be written.

        Raises:
            CallError: the call ended with another status, or with another number of answers.
        """
        self.done_writing()
        message = await self.read()
        if message is not None and await self.read() is None:
            return message
        self.cancel()
        raise CallError(Status.INTERNAL, "the server did not send exactly one answer")

    async def wait_head(self) -> Metadata:
        """The initial metadata, once it has arrived; empty if the call ended without any.

        Raises:
            RpcError: INTERNAL, a binary value cannot be read.
        """
        while self.head is None and not self.is_over:
            await self._wait()
        return self.initial_metadata

    # ------------------------------------------------------------------ what the connection says

    def on_head(self, head: AnswerHead) -> None:
        assert self.inbox is not None, "a stream that has begun has one"
        self.inbox.encoding = head.encoding
        self.client_connection.has_streamed = True
        self._wake()

    def receive_data(self, data: bytes, start: int, end: int, end_stream: bool) -> None:
        if self.head is None:
            self.client_connection.fail_stream(self, ErrorCode.PROTOCOL_ERROR)
            return
        try:
            inbox = self.feed(data, start, end)
        except RpcError as error:
            self.refuse_message(error)
            return
        if end_stream:
            self.end_without_status()
        elif inbox.messages:
            self._tell(inbox)

    def stop_or_end(self, error: CallError | None) -> None:
        if error is None and self.inbox is not None and self.inbox.is_partial:
            error = CallError(Status.INTERNAL, "the server cut its last answer off")
        self.stop(error)

    def stop(self, error: CallError | None, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """What the server sent before it ended the call can still be read; if the call is ended
        here, unread answers are dropped."""
        if self.is_begun and not self.is_over and not self.is_remote_closed and self.inbox:
            self.inbox.messages = ()
        super().stop(error, code)

    def on_over(self, error: CallError | None) -> None:
        if self.is_begun and self.inbox is not None:
            self.inbox.wake()
        self._wake()

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = self._channel.loop.create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            del self._waiters[waiter]

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _raise_ended(self) -> None:
        error = self.error
        if error is None:
            error = CallError(Status.UNAVAILABLE, "the server has ended the call", is_answer=True)
        raise error.with_traceback(None)
