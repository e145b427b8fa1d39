"""From values to Prometheus's text, on the thread that asked for it.

Writing thousands of lines keeps the interpreter lock busy, so it is done in small pieces with
pauses, in which the event loop's thread can continue at once instead of waiting for the
interpreter's switch interval each time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from aerobee.runtime.metrics.families import AnyFamily, Family, Gathered, HistogramFamily, Kind
from aerobee.runtime.metrics.page_limit import within

PIECE_SAMPLES = 64
"""About half a millisecond of work."""
PAUSE_S = 0.0002


def encode(gathered: Sequence[Gathered], accept: str) -> tuple[bytes, str]:
    """The text and its content type; `accept` is the HTTP header of the request.

    Adds metrics of the process itself (`process_*`), and leaves out what exceeds PAGE_BYTES_MAX.
    """
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Values(within(gathered, pause=_pause)))
    write, content_type = choose_encoder(accept)
    return write(registry), content_type


def _pause() -> None:
    threading.Event().wait(PAUSE_S)


class _Values(Collector):
    def __init__(self, gathered: Sequence[Gathered]) -> None:
        self._gathered = gathered

    def collect(self) -> Iterator[Metric]:
        for one in self._gathered:
            for family in one.families:
                if family.rows:
                    yield _metric(family, one.labels)


def _metric(family: AnyFamily, constant: Mapping[str, str]) -> Metric:
    name, kind = family.name, "histogram"
    if isinstance(family, Family):
        kind = family.kind.value
        if family.kind is Kind.COUNTER:
            name = name.removesuffix("_total")  # the encoder adds it again
    metric = Metric(name, family.help, kind)
    samples: Any = _Samples(family, constant)
    metric.samples = samples
    return metric


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))


class _Samples:
    """A family's samples, made as they are written out."""

    def __init__(self, family: AnyFamily, constant: Mapping[str, str]) -> None:
        self._family = family
        self._constant = constant

    def __iter__(self) -> Iterator[Sample]:
        pause = threading.Event()
        for number, sample in enumerate(self._all(), 1):
            yield sample
            if number % PIECE_SAMPLES == 0:
                pause.wait(PAUSE_S)

    def _all(self) -> Iterator[Sample]:
        family, constant = self._family, self._constant
        names = family.labels
        if isinstance(family, HistogramFamily):
            for values, counts in family.rows:
                labels = {**constant, **dict(zip(names, values, strict=True))}
                below = 0
                for bound, count in zip((*counts.bounds, float("inf")), counts.counts, strict=True):
                    below += count
                    bucket = {**labels, "le": _bound(bound)}
                    yield Sample(f"{family.name}_bucket", bucket, below)
                yield Sample(f"{family.name}_count", labels, below)
                yield Sample(f"{family.name}_sum", labels, counts.total)
            return
        for values, value in family.rows:
            yield Sample(family.name, {**constant, **dict(zip(names, values, strict=True))}, value)
