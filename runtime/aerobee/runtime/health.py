"""What a process reports about itself, and where: the values of the health port.

Three questions, each a service name of gRPC health; an empty name means `readiness`.

    startup    has it begun its work, so that `liveness` can judge it from now on?
    liveness   is it worth keeping, or would a restart help?
    readiness  can clients use it, and could another one of its kind be stopped now?

The answer is the reason for a no; empty means SERVING. It is computed from the state at that
moment, so nothing has to be notified of changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from aerobee.runtime.addresses import require_address

REASON_METADATA_KEY = "aerobee-reason-bin"
"""Trailing metadata of an answer other than SERVING: the reason, as UTF-8."""


class Question(StrEnum):
    """Service names of the health port."""

    STARTUP = "startup"
    LIVENESS = "liveness"
    READINESS = "readiness"


class Health(Protocol):
    """Knows the state of a process."""

    def why_not(self, question: Question) -> str:
        """The reason for a no, in one sentence; empty if the answer is yes. Never waits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfig:
    """Where a process reports its health, from start to stop."""

    listen: str = ""
    """host:port of gRPC health with the services startup, liveness and readiness; empty: only the
    main port answers health checks, while it serves clients.

    Unit: host:port
    Costs: a listening port.
    """
    tls: bool = False
    """Serve health by TLS, with the settings of `tls`. Probes of Kubernetes cannot speak it.

    Costs: a handshake for each probe.
    """

    def __post_init__(self) -> None:
        if self.listen:
            require_address("health.listen", self.listen)
