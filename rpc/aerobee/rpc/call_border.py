"""What happens around every call that a server serves, on either engine.

Owns: the order of steps. The request is read within its limits, log lines get the call's ids, the
handler runs, its time is measured, and a typed error is answered in the protocol's way. Any other
exception of a handler is a bug: it is logged with its traceback and answered as INTERNAL without
details.

Before the handler runs, the server's guard, if any, decides whether the call proves who makes it
and whether that caller may do what the call asks for. For streams it decides on each request, and
ends the stream once it is no longer allowed.

A protocol reports errors in one of two ways: it ends the call with a gRPC status, or the call
succeeds with an answer that contains the error. This is decided for each method.

A single request that cannot be read is answered with that error, and the servicer does not run. If
requests are streamed, the servicer's read raises the error.

Only calls with a single answer are timed: a stream lasts as long as its client wants.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError

from aerobee.rpc.call_guard import CallGuard, GuardedStreams, Visit, guarded, guarded_stream
from aerobee.rpc.core.method import Style
from aerobee.rpc.core.status import RpcError, Status
from aerobee.rpc.request_limits import RequestLimits, RequestReader
from aerobee.rpc.served_method import OpenCall, ServedMethod, style_of
from aerobee.runtime.call_context import CURRENT_CALL, RequestIds, ids_from
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, InvalidArgument, error_name
from aerobee.runtime.log import log_event
from aerobee.runtime.task_groups import sole_cause

SUCCESS = "success"
CANCELLED = "cancelled"
INTERNAL = "internal"

E = TypeVar("E", bound=Exception)

Read = Callable[[bytes], Any]
Rest = Callable[[], Awaitable[Any]]
"""What a call in completion style still has to do, run in a task."""
SayError = Callable[[AerobeeError], RpcError]
"""How a protocol ends a call with an error."""
AnswerError = Callable[[AerobeeError, Any], Sequence[Any]]
"""The answers that report an error, for a protocol whose calls succeed even then: one answer for a
unary method, or those that end a stream. Gets the request, or None if it could not be read or if
requests are streamed."""

log = logging.getLogger(__name__)


class RpcObserver(Protocol):
    """Records how long calls took."""

    def answered(self, method: str, outcome: str, elapsed_s: float) -> None:
        """`method` is the name within its service; `outcome` is SUCCESS or an error in
        snake_case."""
        ...


class _ServedCall:
    """A call that a servicer works on; its metadata is read only when something is logged."""

    __slots__ = ("_context", "_name")

    def __init__(self, name: str, context: Any) -> None:
        self._name = name
        self._context = context

    def ids(self) -> RequestIds:
        return ids_from(self._context.invocation_metadata() or ())

    def fields(self) -> Mapping[str, object]:
        return {"call": self._name, "peer": self._context.peer(), **self.ids().fields()}


class CallBorder:
    """Wraps the methods of one server, each once, when it is added."""

    def __init__(
        self,
        say_error: SayError,
        clock: Clock,
        *,
        limits: tuple[RequestLimits, ...],
        observer: RpcObserver | None,
        answer_errors: Mapping[str, AnswerError] = MappingProxyType({}),
        guard: CallGuard | None = None,
    ) -> None:
        """A method without `limits` refuses only unreadable requests. `answer_errors` by path, for
        methods that do not use `say_error`. Without a `guard` everyone may do everything."""
        self._say_error = say_error
        self._now = clock.monotonic_s
        self._answer_errors = answer_errors
        self._limits = limits
        self._observer = observer
        self._guard = guard
        self._streams = None if guard is None else GuardedStreams(guard)

    def served(self, path: str, handler: Any) -> ServedMethod | None:
        """From grpcio's handler of a method; None if the servicer does not implement it."""
        name = path.rpartition("/")[2]
        failure = _Failure(
            self._say_error,
            self._answer_errors.get(path),
            requests_stream=handler.request_streaming,
        )
        behaviour = (
            handler.unary_unary
            or handler.unary_stream
            or handler.stream_unary
            or handler.stream_stream
        )
        style = style_of(behaviour)
        if style is None:
            return None
        guard = None if self._guard is None else self._guard.method(path)
        if guard is not None and self._streams is not None:
            if handler.request_streaming or handler.response_streaming:
                behaviour = guarded_stream(
                    behaviour,
                    guard,
                    style,
                    self._streams,
                    streams_requests=handler.request_streaming,
                    end=grpc.aio.EOF,
                )
            else:
                behaviour = guarded(behaviour, guard, style)
        if style is Style.SYNCHRONOUS:
            served: Callable[..., Any] = self._at_once(name, behaviour, failure)
        elif style is Style.COMPLETION:
            served = self._later(name, behaviour, failure)
        elif style is Style.GENERATOR:
            served = self._generated(name, behaviour, failure)
        elif handler.response_streaming:
            served = self._conversed(name, behaviour, failure)
        else:
            served = self._answered(name, behaviour, failure)
        reader = next(filter(None, (limits.reader(path) for limits in self._limits)), None)
        read = _reading(reader, handler.request_deserializer)
        return ServedMethod(
            path,
            served,
            style,
            handler.request_streaming,
            handler.response_streaming,
            read if handler.request_streaming else _error_as_request(read),
            handler.response_serializer,
            None if reader is None else reader.bytes_max,
            takes_views=(
                reader is not None and reader.read_view is not None and handler.request_streaming
            ),
        )

    # ----------------------------------------------------------------------- one answer, timed

    def _at_once(
        self, name: str, behaviour: Callable[..., Any], failure: _Failure
    ) -> Callable[..., Any]:
        now = self._now

        def answered(request: Any, context: Any) -> Any:
            began_s = now()
            before = _begin(name, context)
            outcome = SUCCESS
            try:
                if isinstance(request, AerobeeError):
                    raise request
                return behaviour(request, context)
            except Exception as error:
                cause, outcome = failure.cause_of(error)
                return failure.answers(cause, request)[0]
            finally:
                CURRENT_CALL.reset(before)
                self.tell(name, outcome, began_s)

        return answered

    def _later(
        self, name: str, behaviour: Callable[..., Any], failure: _Failure
    ) -> Callable[..., Any]:
        now = self._now

        async def complete(rest: Rest, context: Any, reply: Reply) -> None:
            _begin(name, context)
            try:
                reply.answer(await rest())
            except Exception as error:
                reply.refuse(error)
            except asyncio.CancelledError:
                reply.cancelled()
                raise

        def begun(request: Any, context: Any, call: OpenCall) -> Rest | None:
            reply = Reply(self, failure, name, call, now(), request)
            before = _begin(name, context)
            try:
                if isinstance(request, AerobeeError):
                    reply.refuse(request)
                    return None
                rest = behaviour(request, context, reply)
                return None if rest is None else partial(complete, rest, context, reply)
            except Exception as error:
                reply.refuse(error)
                return None
            finally:
                CURRENT_CALL.reset(before)

        return begun

    def _answered(
        self, name: str, behaviour: Callable[..., Any], failure: _Failure
    ) -> Callable[..., Any]:
        now = self._now

        async def answered(request: Any, context: Any) -> Any:
            began_s = now()
            _begin(name, context)
            outcome = CANCELLED
            try:
                if isinstance(request, AerobeeError):
                    raise request
                answer = await behaviour(request, context)
                outcome = SUCCESS
                return answer
            except Exception as error:
                cause, outcome = failure.cause_of(error)
                return failure.answers(cause, request)[0]
            finally:
                self.tell(name, outcome, began_s)

        return answered

    def tell(self, name: str, outcome: str, began_s: float) -> None:
        """Record the end of a call with a single answer."""
        if self._observer is not None:
            self._observer.answered(name, outcome, self._now() - began_s)

    # ------------------------------------------------------------------------- calls that stream

    def _generated(
        self, name: str, behaviour: Callable[..., Any], failure: _Failure
    ) -> Callable[..., Any]:
        async def generated(request: Any, context: Any) -> AsyncIterator[Any]:
            _begin(name, context)
            try:
                if isinstance(request, AerobeeError):
                    raise request
                async with aclosing(behaviour(request, context)) as answers:
                    async for answer in answers:
                        yield answer
            except Exception as error:
                cause, _ = failure.cause_of(error)
                for answer in failure.answers(cause, request):
                    yield answer

        return generated

    def _conversed(
        self, name: str, behaviour: Callable[..., Any], failure: _Failure
    ) -> Callable[..., Any]:
        """A coroutine that writes its answers itself."""

        async def conversed(requests: Any, context: Any) -> None:
            _begin(name, context)
            try:
                if isinstance(requests, AerobeeError):
                    raise requests
                await behaviour(requests, context)
            except Exception as error:
                cause, _ = failure.cause_of(error)
                for answer in failure.answers(cause, requests):
                    await context.write(answer)

        return conversed


