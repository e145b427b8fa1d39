"""Who may make a call, as a server's border asks; and streams that end when they are no longer
allowed.

The rules, and who pays for what a call uses, are in `aerobee.access`, whose `guard.py` has the
classes that fit the protocols here; this file knows neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Protocol

from aerobee.rpc.core.method import Style
from aerobee.runtime.errors import AerobeeError, InvalidArgument

STREAMS_PER_TURN = 100
"""How many streams are judged again in one turn of the event loop."""


class Act(Protocol):
    """Something to be recorded, while it is being done."""

    def answered(self, answer: Any) -> None:
        """The answer that will be given if all goes well."""
        ...


class Visit(Protocol):
    """One call that was let in."""

    def check(self, request: Any) -> None:
        """Check that the call may do what a request, or one frame of a stream, asks for. Raises
        AerobeeError."""
        ...

    def check_again(self) -> None:
        """The same for everything that was allowed, after the rules have changed. Raises
        AerobeeError."""
        ...

    def enter(self) -> None:
        """What runs from here until `leave` works for this call."""
        ...

    def leave(self) -> None: ...

    def enter_stream(self) -> None:
        """The same for a long-lasting call with a task of its own."""
        ...

    def leave_stream(self) -> None:
        """It has ended; releases everything it held."""
        ...

    def act(self, request: Any) -> AbstractAsyncContextManager[Act]:
        """The call does its work within this block and answers after it. None: requests are
        streamed. Raises AerobeeError at either end: the act could not be recorded."""
        ...


class MethodGuard(Protocol):
    @property
    def is_act(self) -> bool:
        """Some of its calls are acts."""
        ...

    @property
    def is_judged_again(self) -> bool:
        """For a call with a single answer that may wait for what it reads."""
        ...

    def admit(self, context: Any) -> Visit:
        """Raises AerobeeError."""
        ...


class CallGuard(Protocol):
    """The guard of one server."""

    def method(self, path: str) -> MethodGuard | None:
        """None: anyone may call it. Raises InvalidArgument: it has no entry."""
        ...

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call back on each change of the rules."""
        ...


class OpenVisit:
    """A long-lasting call, in the task that works for it. A context manager: when the call's rights
    end, so does the block, with the matching error."""

    __slots__ = ("_cancelling", "_streams", "_task", "_visit", "_why")

    def __init__(self, streams: GuardedStreams, visit: Visit) -> None:
        self._streams = streams
        self._visit = visit
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._why: AerobeeError | None = None

    def __enter__(self) -> OpenVisit:
        self._task = asyncio.current_task()
        assert self._task is not None, "calls that last have a task"
        self._cancelling = self._task.cancelling()
        self._streams.open.add(self)
        self._visit.enter_stream()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._streams.open.discard(self)
        self._visit.leave_stream()
        if self._why is None or self._task is None:
            return
        is_ours = self._task.uncancel() <= self._cancelling
        if is_ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise self._why from None

    def judge_again(self) -> None:
        if self._why is not None:
            return
        try:
            self._visit.check_again()
        except AerobeeError as error:
            self._why = error
            if self._task is not None:
                self._task.cancel()


class GuardedStreams:
    """The long-lasting calls of one server."""

    def __init__(self, guard: CallGuard) -> None:
        self.open: set[OpenVisit] = set()
        self._waiting: list[OpenVisit] = []
        guard.on_change(self._judge_all)

    def _judge_all(self) -> None:
        is_idle = not self._waiting
        # Those waiting since an earlier change are also judged by the newest rules.
        self._waiting = list(self.open)
        if is_idle and self._waiting:
            self._judge_some()

    def _judge_some(self) -> None:
        for visit in self._waiting[:STREAMS_PER_TURN]:
            if visit in self.open:
                visit.judge_again()
        del self._waiting[:STREAMS_PER_TURN]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._judge_some)


