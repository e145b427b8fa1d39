"""The telemetry of clients as OpenTelemetry's spans and metrics.

For a single message, whatever is done with it is a child of the span that sent it, so that a trace
shows its whole way. For several together: a separate span, with a link to each. A message that
already carries a context keeps it: someone else created it, and the span that sends it has a link.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from itertools import islice
from typing import Any, Final, cast

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanKind, TracerProvider

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.client_core.telemetry import L, Stored, TracedMessage, outcomes
from aerobee.otel.attributes import (
    MESSAGE_ID,
    PARTITION,
    Attributes,
    common,
    destination_of,
    of_received,
    of_sent,
    partition,
)
from aerobee.otel.operation import Instruments, Operation
from aerobee.otel.trace_context import context_of, injected, span_context_of
from aerobee.runtime.clock import Clock, clock_here

LINKS_MAX: Final = 128
"""Per span: as many as the SDK keeps by default."""
RETRY_LATER: Final = "retry_later"
"""The answer of a listener that wants its messages again."""


class OpenTelemetry:
    """Pass it to clients as `telemetry`; one is enough for all of a process.

    Args:
        tracer_provider, meter_provider: where spans and metrics go; by default to those of the
            process, which do nothing until the application sets them.

    Example::

        telemetry = OpenTelemetry()
        async with Producer(telemetry=telemetry) as producer:
            await producer.send(Message("orders", b"{}"))
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._instruments = Instruments(
            version("aerobee"), clock or clock_here(), tracer_provider, meter_provider
        )

    # ------------------------------------------------------------------------------ producers

    @contextmanager
    def sending(
        self, messages: Sequence[Message], *, operation: str = "send"
    ) -> Iterator[OtelSending]:
        """See `Telemetry.sending`."""
        carried = [
            span
            for message in islice(messages, LINKS_MAX)
            if (span := _carried(message)) is not None
        ]
        under_way = Operation(
            self._instruments,
            # The context in the message is its producer's.
            SpanKind.CLIENT if len(carried) == len(messages) else SpanKind.PRODUCER,
            common(operation, destination_of(messages)),
            of_sent(messages, operation),
            links=carried,
            counter=self._instruments.sent,
            count=len(messages),
        )
        with under_way.around():
            yield OtelSending(under_way, messages)

    def ending(
        self, operation: str, message: Message, receipt: Stored
    ) -> AbstractContextManager[None]:
        """See `Telemetry.ending`."""
        began = span_context_of(message)
        return Operation(
            self._instruments,
            SpanKind.CLIENT,
            common(operation, message.topic),
            {MESSAGE_ID: receipt.message_id, PARTITION: partition(receipt.queue)},
            links=() if began is None else (Link(began),),
        ).around()

    # ------------------------------------------------------------------------------ consumers

    def listening(self, listener: L, *, group: str) -> L:
        """See `Telemetry.listening`."""

        def traced(messages: Sequence[ReceivedMessage]) -> object:
            operation = self._processing(messages, group, self._instruments.consumed)
            try:
                with operation.current():
                    answer = listener(messages)
            except BaseException as error:
                operation.fail(error)
                raise
            if inspect.isawaitable(answer):
                return _rest(operation, messages, answer)
            _end(operation, messages, answer)
            return answer

        return cast(L, traced)

    @contextmanager
    def processing(
        self, messages: ReceivedMessage | Sequence[ReceivedMessage], *, group: str
    ) -> Iterator[None]:
        """A span around the handling of polled messages: `with telemetry.processing(message,
        group="report"):`. Listeners, and blocks of `PullConsumer.processing`, have it."""
        if isinstance(messages, ReceivedMessage):
            messages = [messages]
        with self._processing(messages, group, None).around():
            yield

    def _processing(
        self, messages: Sequence[ReceivedMessage], group: str, counter: Any
    ) -> Operation:
        parent, links = _origin(messages)
        return Operation(
            self._instruments,
            SpanKind.CONSUMER,
            common("process", destination_of(messages), group),
            of_received(messages, is_batch=len(messages) > 1),
            parent=parent,
            links=links,
            duration=self._instruments.process_s,
            counter=counter,
            count=len(messages),
        )

    def polling(self, *, group: str) -> OtelPolling:
        """See `Telemetry.polling`."""
        return OtelPolling(self._instruments, group)

    def on_sent_back(
        self, messages: Sequence[ReceivedMessage], *, group: str, took_s: float, dead_letter: bool
    ) -> None:
        """See `Telemetry.on_sent_back`."""
        parent, links = _origin(messages)
        Operation(
            self._instruments,
            SpanKind.CLIENT,
            common("dead_letter" if dead_letter else "retry", destination_of(messages), group),
            of_received(messages, is_batch=len(messages) > 1, is_counted=True),
            parent=parent,
            links=links,
            took_s=took_s,
        ).end()