# ------------------------------------------------------------------------------------ errors


class _Failure:
    """How the calls of one method fail."""

    __slots__ = ("_answer_error", "_requests_stream", "_say_error")

    def __init__(
        self, say_error: SayError, answer_error: AnswerError | None, *, requests_stream: bool
    ) -> None:
        self._say_error = say_error
        self._answer_error = answer_error
        self._requests_stream = requests_stream

    @property
    def needs_request(self) -> bool:
        """Whether the answers may depend on the request."""
        return self._answer_error is not None

    def cause_of(self, error: Exception) -> tuple[AerobeeError | RpcError, str]:
        """The error to report, and the name of the outcome. Re-raises errors of the engine."""
        cause = sole_cause(error)
        if isinstance(cause, AerobeeError):
            name = type(cause).__name__
            log_event(log, "call refused", level=logging.DEBUG, code=name, reason=cause)
            return _alone(cause), error_name(cause)
        if isinstance(cause, RpcError):
            return _alone(cause), cause.status.name.lower()
        if isinstance(cause, grpc.aio.InternalError):
            # A write failed because the client is gone, which ends a call like a cancellation.
            # grpcio would log it as a bug of the servicer.
            raise asyncio.CancelledError from None
        if isinstance(cause, grpc.aio.BaseError):
            raise cause  # gRPC's own error, for a call that has already ended
        log_event(log, "a servicer failed because of a bug", level=logging.ERROR, error=cause)
        words = "the server failed because of a bug of its own; see its log"
        if self._answer_error is not None:
            return AerobeeError(words), INTERNAL
        return RpcError(Status.INTERNAL, words), INTERNAL

    def answers(self, cause: AerobeeError | RpcError, request: Any) -> Sequence[Any]:
        """The answers that end the call. Raises RpcError if it ends with a status."""
        if isinstance(cause, RpcError):
            raise RpcError(
                cause.status, cause.message, details=cause.details, trailers=cause.trailers
            ) from None
        if self._answer_error is None:
            raise self._say_error(cause) from None
        is_one = not (self._requests_stream or isinstance(request, AerobeeError))
        return self._answer_error(cause, request if is_one else None)