class GuardedContext:
    """A context that checks requests as they are read."""

    __slots__ = ("_context", "_end", "_visit", "write", "write_at_once")

    def __init__(self, context: Any, visit: Visit, end: object) -> None:
        """`end` is what `read` returns after the last request."""
        self._context = context
        self._visit = visit
        self._end = end
        self.write = context.write
        write_at_once = getattr(context, "write_at_once", None)
        if write_at_once is not None:
            self.write_at_once = write_at_once

    def __getattr__(self, name: str) -> Any:
        if name == "write_at_once":
            raise AttributeError(name)
        return getattr(self._context, name)

    async def read(self) -> Any:
        request = await self._context.read()
        if request is not self._end:
            self._visit.check(request)
        return request


async def checked(requests: Any, visit: Visit) -> AsyncIterator[Any]:
    """The requests of a stream, each checked as it arrives."""
    async for request in requests:
        visit.check(request)
        yield request


def guarded(behaviour: Callable[..., Any], guard: MethodGuard, style: Style) -> Callable[..., Any]:
    """The same behaviour behind the guard, for calls with one request and one answer."""
    if guard.is_act:
        return _recorded(behaviour, guard, style)

    def admitted(request: Any, context: Any) -> Visit:
        visit = guard.admit(context)
        visit.check(request)
        return visit

    def at_once(request: Any, context: Any) -> Any:
        visit = admitted(request, context)
        visit.enter()
        try:
            return behaviour(request, context)
        finally:
            visit.leave()

    def later(request: Any, context: Any, reply: Any) -> Any:
        visit = admitted(request, context)
        if guard.is_judged_again:
            reply.judge_again(visit)
        visit.enter()
        try:
            return behaviour(request, context, reply)
        finally:
            visit.leave()

    async def answered(request: Any, context: Any) -> Any:
        visit = admitted(request, context)
        visit.enter()
        try:
            answer = await behaviour(request, context)
        finally:
            visit.leave()
        if guard.is_judged_again:
            visit.check_again()
        return answer

    if style is Style.SYNCHRONOUS:
        return at_once
    return later if style is Style.COMPLETION else answered


def _recorded(
    behaviour: Callable[..., Any], guard: MethodGuard, style: Style
) -> Callable[..., Any]:
    """The same for acts, whose answers wait until the act is recorded."""
    if style is not Style.COROUTINE:
        raise InvalidArgument("a method that is recorded must be a coroutine, a bug")

    async def answered(request: Any, context: Any) -> Any:
        visit = guard.admit(context)
        visit.check(request)
        visit.enter()
        try:
            async with visit.act(request) as act:
                answer = await behaviour(request, context)
                act.answered(answer)
        finally:
            visit.leave()
        return answer

    return answered


def guarded_stream(
    behaviour: Callable[..., Any],
    guard: MethodGuard,
    style: Style,
    streams: GuardedStreams,
    *,
    streams_requests: bool,
    end: object,
) -> Callable[..., Any]:
    """The same for streaming calls. `end` is what a context returns after the last request."""

    def admitted(requests: Any, context: Any) -> tuple[Visit, Any, Any]:
        visit = guard.admit(context)
        if streams_requests:
            return visit, checked(requests, visit), GuardedContext(context, visit, end)
        visit.check(requests)
        return visit, requests, context

    async def generated(requests: Any, context: Any) -> AsyncIterator[Any]:
        visit, requests, context = admitted(requests, context)
        with OpenVisit(streams, visit):
            async with aclosing(behaviour(requests, context)) as answers:
                async for answer in answers:
                    yield answer

    async def conversed(requests: Any, context: Any) -> Any:
        visit, requests, context = admitted(requests, context)
        with OpenVisit(streams, visit):
            if not guard.is_act:
                return await behaviour(requests, context)
            async with visit.act(None):
                return await behaviour(requests, context)

    if guard.is_act and style is not Style.COROUTINE:
        raise InvalidArgument("a stream that is recorded must be a coroutine, a bug")
    return generated if style is Style.GENERATOR else conversed
