"""One operation of a client: its span, and its measurements.

Owns: a span from its start to its end, which happens once, together with the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, MeterProvider, get_meter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider, get_tracer

from aerobee.otel.attributes import DESTINATION, ERROR_TYPE, OPERATION, Attributes
from aerobee.runtime.clock import Clock

SCOPE: Final = "aerobee"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.27.0"
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class Instruments:
    """What one telemetry writes to."""

    def __init__(
        self,
        version: str,
        clock: Clock,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
    ) -> None:
        """Without providers: those of the process, even if they are set later."""
        self.clock = clock
        self.tracer = get_tracer(SCOPE, version, tracer_provider, SCHEMA_URL)
        meter = get_meter(SCOPE, version, meter_provider, SCHEMA_URL)
        self.operation_s: Histogram = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="How long calls of producers and consumers take.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self.process_s: Histogram = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="How long the application takes to handle messages.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self.sent: Counter = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Messages that a producer tried to send.",
        )
        self.consumed: Counter = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Messages that were given to the application.",
        )


class Operation:
    """Begins when it is created."""

    def __init__(
        self,
        instruments: Instruments,
        kind: SpanKind,
        measured: Attributes,
        told: Attributes,
        *,
        parent: Context | None = None,
        links: Sequence[Link] = (),
        took_s: float = 0.0,
        duration: Histogram | None = None,
        counter: Counter | None = None,
        count: int = 0,
    ) -> None:
        """`measured`: the attributes that metrics have too. `parent` None: the current one.
        `took_s`: how long ago it began. `count`: the number of messages, counted at its end."""
        clock = instruments.clock
        self._clock = clock
        self._measured = measured
        self._duration = duration or instruments.operation_s
        self._counter = counter
        self._count = count
        self._began_s = clock.monotonic_s() - took_s
        self.span: Span = instruments.tracer.start_span(
            span_name(measured),
            parent,
            kind,
            {**measured, **told},
            links,
            start_time=int((clock.now_ms() - took_s * 1_000) * 1_000_000) if took_s else None,
        )
        self.context = trace.set_span_in_context(self.span, parent)
        self._is_ended = False

    @contextmanager
    def current(self) -> Iterator[None]:
        """Everything called here has it as the current span."""
        token = context_api.attach(self.context)
        try:
            yield
        finally:
            context_api.detach(token)

    def end(
        self, error_type: str | None = None, text: str | None = None, *, succeeded: int = 0
    ) -> None:
        """`error_type`: why it failed, except for so many of its messages that `succeeded`."""
        if self._is_ended:
            return
        self._is_ended = True
        measured = self._measured
        if error_type is not None:
            measured = {**measured, ERROR_TYPE: error_type}
            self.span.set_attribute(ERROR_TYPE, error_type)
            self.span.set_status(Status(StatusCode.ERROR, text))
        # Ended while current, so that an exemplar of the measured value leads to its trace.
        took_s = max(0.0, self._clock.monotonic_s() - self._began_s)
        self._duration.record(took_s, measured, context=self.context)
        if self._counter is not None:
            if succeeded:
                self._counter.add(succeeded, self._measured, context=self.context)
            self._counter.add(self._count - succeeded, measured, context=self.context)
        self.span.end()

    def fail(self, error: BaseException, *, succeeded: int = 0) -> None:
        """It ends with an exception; `succeeded`: see `end`."""
        if isinstance(error, Exception):
            self.span.record_exception(error)
        self.end(type(error).__qualname__, str(error) or None, succeeded=succeeded)

    @contextmanager
    def around(self) -> Iterator[None]:
        """It is current for everything called here, and ends with it."""
        try:
            with self.current():
                yield
        except BaseException as error:
            self.fail(error)
            raise
        self.end()


def span_name(measured: Attributes) -> str:
    """The operation, and its destination."""
    destination = measured.get(DESTINATION)
    return " ".join(str(part) for part in (measured[OPERATION], destination) if part)
