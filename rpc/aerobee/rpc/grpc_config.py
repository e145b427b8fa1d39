"""The settings of gRPC, the same for every service and for clients."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum

from aerobee.runtime.config import require

ENGINE_VARIABLE = "AEROBEE_GRPC_ENGINE"


class Engine(StrEnum):
    """The gRPC implementation of a process. Both speak the same protocol to the same peers."""

    OWN = "own"  # aerobee.rpc.core
    GRPCIO = "grpcio"  # grpcio's asyncio server and client


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcConfig:
    """Which gRPC implementation a service uses."""

    engine: Engine = field(default=Engine.OWN, metadata={"environment": ENGINE_VARIABLE})
    """Which implementation of gRPC the process uses, as a server and as a client: Aerobee's own, or
    the package `grpcio`. The protocol is the same.

    Costs: `grpcio` takes about ten times the CPU time for each call.
    """


def engine_of_environment() -> Engine:
    """What clients use unless their program says otherwise.

    Raises:
        InvalidArgument: the variable names no engine.
    """
    name = os.environ.get(ENGINE_VARIABLE) or Engine.OWN
    require(name in list(Engine), f"{ENGINE_VARIABLE} must be one of {', '.join(Engine)}", name)
    return Engine(name)
