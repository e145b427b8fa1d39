"""The settings of gRPC, the same for every service."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

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
