"""Who may make a call, as the border of a server asks; and streams that end when they may no more.

The rules are `aerobee.access`, and so is who pays for what a call uses; nothing here knows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Protocol

from aerobee.grpc_core.method import Style
from aerobee.runtime.errors import AerobeeError, InvalidArgument

STREAMS_PER_TURN = 100
"""This many are judged again in one turn of the event loop."""


class Act(Protocol):
    """Something that is to be known afterwards, while it is done."""

    def answered(self, answer: Any) -> None:
        """What will be the answer, if all goes well."""
        ...


class Visit(Protocol):
    """One call that was let in."""

    def check(self, request: Any) -> None:
        """Whether it may have what a request, or one frame of a stream, asks for. Raises
        AerobeeError."""
        ...

    def check_again(self) -> None:
        """The same for all that it was allowed, after a change of the rules. Raises
        AerobeeError."""
        ...

    def enter(self) -> None:
        """What runs from here on, until `leave`, works for this call."""
        ...

    def leave(self) -> None: ...

    def enter_stream(self) -> None:
        """The same of a call that lasts, and has a task of its own."""
        ...

    def leave_stream(self) -> None:
        """It is over, with all that it had."""
        ...

    def act(self, request: Any) -> AbstractAsyncContextManager[Act]:
        """Within this block the call does what it does; its answer comes after it. None: requests
        stream. Raises AerobeeError on both ends: what is done could not be recorded."""
        ...


class MethodGuard(Protocol):
    @property
    def is_act(self) -> bool:
        """Some of its calls are acts."""
        ...

    @property
    def is_judged_again(self) -> bool:
        """A call with one answer that may wait for what it reads."""
        ...

    def admit(self, context: Any) -> Visit:
        """Raises AerobeeError."""
        ...


class CallGuard(Protocol):
    """Of one server."""

    def method(self, path: str) -> MethodGuard | None:
        """None: anyone may call it. Raises InvalidArgument: nothing is stated for it."""
        ...

    def on_change(self, listener: Callable[[], None]) -> None:
        """Tell of each change of the rules."""
        ...


class OpenVisit:
    """A call that lasts, in the task that works for it. To be used with `with`: if its rights end,
    so does the block, by the error that says so."""

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
    """The calls of one server that last."""

    def __init__(self, guard: CallGuard) -> None:
        self.open: set[OpenVisit] = set()
        self._waiting: list[OpenVisit] = []
        guard.on_change(self._judge_all)

    def _judge_all(self) -> None:
        is_idle = not self._waiting
        # What waits from an earlier change is judged by the newest rules, too.
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
    """A context whose requests are checked as they are read."""

    __slots__ = ("_context", "_end", "_visit", "write", "write_at_once")

    def __init__(self, context: Any, visit: Visit, end: object) -> None:
        """`end` is what `read` gives after the last request."""
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
    """The requests of a stream, each checked when it comes."""
    async for request in requests:
        visit.check(request)
        yield request


def guarded(behaviour: Callable[..., Any], guard: MethodGuard, style: Style) -> Callable[..., Any]:
    """The same behaviour, of calls with one request and one answer, for those who may."""
    if guard.is_act:
        return _recorded(behaviour, guard, style)

    def admitted(request: Any, context: Any) -> Visit:
        visit = guard.admit(context)
        visit.check(request)
        return visit

    def at_once(request: Any, context: Any) -> Any:
        admitted(request, context)
        return behaviour(request, context)

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
    """The same of acts, whose answers wait until they are recorded."""
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
    """The same of calls that stream. `end` is what a context reads after the last request."""

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