class Reply:
    """The answer of a call, given later, exactly once."""

    __slots__ = ("_began_s", "_border", "_call", "_failure", "_name", "_request", "_visit")

    def __init__(
        self,
        border: CallBorder,
        failure: _Failure,
        name: str,
        call: OpenCall,
        began_s: float,
        request: Any,
    ) -> None:
        self._border = border
        self._failure = failure
        self._name = name
        self._call = call
        self._began_s = began_s
        self._request = request if failure.needs_request else None
        self._visit: Visit | None = None

    def judge_again(self, visit: Visit) -> None:
        """Check again before the answer whether the call is allowed it."""
        self._visit = visit

    def answer(self, message: Any) -> None:
        """It succeeded. Does nothing if the client is gone."""
        if self._visit is not None:
            try:
                self._visit.check_again()
            except AerobeeError as error:
                self.refuse(error)
                return
        self._finish(message, SUCCESS)

    def refuse(self, error: Exception) -> None:
        """It failed, as if the servicer had raised `error`."""
        cause, outcome = self._failure.cause_of(error)
        try:
            (message,) = self._failure.answers(cause, self._request)
        except RpcError as refusal:
            self._tell(outcome)
            self._call.abort(refusal.status, refusal.message, trailers=refusal.trailers)
        else:
            self._finish(message, outcome)

    def cancelled(self) -> None:
        """There will be no answer."""
        self._tell(CANCELLED)

    def _finish(self, message: Any, outcome: str) -> None:
        self._tell(outcome)
        self._call.finish(message)

    def _tell(self, outcome: str) -> None:
        outcome = CANCELLED if self._call.is_over else outcome
        self._border.tell(self._name, outcome, self._began_s)


def _begin(name: str, context: Any) -> Any:
    """From now on, log lines name this call; returns the token that undoes it."""
    before = CURRENT_CALL.set(_ServedCall(name, context))
    if log.isEnabledFor(logging.DEBUG):
        log_event(log, "call", level=logging.DEBUG)
    return before


# ------------------------------------------------------------------------------- reading requests


def _reading(reader: RequestReader | None, parse: Read | None) -> Read | None:
    """`parse` is None if the servicer takes bytes."""
    if reader is not None:
        return reader.read if parse is not None else _checked_bytes(reader)
    if parse is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            raise InvalidArgument("the bytes of the request cannot be read") from None

    return read


def _checked_bytes(reader: RequestReader) -> Read:
    def read(data: bytes) -> bytes:
        reader.check(data)
        return data

    return read


def _error_as_request(read: Read | None) -> Read | None:
    """A single request is read before its servicer runs."""
    if read is None:
        return None

    def given(data: bytes) -> Any:
        try:
            return read(data)
        except AerobeeError as error:
            return _alone(error)

    return given


def _alone(error: E) -> E:
    """The error without the frames that it went through. One of them has it in a variable, so both
    would keep each other, and with them the request, until a garbage collection."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