class OtelSending:
    """A running send call."""

    def __init__(self, operation: Operation, messages: Sequence[Message]) -> None:
        added, encoded = injected(operation.context)
        self._operation = operation
        self.messages = [
            TracedMessage.of(message, {}, b"")
            if added.keys() & message.properties.keys()
            else TracedMessage.of(message, added, encoded)
            for message in messages
        ]

    def on_stored(self, receipts: Sequence[Stored]) -> None:
        """The broker has them."""
        if len(receipts) == 1:
            self._operation.span.set_attributes(
                {MESSAGE_ID: receipts[0].message_id, PARTITION: partition(receipts[0].queue)}
            )


class OtelPolling:
    """A call of `poll`. It becomes a span only if there are messages: an empty wait is not worth
    one."""

    def __init__(self, instruments: Instruments, group: str) -> None:
        self._instruments = instruments
        self._group = group
        self._began_s = instruments.clock.monotonic_s()

    def on_received(self, messages: Iterable[ReceivedMessage], count: int) -> None:
        """See `Polling.on_received`."""
        some = list(islice(messages, LINKS_MAX))
        told: Attributes = of_received(some, is_batch=True) if some else {}
        Operation(
            self._instruments,
            SpanKind.CLIENT,
            common("receive", destination_of(some), self._group),
            {**told, "messaging.batch.message_count": count},
            links=_links(some),
            took_s=self._instruments.clock.monotonic_s() - self._began_s,
            counter=self._instruments.consumed,
            count=count,
        ).end()


def _carried(message: Message) -> Link | None:
    """The context that the application, or another library, put into a message."""
    span = span_context_of(message) if message.properties else None
    return None if span is None else Link(span)


def _origin(messages: Sequence[ReceivedMessage]) -> tuple[Context, Sequence[Link]]:
    """The parent for work on messages, and links to their origins. The context in which the
    consumer was started is never the parent."""
    if len(messages) == 1:
        return context_of(messages[0]), ()
    return Context(), _links(messages)


def _links(messages: Sequence[ReceivedMessage]) -> list[Link]:
    spans = map(span_context_of, messages[:LINKS_MAX])
    return [Link(span) for span in spans if span is not None]


async def _rest(
    operation: Operation, messages: Sequence[ReceivedMessage], answer: Awaitable[object]
) -> object:
    """The awaited part of a listener."""
    try:
        with operation.current():
            result = await answer
    except BaseException as error:
        operation.fail(error)
        raise
    _end(operation, messages, result)
    return result


def _end(operation: Operation, messages: Sequence[ReceivedMessage], answer: object) -> None:
    """The first message that is not done says why the call failed."""
    told = outcomes(messages, answer)
    failures = [each for each in told if each == RETRY_LATER or isinstance(each, Exception)]
    succeeded = len(told) - len(failures)
    first = failures[0] if failures else None
    if isinstance(first, Exception) and first.__traceback__ is not None:
        operation.fail(first, succeeded=succeeded)
    elif isinstance(first, Exception):
        operation.end(type(first).__name__, str(first), succeeded=succeeded)
    elif first is not None:
        text = "the listener asked for another try"
        operation.end("RETRY_LATER", text, succeeded=succeeded)
    else:
        operation.end()
