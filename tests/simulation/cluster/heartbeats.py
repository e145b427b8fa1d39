"""Messages between a broker and a nameserver."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.domain.broker_condition import BrokerCondition
from aerobee.nameserver.stored import ReplicaSet


@dataclass(slots=True)
class Heartbeat:
    """What a broker reports about itself."""

    sequence: int
    broker_id: int
    instance: str
    incarnation: str
    predecessor: str
    log_epoch: int
    log_end: int
    resigned_epoch: int = 0
    successor_id: int = -1
    is_leaving: bool = False
    durable_end: int = 0
    opened_end: int = 0
    epoch: int = 0
    """The epoch that it acts under."""
    confirmed_end: int = 0
    condition: BrokerCondition = BrokerCondition.WELL


@dataclass(slots=True)
class Directive:
    """What a broker is told."""

    renewed_sequence: int
    lease_ms: int
    group: ReplicaSet | None
    is_refused: bool = False
    """The log lacks what its incarnation had."""
