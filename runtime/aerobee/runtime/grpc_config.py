"""What an operator can set about gRPC, of every service alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Engine(StrEnum):
    """Which implementation of gRPC a server has."""

    OWN = "own"  # aerobee.grpc_core
    GRPCIO = "grpcio"  # grpcio's asyncio server


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcConfig:
    """How a service speaks gRPC."""

    engine: Engine = Engine.OWN
    """Which gRPC server the process runs: Aerobee's, or the one of the package `grpcio`. The
    protocol is the same.

    Costs: `grpcio` takes about ten times the CPU time for each call.
    """
