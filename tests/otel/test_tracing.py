"""A collector gets the whole way of a message as one trace, and the clients' metrics."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tomllib
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from aerobee import (
    Batch,
    BlockingProducer,
    ClusterConnection,
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Reject,
    StartFrom,
    TypedTopic,
)
from aerobee.client_core import DeadLetters, GroupAdmin
from aerobee.client_core.admin_groups import BackOff
from aerobee.cluster_view.route import MessageQueue
from aerobee.integrations.faststream.testing import received
from aerobee.otel import AerobeeInstrumentor, OpenTelemetry, context_of
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, Record, encode_record
from aerobee.testing.real_cluster import RealCluster
from tests.support.otlp_collector import OtlpCollector, ToldSpan
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FOREIGN = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture(scope="module")
def cluster(aerobee_cluster: RealCluster) -> Iterator[RealCluster]:
    topics = ("orders", "doomed", "many", "payments", "foreign", "counted", "all")
    for topic in topics:
        aerobee_cluster.create_topic(topic, queues=2)
    yield aerobee_cluster
    for topic in topics:
        aerobee_cluster.delete_topic(topic)


@dataclass
class Watched:
    """Telemetry that goes to a collector."""

    telemetry: OpenTelemetry
    traces: TracerProvider
    metrics: MeterProvider
    collector: OtlpCollector

    def told(self) -> OtlpCollector:
        """The collector, when it has all that was said so far."""
        assert self.traces.force_flush()
        assert self.metrics.force_flush()
        return self.collector


@pytest.fixture
def watched() -> Iterator[Watched]:
    with OtlpCollector() as collector:
        traces = TracerProvider()
        exporter = OTLPSpanExporter(endpoint=collector.endpoint, insecure=True)
        traces.add_span_processor(BatchSpanProcessor(exporter))
        prometheus = PrometheusMetricReader()
        otlp = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=collector.endpoint, insecure=True), 3_600_000
        )
        metrics = MeterProvider([otlp, prometheus])
        telemetry = OpenTelemetry(tracer_provider=traces, meter_provider=metrics)
        yield Watched(telemetry, traces, metrics, collector)
        metrics.shutdown()
        traces.shutdown()


def one(spans: Sequence[ToldSpan]) -> ToldSpan:
    [span] = spans
    return span


async def set_up_group(cluster: RealCluster, group: str, retries_max: int) -> None:
    back_off = BackOff(initial_ms=100, max_ms=100)
    async with ClusterConnection(cluster.nameservers) as connection:
        await GroupAdmin(connection).configure(group, retries_max=retries_max, back_off=back_off)


async def test_attempts_at_a_message_are_in_the_trace_of_its_sender(
    cluster: RealCluster, watched: Watched
) -> None:
    await set_up_group(cluster, "billing", 3)
    seen: list[trace.SpanContext] = []

    def listen(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        """In a thread: the span is current there too."""
        seen.append(trace.get_current_span().get_span_context())
        return ConsumeResult.RETRY_LATER if len(seen) == 1 else ConsumeResult.SUCCESS

    consumer = PushConsumer(
        "billing",
        listen,
        nameservers=cluster.nameservers,
        start_from=StartFrom.FIRST,
        telemetry=watched.telemetry,
    )
    message = Message("orders", b"{}", tag="paid", keys=["order-7"], properties={"colour": "red"})
    async with (
        Producer(cluster.nameservers, telemetry=watched.telemetry) as producer,
        consumer.subscribe("orders", "paid"),
    ):
        with watched.traces.get_tracer("shop").start_as_current_span("checkout"):
            receipt = await producer.send(message)
        await until(lambda: consumer.statistics().handled == 1)
    assert dict(message.properties) == {"colour": "red"}, "the user's message is as it was"
    assert b"traceparent" not in message.encoded_properties

    told = watched.told()
    checkout, sent = one(told.named("checkout")), one(told.named("send orders"))
    first, second = told.named("process orders")
    again = one(told.named("retry orders"))
    assert {span.trace_id for span in told.spans} == {checkout.trace_id}
    assert sent.parent_id == checkout.span_id
    assert {first.parent_id, second.parent_id, again.parent_id} == {sent.span_id}
    assert [f"{each.span_id:016x}" for each in seen] == [first.span_id, second.span_id]

    queue = f"{receipt.queue.broker_name}:{receipt.queue.queue_id}"
    assert (sent.kind, first.kind, again.kind) == ("PRODUCER", "CONSUMER", "CLIENT")
    assert sent.attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": queue,
        "messaging.message.id": receipt.message_id,
        "messaging.message.body.size": 2,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ["order-7"],
    }
    assert first.attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": queue,
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": receipt.message_id,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ["order-7"],
        "aerobee.message.delivery_attempt": 1,
        "aerobee.message.queue_offset": receipt.queue_offset,
        "error.type": "RETRY_LATER",
    }
    assert second.attributes["aerobee.message.delivery_attempt"] == 2
    assert again.attributes["aerobee.message.delivery_attempt"] == 1, "the one that failed"
    assert second.attributes["messaging.message.id"] == receipt.message_id
    assert [first.is_error, second.is_error] == [True, False]


async def test_a_dead_letter_leads_to_its_trace(cluster: RealCluster, watched: Watched) -> None:
    await set_up_group(cluster, "unlucky", 0)

    async def listen(messages: Sequence[ReceivedMessage]) -> None:
        raise LookupError("no such customer")

    consumer = PushConsumer(
        "unlucky",
        listen,
        nameservers=cluster.nameservers,
        start_from=StartFrom.FIRST,
        telemetry=watched.telemetry,
    )
    async with (
        Producer(cluster.nameservers, telemetry=watched.telemetry) as producer,
        consumer.subscribe("doomed"),
    ):
        await producer.send(Message("doomed", b"{}"))
        await until(lambda: consumer.statistics().sent_back == 1)
    async with ClusterConnection(cluster.nameservers) as connection:
        letters = [letter async for letter in DeadLetters(connection).find("unlucky")]
    told = watched.told()
    sent, process = one(told.named("send doomed")), one(told.named("process doomed"))
    dead = one(told.named("dead_letter doomed"))
    assert dead.parent_id == process.parent_id == sent.span_id
    assert dead.attributes["messaging.operation.type"] == "settle"
    assert dead.attributes["aerobee.message.delivery_attempt"] == 1, "the last there was"
    assert process.attributes["error.type"] == "LookupError"
    of_letter = trace.get_current_span(context_of(letters[0].message)).get_span_context()
    assert len(letters) == 1
    assert f"{of_letter.trace_id:032x}" == sent.trace_id


async def test_batches_are_spans_with_links(cluster: RealCluster, watched: Watched) -> None:
    consumer = PullConsumer(
        "report",
        nameservers=cluster.nameservers,
        start_from=StartFrom.FIRST,
        telemetry=watched.telemetry,
    )
    async with (
        Producer(cluster.nameservers, telemetry=watched.telemetry) as producer,
        consumer.subscribe("many"),
    ):
        await producer.send_batch([Message("many", b"a"), Message("many", b"b")])
        await producer.send(Message("many", b"c"))
        polled: list[ReceivedMessage] = []
        while len(polled) < 3:
            polled += await consumer.poll(timeout=1)
        with watched.telemetry.processing(polled, group="report"):
            pass
        with watched.telemetry.processing(polled[0], group="report"):
            pass
    told = watched.told()
    batch, single = told.named("send many")
    assert batch.attributes["messaging.batch.message_count"] == 2
    origins = [batch.span_id, batch.span_id, single.span_id]
    received = told.named("receive many")
    assert sorted(link for span in received for link in span.links) == sorted(origins)
    assert sum(span.attributes["messaging.batch.message_count"] for span in received) == 3
    together, alone = told.named("process many")
    assert sorted(together.links) == sorted(origins)
    assert (together.parent_id, alone.links) == ("", ())
    assert alone.parent_id in origins


async def test_a_transaction_is_begun_and_ended_in_its_trace(
    cluster: RealCluster, watched: Watched
) -> None:
    consumer = PullConsumer("ledger", nameservers=cluster.nameservers, start_from=StartFrom.FIRST)
    async with (
        Producer(cluster.nameservers, telemetry=watched.telemetry) as producer,
        consumer.subscribe("payments"),
    ):
        async with producer.transaction(Message("payments", b"kept")):
            pass
        undone = await producer.begin(Message("payments", b"undone"))
        await undone.rollback()
        [message] = await consumer.poll(timeout=PATIENCE_S)
    told = watched.told()
    first, second = told.named("begin payments")
    commit, rollback = one(told.named("commit payments")), one(told.named("rollback payments"))
    assert first.attributes["messaging.rocketmq.message.type"] == "transaction"
    assert (commit.links, rollback.links) == ((first.span_id,), (second.span_id,))
    assert commit.attributes["messaging.message.id"] == message.message_id
    came = trace.get_current_span(context_of(message)).get_span_context()
    assert f"{came.span_id:016x}" == first.span_id


async def test_a_context_that_others_made_is_kept(cluster: RealCluster, watched: Watched) -> None:
    consumer = PullConsumer(
        "guest",
        nameservers=cluster.nameservers,
        auto_commit=False,
        start_from=StartFrom.FIRST,
        telemetry=watched.telemetry,
    )
    async with (
        Producer(cluster.nameservers, telemetry=watched.telemetry) as producer,
        consumer.subscribe("foreign"),
    ):
        await producer.send(Message("foreign", b"{}", properties={"traceparent": FOREIGN}))
        [message] = await consumer.poll(timeout=PATIENCE_S)
        assert message.properties["traceparent"] == FOREIGN
        async with consumer.processing(message):
            handling = trace.get_current_span().get_span_context()
        assert not trace.get_current_span().get_span_context().is_valid
        # No room for a context: the message goes without, as it would have without telemetry.
        await producer.send(Message("foreign", b"{}", properties={"long": "x" * 32_600}))
    told = watched.told()
    sent, process = told.named("send foreign")[0], one(told.named("process foreign"))
    assert (sent.kind, sent.links) == ("CLIENT", (SPAN,))
    assert sent.trace_id != TRACE
    assert (process.trace_id, process.parent_id) == (TRACE, SPAN)
    assert process.span_id == f"{handling.span_id:016x}"


def received_with(properties: dict[str, str]) -> ReceivedMessage:
    record = encode_record(
        topic=b"foreign",
        body=b"{}",
        properties=encode_properties(properties),
        born_timestamp_ms=1,
        born_host=HostAddress.parse("127.0.0.1:1"),
        flag=0,
        sys_flag=0,
        store_host_ipv6=False,
    )
    return ReceivedMessage(Record(record, 0), MessageQueue("foreign", "broker-a", 0))


@pytest.mark.parametrize("name", ["traceparent", "TRACE_CONTEXT"])
def test_the_contexts_of_official_clients_are_understood(name: str) -> None:
    """A property of the message, or `trace_context` of RocketMQ's gRPC API, which is stored so."""
    found = trace.get_current_span(context_of(received_with({name: FOREIGN}))).get_span_context()
    assert (f"{found.trace_id:032x}", f"{found.span_id:016x}") == (TRACE, SPAN)


