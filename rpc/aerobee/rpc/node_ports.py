"""What every node serves besides its main port: TLS, health and metrics, from start to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from aerobee.rpc.core.limits import LimitObserver
from aerobee.rpc.health_server import serve_health
from aerobee.rpc.metrics_endpoint import MetricsEndpoint, serve_metrics
from aerobee.rpc.outside_config import OutsideSections
from aerobee.rpc.tls import NodeTls
from aerobee.rpc.tls_config import TlsSections
from aerobee.runtime.clock import Clock
from aerobee.runtime.health import Health, Question
from aerobee.runtime.metrics.families import Gathered, gauge


class NodeConfig(TlsSections, OutsideSections, Protocol):
    """The settings that any node has."""

    @property
    def cluster(self) -> str: ...


@asynccontextmanager
async def serve_node_ports(
    config: NodeConfig, node_type: str, health: Health, observer: LimitObserver, *, clock: Clock
) -> AsyncIterator[tuple[NodeTls, MetricsEndpoint]]:
    """Within the block, health and metrics are served if the settings say so, and the TLS files are
    watched. `observer` gets each peer that exceeds a limit of the health port.

    Raises:
        InvalidArgument: an address or a file cannot be used.
    """
    async with (
        NodeTls(config.tls, config.outside.tls if config.outside.listen else None) as tls,
        serve_health(
            config.health.listen,
            health,
            engine=config.grpc.engine,
            observer=observer,
            tls=tls.accepted if config.health.tls else None,
        ),
        serve_metrics(config.metrics.listen, tls.http if config.metrics.tls else None) as metrics,
    ):
        metrics.show("health", partial(_gather_health, config.cluster, node_type, health, clock))
        metrics.show("tls", partial(tls.gather, config.cluster, node_type))
        yield tls, metrics


async def _gather_health(cluster: str, node_type: str, health: Health, clock: Clock) -> Gathered:
    """1 for each question answered with yes, and the time here."""
    family = gauge(
        "aerobee_health", "1 if the health port answers yes to this question.", "question"
    )
    for question in Question:
        family.add(not health.why_not(question), question.value)
    now = gauge(
        "aerobee_clock_timestamp_seconds", "This machine's clock, in seconds since 1970 (UTC)."
    )
    now.add(clock.now_ms() / 1_000)
    return Gathered({"cluster": cluster, "node_type": node_type}, [family, now])
