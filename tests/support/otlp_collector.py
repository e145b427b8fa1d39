"""A collector as seen by OpenTelemetry's exporters: gRPC services that keep what they receive."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True)
class ToldSpan:
    """A span as received over the wire."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[str, ...]
    """The span ids of its links."""
    attributes: Mapping[str, Any]
    is_error: bool
    start_ns: int
    end_ns: int


class OtlpCollector(traces_grpc.TraceServiceServicer, metrics_grpc.MetricsServiceServicer):
    """`with OtlpCollector() as collector:`; exporters go to `collector.endpoint`."""

    def __init__(self) -> None:
        self.spans: list[ToldSpan] = []
        self.points: dict[str, list[dict[str, Any]]] = {}
        """By metric: the attributes of each of its series as last reported, with its count or value
        as "count"."""
        self._server = grpc.server(ThreadPoolExecutor(2))
        traces_grpc.add_TraceServiceServicer_to_server(self, self._server)
        metrics_grpc.add_MetricsServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.stop(0).wait()

    def named(self, name: str) -> list[ToldSpan]:
        """In order of start time."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_ns)

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        if isinstance(request, traces.ExportTraceServiceRequest):
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self.spans += map(_told, scope.spans)
            return traces.ExportTraceServiceResponse()
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.points[metric.name] = _points(metric)
        return metrics.ExportMetricsServiceResponse()


def _told(span: Span) -> ToldSpan:
    return ToldSpan(
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=tuple(link.span_id.hex() for link in span.links),
        attributes=_as_dict(span.attributes),
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
    )


def _points(metric: Any) -> list[dict[str, Any]]:
    if metric.HasField("histogram"):
        return [
            {**_as_dict(each.attributes), "count": each.count}
            for each in metric.histogram.data_points
        ]
    return [{**_as_dict(each.attributes), "count": each.as_int} for each in metric.sum.data_points]


def _as_dict(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each) for each in attributes}


def _value(attribute: KeyValue) -> Any:
    kind = attribute.value.WhichOneof("value")
    if kind == "array_value":
        return [each.string_value for each in attribute.value.array_value.values]
    return getattr(attribute.value, str(kind))