@pytest.mark.parametrize("value", ["", "00-zz-1", "<xml/>"])
def test_what_is_no_context_begins_a_trace(value: str) -> None:
    message = received_with({"TRACE_CONTEXT": value} if value else {})
    assert not trace.get_current_span(context_of(message)).get_span_context().is_valid


def test_a_damaged_message_reaches_its_listener_all_the_same(watched: Watched) -> None:
    given: list[ReceivedMessage] = []
    listener = watched.telemetry.listening(given.extend, group="g")
    damaged = ReceivedMessage.at(b"\xff" * 200, 0, MessageQueue("foreign", "broker-a", 0))
    listener([damaged])
    assert given == [damaged]
    process = one(watched.told().named("process foreign"))
    assert (process.parent_id, process.attributes["messaging.consumer.group.name"]) == ("", "g")


async def test_counts_and_durations_come_by_otlp_and_for_prometheus(
    cluster: RealCluster, watched: Watched
) -> None:
    async def listen(messages: Sequence[ReceivedMessage]) -> None:
        pass

    consumer = PushConsumer(
        "counters",
        listen,
        nameservers=cluster.nameservers,
        start_from=StartFrom.FIRST,
        telemetry=watched.telemetry,
    )
    async with (
        Producer(cluster.nameservers, telemetry=watched.telemetry) as producer,
        consumer.subscribe("counted"),
    ):
        await producer.send_batch([Message("counted", b"a")] * 3)
        await until(lambda: consumer.statistics().handled == 3)
        nowhere = MessageQueue("counted", "broker-a", 77)
        with pytest.raises(Exception, match="77"):
            await producer.send(Message("counted", b"a"), queue=nowhere)
    sent = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "counted",
    }
    processed = {
        **sent,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "counters",
    }
    failed = {**sent, "error.type": "QueueNotFound"}
    points = watched.told().points
    assert points == {
        "messaging.client.sent.messages": [{**sent, "count": 3}, {**failed, "count": 1}],
        "messaging.client.operation.duration": [{**sent, "count": 1}, {**failed, "count": 1}],
        "messaging.client.consumed.messages": [{**processed, "count": 3}],
        "messaging.process.duration": [{**processed, "count": 3}],
    }
    shown = generate_latest().decode()
    for series in (
        "messaging_client_sent_messages_total{",
        "messaging_client_operation_duration_seconds_bucket{",
        "messaging_client_consumed_messages_total{",
        "messaging_process_duration_seconds_count{",
    ):
        assert series in shown
    assert 'messaging_consumer_group_name="counters"' in shown


