"""A block of code that handles one message of a pull consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.answers import Answer, Reject, RetryLater
from aerobee.consumer_client.unfinished import Unfinished
from aerobee.runtime.errors import InvalidArgument


class Processing:
    """See `PullConsumer.processing`."""

    def __init__(
        self,
        message: ReceivedMessage,
        watched: AbstractContextManager[object] | None = None,
        *,
        reject: Callable[[ReceivedMessage, Reject], Awaitable[None]],
    ) -> None:
        """`watched`: a telemetry's context around the block. `reject`: makes it a dead letter;
        raises AerobeeError.

        Raises InvalidArgument: the message does not belong to a pull consumer that counts messages
        one by one.
        """
        owner = message.in_hand[0] if hasattr(message, "in_hand") else None
        if not isinstance(owner, Unfinished):
            raise InvalidArgument(
                "processing is for messages of `poll`, and of iterating, of a pull consumer that "
                "was made with auto_commit=False"
            )
        self.message = message
        self.watched = watched or nullcontext()
        self._owner = owner
        self._reject = reject

    def begin(self) -> None:
        self._owner.begin(self.message)

    def end(self, failure: BaseException | None) -> None:
        if failure is None:
            self._owner.finish(self.message)
        else:
            self._owner.fail(self.message)

    async def answered(self, failure: BaseException | None) -> bool:
        """As `end`; returns whether the failure was an answer, which is not to be raised. Raises
        AerobeeError: the message could not be rejected, and comes again."""
        if isinstance(failure, Reject):
            try:
                await self._reject(self.message, failure)
            except BaseException as error:
                self.end(error)
                raise
            self.end(None)
        elif isinstance(failure, RetryLater) and failure.after_ms:
            self._owner.fail(self.message, waits=True)
            loop = asyncio.get_running_loop()
            loop.call_later(failure.after_ms / 1_000, self._owner.ripen, self.message)
        else:
            self.end(failure)
        return isinstance(failure, Answer)

    async def __aenter__(self) -> ReceivedMessage:
        self.begin()
        self.watched.__enter__()
        return self.message

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            self.watched.__exit__(kind, error, traceback)
        except BaseException:
            await self.answered(error)
            raise
        return await self.answered(error)
