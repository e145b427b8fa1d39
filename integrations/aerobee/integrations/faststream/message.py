"""A message in FastStream's hands, and what the application says about it.

Owns: the answer, which is given once. FastStream acknowledges, rejects or gives back a message at
any time while it handles it; our listener answers when that is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pydantic
from fast_depends.exceptions import ValidationError
from faststream import BaseMiddleware
from faststream._internal.basic_types import AsyncFuncAny, DecodedMessage
from faststream.exceptions import HandlerException, NackMessage, RejectMessage
from faststream.message import StreamMessage, decode_message

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.answers import Answer, Reject, RetryLater
from aerobee.consumer_client.typed import CONTENT_TYPE

CORRELATION_ID = "correlation_id"
REPLY_TO = "reply_to"
REASON_LENGTH_MAX = 300


class Delivery:
    """A received message: what FastStream calls the raw one."""

    def __init__(
        self,
        message: ReceivedMessage,
        settle: Callable[[Answer | None], Awaitable[None]] | None = None,
    ) -> None:
        """`settle`: tells the broker at once; None: who made it looks at `answer` in the end."""
        self.message = message
        self.is_settled = False
        self.answer: Answer | None = None
        """What was said, once it is settled; None: success."""
        self.failure: Exception | None = None
        """What its handler raised."""
        self._settle = settle

    async def settle(self, answer: Answer | None) -> None:
        """The first answer counts."""
        if not self.is_settled:
            self.is_settled, self.answer = True, answer
            if self._settle is not None:
                await self._settle(answer)

    def reason(self, given: str) -> str:
        if given or self.failure is None:
            return given
        return f"{type(self.failure).__name__}: {self.failure}"[:REASON_LENGTH_MAX]


class AerobeeMessage(StreamMessage[Delivery]):
    """A message as handlers see it. `raw_message.message` is the `ReceivedMessage`."""

    async def ack(self) -> None:
        """It is done."""
        await self.raw_message.settle(None)
        await super().ack()

    async def nack(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        """It comes again, as another attempt; `after`: see `RetryLater`."""
        answer = RetryLater(self.raw_message.reason(reason), after=after)
        await self._answer(answer)
        await super().nack()

    async def reject(self, reason: str = "") -> None:
        """It is a dead letter."""
        await self._answer(Reject(self.raw_message.reason(reason) or "rejected"))
        await super().reject()

    async def _answer(self, answer: Answer) -> None:
        answer.__cause__ = self.raw_message.failure
        await self.raw_message.settle(answer)


async def parse(raw: Delivery) -> AerobeeMessage:
    """FastStream's view of a received message."""
    message = raw.message
    headers = dict(message.properties)
    content_type = headers.pop(CONTENT_TYPE, None)
    correlation_id = headers.pop(CORRELATION_ID, None)
    return AerobeeMessage(
        raw,
        message.body,
        headers=headers,
        reply_to=headers.pop(REPLY_TO, ""),
        content_type=content_type,
        correlation_id=correlation_id or message.message_id,
        message_id=message.message_id,
    )


async def decode(message: StreamMessage[Any]) -> DecodedMessage:
    """Raises Reject: the body is not what its content type says."""
    try:
        return decode_message(message)
    except ValueError as error:
        raise Reject(f"the body is no {message.content_type}") from error


class Answers(BaseMiddleware[Any, Any]):
    """Lets handlers raise `RetryLater` and `Reject`, and remembers what else they raise.

    A body that the handler's type refuses is rejected: trying again would not help.
    """

    async def consume_scope(self, call_next: AsyncFuncAny, msg: StreamMessage[Any]) -> Any:
        """FastStream logs its own exceptions as choices, not as errors."""
        assert isinstance(msg, AerobeeMessage), "the parser of this broker made it"
        delivery = msg.raw_message
        try:
            return await call_next(msg)
        except RetryLater as answer:
            await delivery.settle(answer)
            delivery.failure = answer
            raise NackMessage from answer
        except Reject as answer:
            await delivery.settle(answer)
            delivery.failure = answer
            raise RejectMessage from answer
        except HandlerException:
            raise
        except Exception as error:
            delivery.failure = error
            if not _is_of_the_body(error):
                raise
            await msg.reject(f"the body is refused: {_in_a_line(error)}")
            raise RejectMessage from error


def _is_of_the_body(error: Exception) -> bool:
    """Whether the value was refused before the handler was called. A handler may raise the same
    error about another value."""
    if not isinstance(error, ValidationError | pydantic.ValidationError):
        return False
    places, frame = [""], error.__traceback__
    while frame is not None:
        places.append(str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.tb_next
    return [place for place in places if not place.startswith("pydantic")][-1] == "fast_depends"


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:REASON_LENGTH_MAX]
