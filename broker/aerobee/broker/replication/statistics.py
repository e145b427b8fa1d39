"""What an operator sees of replication: a master's view of its slaves, a slave's of its master."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.replication.master_term import MasterTerm


@dataclass(frozen=True, slots=True)
class ReplicaStatistics:
    """One replica, seen by its master."""

    broker_id: int
    is_connected: bool
    is_in_sync: bool
    acknowledged_end: int
    lag_bytes: int
    lag_ms: int
    """Time since it last had everything; 0 while it has."""


@dataclass(frozen=True, slots=True)
class SlaveStatistics:
    """A slave, seen by itself."""

    master_id: int
    """-1: none is known."""
    is_connected: bool
    master_end: int
    confirmed_end: int
    trouble: str
    """Why it does not follow; empty while it does."""


@dataclass(frozen=True, slots=True)
class ReplicationStatistics:
    mode: str
    replicas: tuple[ReplicaStatistics, ...] = ()
    """The other replicas; empty on a slave."""
    slave: SlaveStatistics | None = None
    """None on a master."""


def replicas_of(
    term: MasterTerm, known: frozenset[int], log_end: int, now_s: float
) -> tuple[ReplicaStatistics, ...]:
    """The replicas of a term's set, connected or not, ordered by broker id."""
    progress = {one.name.broker_id: one for one in term.progress()}
    in_sync = {name.broker_id for name in term.in_sync}
    ids = sorted((known | in_sync | set(progress)) - {term.own.broker_id})
    found = []
    for broker_id in ids:
        one = progress.get(broker_id)
        acknowledged_end = 0 if one is None else one.acknowledged_end
        lag_bytes = max(0, log_end - acknowledged_end)
        lag_s = 0.0
        if one is not None and lag_bytes:
            # One that never had everything under this epoch is late at least since it joined.
            since_s = one.caught_up_s if one.caught_up_s > float("-inf") else one.sample_s
            lag_s = max(0.0, now_s - since_s)
        found.append(
            ReplicaStatistics(
                broker_id=broker_id,
                is_connected=one is not None,
                is_in_sync=broker_id in in_sync,
                acknowledged_end=acknowledged_end,
                lag_bytes=lag_bytes,
                lag_ms=int(lag_s * 1_000),
            )
        )
    return tuple(found)