@pytest.mark.parametrize("is_typed", [False, True])
async def test_a_typed_listener_is_traced_as_a_plain_one(is_typed: bool) -> None:
    texts, spans = TypedTopic("texts", str), InMemorySpanExporter()
    provider, reader = TracerProvider(), InMemoryMetricReader()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    async def handle(text: str, message: ReceivedMessage) -> None:
        if text == "bad":
            raise Reject("never")

    async def plain(messages: Sequence[ReceivedMessage]) -> None:
        await handle(messages[0].body.decode(), messages[0])

    telemetry = OpenTelemetry(tracer_provider=provider, meter_provider=MeterProvider([reader]))
    listener = telemetry.listening(texts.listener(handle) if is_typed else plain, group="g")
    for text in ("fine", "bad"):
        with suppress(Reject):
            await cast(Awaitable[None], listener(Batch([received(texts.message(text))])))
    fine, bad = spans.get_finished_spans()
    assert (fine.status.status_code.name, dict(fine.attributes or {}).get("error.type")) == (
        "UNSET",
        None,
    )
    assert (bad.status.status_code.name, dict(bad.attributes or {}).get("error.type")) == (
        "ERROR",
        "Reject",
    )
    assert [event.name for event in bad.events] == ["exception"]
    assert consumed(reader) == {None: 1, "Reject": 1}


