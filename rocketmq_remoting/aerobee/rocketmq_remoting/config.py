"""What an operator can set about remoting, at every node that speaks it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingConfig:
    """Apache RocketMQ's older protocol."""

    enabled: bool = True
    """Whether clients that speak remoting, such as Apache's Java client 4.x, are answered on the
    ports of `listen` and `outside.listen`, beside gRPC. It has the same
    access control and the same TLS.

    Costs: nothing while nobody uses it.
    """
