"""A block of code that handles one message of a pull consumer."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.unfinished import Unfinished
from aerobee.runtime.errors import InvalidArgument


class Processing:
    """See `PullConsumer.processing`."""

    def __init__(
        self, message: ReceivedMessage, watched: AbstractContextManager[object] | None = None
    ) -> None:
        """`watched`: a telemetry's context around the block.

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

    def begin(self) -> None:
        self._owner.begin(self.message)

    def end(self, failure: BaseException | None) -> None:
        if failure is None:
            self._owner.finish(self.message)
        else:
            self._owner.fail(self.message)

    async def __aenter__(self) -> ReceivedMessage:
        self.begin()
        self.watched.__enter__()
        return self.message

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.watched.__exit__(kind, error, traceback)
        finally:
            self.end(error)