async def test_only_the_messages_of_a_batch_that_failed_are_counted_as_failed() -> None:
    texts, reader = TypedTopic("texts", str), InMemoryMetricReader()

    async def handle(text: str, message: ReceivedMessage) -> Reject | None:
        return Reject("never") if text == "bad" else None

    telemetry = OpenTelemetry(meter_provider=MeterProvider([reader]))
    listener = telemetry.listening(texts.listener(handle), group="g")
    batch = Batch([received(texts.message(text)) for text in ("fine", "bad", "fine")])
    await cast(Awaitable[None], listener(batch))
    assert consumed(reader) == {None: 2, "Reject": 1}


def consumed(reader: InMemoryMetricReader) -> dict[object, int]:
    """Messages by `error.type`."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        dict(point.attributes or {}).get("error.type"): getattr(point, "value", 0)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "messaging.client.consumed.messages"
        for point in metric.data.data_points
    }


def test_the_agent_finds_the_switch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [(name, value)] = project["entry-points"]["opentelemetry_instrumentor"].items()
    assert EntryPoint(name, value, "opentelemetry_instrumentor").load() is AerobeeInstrumentor


async def test_one_switch_for_all_clients_of_a_process(
    cluster: RealCluster, watched: Watched
) -> None:
    switch = AerobeeInstrumentor()
    switch.instrument(tracer_provider=watched.traces, meter_provider=watched.metrics)
    try:
        blocking = BlockingProducer(cluster.nameservers)

        def send() -> None:
            """The caller's span is known in the thread of the client."""
            with watched.traces.get_tracer("script").start_as_current_span("script"), blocking:
                blocking.send(Message("all", b"{}"))

        await asyncio.to_thread(send)
    finally:
        switch.uninstrument()
    async with Producer(cluster.nameservers) as producer:
        await producer.send(Message("all", b"{}"))
    told = watched.told()
    assert one(told.named("send all")).parent_id == one(told.named("script")).span_id


def test_clients_load_nothing_of_it_and_a_missing_extra_is_named() -> None:
    program = """
import sys
from aerobee import Producer, PullConsumer, PushConsumer
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
sys.modules["opentelemetry"] = None
try:
    import aerobee.otel
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert 'pip install ".[otel]" in a checkout' in done.stdout
