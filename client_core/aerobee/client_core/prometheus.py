"""Metrics of clients for Prometheus, if the package `prometheus_client` is installed."""

from __future__ import annotations

import inspect
from collections import Counter as CountedResults
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.client_core.telemetry import L, Stored, TracedMessage, outcomes
from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.clock import Clock, clock_here

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter
    from prometheus_client.core import GaugeMetricFamily

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper ends of the buckets of durations."""
DONE = "done"
RETRY = "retry"
REJECTED = "rejected"
DEAD_LETTER = "dead_letter"
FAILED = "failed"


class _QueueFigures(Protocol):
    @property
    def queue(self) -> MessageQueue: ...
    @property
    def lag(self) -> int: ...
    @property
    def cached_messages(self) -> int: ...


class _Figures(Protocol):
    @property
    def queues(self) -> Sequence[_QueueFigures]: ...
    @property
    def retrying(self) -> int: ...


class Consumer(Protocol):
    """A consumer whose queues are watched: push or pull, blocking or not."""

    @property
    def client_id(self) -> str: ...

    def statistics(self) -> Any:
        """See `ConsumerStatistics`."""
        ...


class PrometheusMetrics:
    """Pass it to clients as `telemetry`; one is enough for all of a process.

    Args:
        registry: by default that of the process, which `start_http_server` of `prometheus_client`
            serves.

    Raises:
        ValueError: the registry has these metrics already.

    For example::

        metrics = PrometheusMetrics()
        consumer = PushConsumer("billing", handle, telemetry=metrics).subscribe("orders")
        metrics.watch("billing", consumer)
        start_http_server(9_000)
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, clock: Clock | None = None
    ) -> None:
        from prometheus_client import REGISTRY, Counter, Histogram

        registry = REGISTRY if registry is None else registry
        self._now_s = (clock or clock_here()).monotonic_s
        self._sent = Counter(
            "aerobee_client_sent_messages",
            "Messages by the result of sending: done or failed.",
            ("topic", "result"),
            registry=registry,
        )
        self._send_s = Histogram(
            "aerobee_client_send_seconds",
            "From the call to the broker's answer.",
            ("topic",),
            buckets=SECONDS,
            registry=registry,
        )
        self._received = Counter(
            "aerobee_client_received_messages",
            "Messages that poll or receive returned.",
            ("group",),
            registry=registry,
        )
        self._handled = Counter(
            "aerobee_client_handled_messages",
            "Messages by what their listener, or their block, answered: done, retry, rejected, or "
            "failed.",
            ("group", "topic", "result"),
            registry=registry,
        )
        self._handle_s = Histogram(
            "aerobee_client_handle_seconds",
            "Duration of the calls of a listener, or of blocks.",
            ("group", "topic"),
            buckets=SECONDS,
            registry=registry,
        )
        self._sent_back = Counter(
            "aerobee_client_sent_back_messages",
            "Failed messages by what they became: retry or dead_letter.",
            ("group", "result"),
            registry=registry,
        )
        self._watched: dict[str, list[Consumer]] = {}
        registry.register(cast(Any, self))

    def watch(self, group: str, consumer: Consumer) -> None:
        """Report the lag of a push or pull consumer's own queues at each scrape."""
        self._watched.setdefault(group, []).append(consumer)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Called by the registry at each scrape."""
        from prometheus_client.core import GaugeMetricFamily

        labels = ("group", "topic", "broker", "queue")
        lag = GaugeMetricFamily(
            "aerobee_client_lag_messages", "Stored and not finished.", labels=labels
        )
        cached = GaugeMetricFamily(
            "aerobee_client_cached_messages", "Fetched and not finished.", labels=labels
        )
        retrying = GaugeMetricFamily(
            "aerobee_client_retrying_calls",
            "Calls of a listener that wait to be repeated.",
            labels=("group", "client"),
        )
        for group, consumers in self._watched.items():
            for consumer in consumers:
                figures: _Figures = consumer.statistics()
                for each in figures.queues:
                    topic, broker, number = each.queue
                    names = (group, topic, broker, str(number))
                    lag.add_metric(names, each.lag)
                    cached.add_metric(names, each.cached_messages)
                retrying.add_metric((group, consumer.client_id), figures.retrying)
        return lag, cached, retrying

    # ------------------------------------------------------------------------------ producers

    @contextmanager
    def sending(
        self, messages: Sequence[Message], *, operation: str = "send"
    ) -> Iterator[_Sending]:
        """See `Telemetry.sending`."""
        began_s, result = self._now_s(), FAILED
        topic = messages[0].topic if messages else ""
        try:
            yield _Sending([TracedMessage.of(message, {}, b"") for message in messages])
            result = DONE
        finally:
            self._send_s.labels(topic).observe(self._now_s() - began_s)
            self._sent.labels(topic, result).inc(len(messages))

    @contextmanager
    def ending(self, operation: str, message: Message, receipt: Stored) -> Iterator[None]:
        """See `Telemetry.ending`."""
        yield

    # ------------------------------------------------------------------------------ consumers

    def listening(self, listener: L, *, group: str) -> L:
        """See `Telemetry.listening`."""

        def measured(messages: Sequence[ReceivedMessage]) -> object:
            call = _Call(self, group, messages)
            try:
                answer = listener(messages)
            except BaseException as error:
                call.end(error)
                raise
            if inspect.isawaitable(answer):
                return call.rest(answer)
            call.end(answer)
            return answer

        return cast(L, measured)

    @contextmanager
    def processing(self, messages: ReceivedMessage, *, group: str) -> Iterator[None]:
        """See `Telemetry.processing`."""
        call = _Call(self, group, [messages])
        try:
            yield
        except BaseException as error:
            call.end(error)
            raise
        call.end(None)

    def polling(self, *, group: str) -> _Polling:
        """See `Telemetry.polling`."""
        return _Polling(self._received.labels(group))

    def on_sent_back(
        self, messages: Sequence[ReceivedMessage], *, group: str, took_s: float, dead_letter: bool
    ) -> None:
        """See `Telemetry.on_sent_back`."""
        result = DEAD_LETTER if dead_letter else RETRY
        self._sent_back.labels(group, result).inc(len(messages))

    def on_handled(self, group: str, topic: str, results: Mapping[str, int], took_s: float) -> None:
        """A call of a listener, or a block, has ended: the number of messages by result."""
        for result, count in results.items():
            self._handled.labels(group, topic, result).inc(count)
        self._handle_s.labels(group, topic).observe(took_s)

    def now_s(self) -> float:
        return self._now_s()


class _Sending:
    """See `telemetry.Sending`."""

    def __init__(self, messages: Sequence[TracedMessage]) -> None:
        self.messages = messages

    def on_stored(self, receipts: Sequence[Stored]) -> None:
        """The result follows from how the call ends."""


class _Polling:
    """See `telemetry.Polling`."""

    def __init__(self, received: Counter) -> None:
        self._received = received

    def on_received(self, messages: Iterable[ReceivedMessage], count: int) -> None:
        self._received.inc(count)


class _Call:
    """One call of a listener."""

    def __init__(
        self, metrics: PrometheusMetrics, group: str, messages: Sequence[ReceivedMessage]
    ) -> None:
        self._metrics = metrics
        self._group = group
        self._messages = messages
        self._began_s = metrics.now_s()

    async def rest(self, answer: Awaitable[object]) -> object:
        try:
            result = await answer
        except BaseException as error:
            self.end(error)
            raise
        self.end(result)
        return result

    def end(self, answer: object) -> None:
        messages = self._messages
        took_s = self._metrics.now_s() - self._began_s
        results = CountedResults(map(_result_of, outcomes(messages, answer)))
        self._metrics.on_handled(self._group, messages[0].topic, results, took_s)


def _result_of(answer: object) -> str:
    """This package knows nothing of consumers, but answers of listeners say what they are."""
    kind = getattr(answer, "kind", answer)
    if kind == "retry_later":
        return RETRY
    if kind == "reject":
        return REJECTED
    return FAILED if isinstance(answer, BaseException) else DONE
