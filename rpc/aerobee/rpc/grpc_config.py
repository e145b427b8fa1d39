"""The settings of gRPC, the same for every service."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from aerobee.runtime.busy_poll import BUSY_POLL_US_MAX
from aerobee.runtime.errors import InvalidArgument

ENGINE_VARIABLE = "AEROBEE_GRPC_ENGINE"


class Engine(StrEnum):
    """What serves gRPC. Both speak the same protocol to the same clients."""

    OWN = "own"  # aerobee.rpc.core
    GRPCIO = "grpcio"  # grpcio's asyncio server


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcConfig:
    """Which gRPC implementation a service uses."""

    engine: Engine = field(default=Engine.OWN, metadata={"environment": ENGINE_VARIABLE})
    """Which implementation of gRPC serves calls: Aerobee's own, or the package `grpcio`. The
    protocol is the same. The process's own calls to other nodes are made by Aerobee's own.

    Costs: `grpcio` takes about ten times the CPU time for each call.
    """
    busy_poll_us: int = 0
    """How long, in microseconds, a service that has just received something polls for more before
    it sleeps, as long as requests follow each other that closely; 0: it always sleeps. At most
    1,000. Without effect where the process may use fewer than two cores. See also `busy_poll_us` of
    a producer; with 500 at both ends a send that waits for its answer takes about half the time.

    Costs: up to one core while requests follow each other closely, none otherwise, so that CPU time
    no longer tells how much a service has to do. Polling rests while other processes need the core.
    """

    def __post_init__(self) -> None:
        if not 0 <= self.busy_poll_us <= BUSY_POLL_US_MAX:
            raise InvalidArgument(
                f"grpc.busy_poll_us must be 0 to {BUSY_POLL_US_MAX:,}, not {self.busy_poll_us}"
            )
