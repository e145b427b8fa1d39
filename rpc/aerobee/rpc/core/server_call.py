"""One call that a server serves: gRPC over HTTP/2, `Request`; its answer is in `answering`.

Owns: the state of the call. A request that arrives whole in one frame goes to its handler without a
task or timer of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from aerobee.rpc.core import frames, hpack
from aerobee.rpc.core.answering import AnsweringStream
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.generated_answers import send_each
from aerobee.rpc.core.inbox import PREFIX_BYTES, Inbox
from aerobee.rpc.core.limits import Limit
from aerobee.rpc.core.metadata import metadata_of
from aerobee.rpc.core.method import Method, Style
from aerobee.rpc.core.request_head import BAD_TIMEOUT, NOT_GRPC, RequestHead
from aerobee.rpc.core.status import Metadata, RpcError, Status

if TYPE_CHECKING:
    from aerobee.rpc.core.server_connection import ServerConnection

_UNSUPPORTED_MEDIA: Final = hpack.encode([(b":status", b"415"), (b"content-type", b"text/plain")])
_COPIES: Final = 2
"""The bytes, and what was parsed of them."""
_COUNTED_BYTES_MIN: Final = 16 << 10
"""Smaller requests in the hands of handlers are not counted: these have less than their calls."""
_WORDS_415: Final = b"only application/grpc is served here\n"


class ServerCall(AnsweringStream):
    """What handlers and interceptors see of a call; also an async iterator over its requests."""

    __slots__ = (
        "_handed_bytes",
        "_is_intercepted",
        "_left_bytes",
        "_task",
        "began_s",
        "expires_s",
        "note",
        "request_bytes",
    )

    def __init__(self, connection: ServerConnection, stream_id: int, head: RequestHead) -> None:
        # A copy of Stream.__init__, without the cost of a function call: this runs for each call.
        self.connection = self.server_connection = connection
        self.stream_id = stream_id
        self.send_window = connection.peer_window_bytes
        self.receive_window = connection.stream_window_bytes
        self.outbox = self.inbox = None
        self.is_remote_closed = self.is_closed = False
        self.head = head
        self.method = head.method
        self.began_s = connection.received_s
        """When its header block arrived, by the server's clock."""
        self.expires_s: float | None = None
        self.note: Any = None
        """Whatever an interceptor stores with the call."""
        self._handed_bytes = 0
        """Size of the large request that the handler has, in the account of the connection."""
        self._left_bytes = head.content_length
        self._is_head_sent = False
        self._is_special = head.may_compress
        self._is_intercepted = False
        self.request_bytes = 0
        """Size of the request read last, if requests are streamed."""
        """The interceptor's `began` was called."""
        self._is_over = False
        self._deadline = None
        self._task: asyncio.Task[None] | None = None
        self._initial_metadata = b""
        self._trailers = ()

    # ----------------------------------------------------------------------- what handlers ask

    @property
    def path(self) -> str:
        """`/package.Service/Method`."""
        return self.head.path.decode("latin-1")

    @property
    def peer(self) -> str:
        """The client's address, in gRPC's notation."""
        return self.connection.peer

    @property
    def listener(self) -> str:
        """The server's name for the address that the client connected to."""
        return self.server_connection.listener

    @property
    def metadata(self) -> Metadata:
        """The metadata that the client sent. Computed on each access: handlers read it once, and
        waiting calls would hold it.

        Raises:
            RpcError: INTERNAL, a binary value cannot be read.
        """
        return metadata_of(self.head.fields)

    def metadata_named(self, names: Mapping[bytes, str]) -> Mapping[str, str]:
        """Of the metadata, the texts with these names. Raises as `metadata`."""
        return self.head.named(names)

    @property
    def is_over(self) -> bool:
        """It was answered or cancelled, or its client is gone."""
        return self._is_over

    def peer_certificate(self) -> dict[str, Any] | None:
        """The content of the client's certificate, if TLS asked for one."""
        transport = self.connection.transport
        return transport.get_extra_info("peercert") if transport is not None else None

    @property
    def is_encrypted(self) -> bool:
        """The client speaks TLS."""
        transport = self.connection.transport
        return transport is not None and transport.get_extra_info("ssl_object") is not None

    def time_remaining_s(self) -> float | None:
        """Time until the client gives up; None: it set no deadline."""
        if self.expires_s is None:
            return None
        return max(0.0, self.expires_s - self.connection.now())

    # ---------------------------------------------------------------------------- the request

    def open(self, end_stream: bool) -> None:
        """The header block has arrived; nothing else yet."""
        head, method = self.head, self.method
        self.is_remote_closed = end_stream
        if head.flaw == NOT_GRPC:
            self._open_refused(end_stream)
            return
        if method is None:
            self._end(RpcError(Status.UNIMPLEMENTED, f"no method {self.path} is served here"))
            return
        if head.flaw == BAD_TIMEOUT:
            self._end(RpcError(Status.INTERNAL, "grpc-timeout is malformed"))
            return
        interceptor = self.server_connection.interceptor
        if head.timeout_s is not None:
            self.expires_s = self.began_s + head.timeout_s
        if interceptor is not None:
            self._is_intercepted = True
            try:
                interceptor.began(self)
            except RpcError as error:
                self._end(error)
                return
        if method.streams_requests:
            self._open_inbox(self.connection.limits.streaming_window_bytes)
            self._spawn(method, self)
        elif end_stream:
            self._end(RpcError(Status.INTERNAL, "the request has no message"))

    def receive_data(self, data: bytes, start: int, end: int, end_stream: bool) -> None:
        size = end - start - PREFIX_BYTES
        connection = self.server_connection
        if (
            end_stream
            and self.head.is_plain
            and self.inbox is None
            and size >= 0
            and data[start] == 0
            and int.from_bytes(data[start + 1 : start + PREFIX_BYTES], "big") == size
            and size <= connection.limits.message_bytes_max
            and connection.has_room
        ):
            self.is_remote_closed = True
            self.start(data[start + PREFIX_BYTES : end])
        else:
            self._receive_part(data, start, end, end_stream)

    def _receive_part(self, data: bytes, start: int, end: int, end_stream: bool) -> None:
        """A message in parts, one of several, or an incomplete one."""
        if self._left_bytes is not None:
            self._left_bytes -= end - start
            if self._left_bytes < 0 or (end_stream and self._left_bytes):
                self.connection.fail_stream(self, ErrorCode.PROTOCOL_ERROR)
                return
        if self.head.flaw == NOT_GRPC:
            self._open_refused(end_stream)
            return
        if self._is_over:
            self.is_remote_closed = end_stream  # already answered: the answer waits for a window
            return
        if self.inbox is None:
            self._open_inbox()
        try:
            inbox = self.feed(data, start, end)
        except RpcError as error:
            self._refuse(error)
            return
        self.is_remote_closed = end_stream
        assert self.method is not None, "calls of other methods have ended"
        if not self.method.streams_requests:
            self._receive_single(inbox, end_stream)
        elif inbox.messages or end_stream:
            if end_stream and inbox.is_partial:
                self._end(RpcError(Status.INTERNAL, "the last request is cut off"))
            inbox.wake()

    def _open_inbox(self, window_bytes: int = 0) -> None:
        inbox = self.open_inbox(self.head.encoding, window_bytes=window_bytes)
        method = self.method
        if method is not None and method.plain_bytes_max is not None:
            inbox.decompressed_bytes_max = min(inbox.decompressed_bytes_max, method.plain_bytes_max)
        inbox.gives_views = method is not None and method.takes_views

    def _refuse(self, error: RpcError) -> None:
        """A request is too large, or cannot be decompressed."""
        if error.status is Status.RESOURCE_EXHAUSTED:
            self.server_connection.limit_met(Limit.MESSAGE, error.message)
        self._end(error)

    def _hand(self, size: int) -> None:
        """The handler has a request of this size until it asks for the next, or the call ends."""
        counted = _COPIES * size if size >= _COUNTED_BYTES_MIN else 0
        if counted != self._handed_bytes:
            change, self._handed_bytes = counted - self._handed_bytes, counted
            self.connection.hold_received(change)

    def _receive_single(self, inbox: Inbox, end_stream: bool) -> None:
        if len(inbox.messages) > 1:
            self._end(RpcError(Status.INTERNAL, "more than one request message"))
        elif end_stream:
            if inbox.is_partial or not inbox.messages:
                self._end(RpcError(Status.INTERNAL, "the request is cut off"))
            else:
                self.server_connection.dispatch(self)
        elif inbox.messages and not inbox.is_partial and not self.receive_window:
            # Nothing more may come, but hyper before version 1 says so only while it could send
            # another byte.
            self.receive_window = 1
            self.connection.write(frames.window_update(self.stream_id, 1))

    def receive_trailers(self) -> None:
        """A header block at the end of the request, which has no meaning in gRPC."""
        self.receive_data(b"", 0, 0, True)

    def _open_refused(self, end_stream: bool) -> None:
        """HTTP, but not gRPC: answered once the request is complete."""
        self.is_remote_closed = end_stream
        if not end_stream:
            return
        connection = self.connection
        self._is_over = True
        connection.send_headers(self.stream_id, _UNSUPPORTED_MEDIA, end_stream=False)
        self._queue(_WORDS_415)
        self.finish_sending(frames.frame(frames.DATA, frames.END_STREAM, self.stream_id))

    # ---------------------------------------------------------------------------- the handler

    def start(self, message: bytes | None) -> None:
        """The request is complete. None: it is in the inbox, and is decompressed only now."""
        if self._is_over:
            return
        method = self.method
        assert method is not None, "calls of other methods have ended"
        if method.streams_answers and self._has_to_wait(message):
            return
        if message is None:
            try:
                message = self.take(0)
            except RpcError as error:
                self._refuse(error)
                return
            self._hand(len(message))
            if self._is_over:  # all memory is used, and the connection was ended
                return
        try:
            request = method.deserialize(message) if method.deserialize is not None else message
            if method.style is Style.SYNCHRONOUS:
                answer = method.handler(request, self)
                self.finish_bytes(
                    method.serialize(answer) if method.serialize is not None else answer
                )
            elif method.style is Style.COMPLETION:
                rest = method.handler(request, self)
                if rest is not None:
                    self._run_task(self._complete(rest))
                elif not self._is_over:
                    self._arm()
            else:
                self._spawn(method, request)
        except RpcError as error:
            self._end(error)
        except Exception as bug:
            self._bug(bug)

    def _has_to_wait(self, message: bytes | None) -> bool:
        """For its client to read other answers, or for its turn; it is then started again."""
        connection = self.server_connection
        if connection.park_stream(self, message):
            return True
        if not connection.server.beginnings.has_to_wait(self, message):
            return False
        if message is not None:
            self._hand(len(message))
        return True

    def _arm(self) -> None:
        timeout_s = self.head.timeout_s
        if timeout_s is not None and self._deadline is None:
            self._deadline = self.server_connection.server.deadlines.add(self, timeout_s)

    def _spawn(self, method: Method, request: Any) -> None:
        run = self._generate if method.style is Style.GENERATOR else self._run
        self._run_task(run(method, request))

    def _run_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self.connection.loop.create_task(work)
        self.server_connection.server.tasks.add(self._task)
        self._arm()

    async def _complete(self, rest: Callable[[], Awaitable[None]]) -> None:
        try:
            await rest()
        except BaseException as error:
            self._failed(error)
        finally:
            self._forget_task()

    async def _run(self, method: Method, request: Any) -> None:
        try:
            answer = await method.handler(request, self)
            if method.streams_answers:
                self._end(None)
            else:
                self.finish(answer)
        except BaseException as error:
            self._failed(error)
        finally:
            self._forget_task()

    async def _generate(self, method: Method, request: Any) -> None:
        try:
            await send_each(method.handler(request, self), self)
            self._end(None)
        except BaseException as error:
            self._failed(error)
        finally:
            self._forget_task()

    def _failed(self, error: BaseException) -> None:
        """A handler's task ends with an exception, which nothing else handles."""
        if isinstance(error, RpcError):
            self._end(error)
        elif isinstance(error, asyncio.CancelledError):
            self._end(RpcError(Status.CANCELLED, "the server has cancelled the call"))
        elif isinstance(error, Exception):
            self._bug(error)
        else:
            self._end(RpcError(Status.UNKNOWN))
            raise error

    def _forget_task(self) -> None:
        self.server_connection.server.tasks.discard(self._task)
        self._task = None

    def _bug(self, error: Exception) -> None:
        if not self._is_over:
            self.server_connection.server.on_bug(self, error)
        self._end(RpcError(Status.UNKNOWN, "the server failed by a bug of its own"))

    # ------------------------------------------------------------------------ further requests

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        request = await self.read()
        if request is None:
            raise StopAsyncIteration
        return request

    async def read(self) -> Any:
        """The next of several requests; None after the last.

        Raises:
            RpcError: CANCELLED, the call has ended; or what `deserialize` raises.
        """
        self._hand(0)
        try:
            message = await self.next_message(self.connection.limits.streaming_window_bytes)
        except RpcError as error:
            self._refuse(error)
            raise
        if message is not None:
            self._hand(len(message))
        if self._is_over:
            raise RpcError(Status.CANCELLED, "the call has ended")
        if message is None:
            return None
        self.request_bytes = len(message)
        assert self.method is not None, "calls of other methods have ended"
        deserialize = self.method.deserialize
        return message if deserialize is None else deserialize(message)

    # ---------------------------------------------------------------------------------- ending

    def on_blocked(self) -> None:
        if self.method is not None and self.method.streams_answers:
            self.server_connection.set_apart(self)

    def release(self) -> None:
        self.server_connection.take_back(self)
        self._hand(0)
        super().release()

    def _over(self, status: Status) -> None:
        self._is_over = True
        if self._handed_bytes:
            self._hand(0)
        if self._deadline is not None:
            self._deadline.discard(self)
            self._deadline = None
        interceptor = self.server_connection.interceptor
        if interceptor is not None and self._is_intercepted:
            interceptor.ended(self, status, self.connection.now() - self.began_s)

    def on_deadline(self) -> None:
        self._deadline = None
        self._end(RpcError(Status.DEADLINE_EXCEEDED, "the call's deadline has passed"))
        self._cancel()

    def on_reset(self, code: int) -> None:
        if not self._is_over:
            self._over(Status.CANCELLED)
        self._cancel()

    def on_lost(self, reason: str) -> None:
        self.on_reset(ErrorCode.CANCEL)

    def _cancel(self) -> None:
        if self._task is not None:
            # A task cancelled before its first step never reaches the code that forgets it.
            self._task.add_done_callback(self.server_connection.server.tasks.discard)
            self._task.cancel()
