"""The terms of a group session: who joins, who else is there, what is granted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aerobee.consumer_client.filters import Expression, wire_filter
from aerobee.consumer_client.lease_table import HeldQueue, QueueKey
from aerobee.runtime.own_version import OWN_VERSION
from aerobee.v1 import broker_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who joins, and in which role."""

    group: str
    client_id: str
    instance: str
    subscriptions: tuple[tuple[str, Expression], ...]
    """By topic."""
    session_timeout_ms: int
    heartbeat_interval_ms: int = 0
    broadcasting: bool = False

    def heartbeat_interval_s(self, session_timeout_ms: int) -> float:
        """In a session of this length."""
        return (self.heartbeat_interval_ms or session_timeout_ms / 4) / 1_000

    def join(self, held: Sequence[HeldQueue]) -> broker_pb2.Join:
        """The first event of a stream, with the leases of the one before."""
        return broker_pb2.Join(
            group=self.group,
            client_id=self.client_id,
            instance=self.instance,
            subscriptions=[
                broker_pb2.Subscription(topic=topic, filter=wire_filter(wanted))
                for topic, wanted in self.subscriptions
            ],
            session_timeout_ms=self.session_timeout_ms,
            broadcasting=self.broadcasting,
            held=[
                broker_pb2.HeldLease(topic=key.topic, queue_id=key.queue_id, epoch=epoch)
                for key, epoch in held
            ],
            version=OWN_VERSION,
        )


@dataclass(frozen=True, slots=True)
class Member:
    """Another member, or this one, as the broker sees it."""

    client_id: str
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Grant:
    """A queue that is ours from now on."""

    key: QueueKey
    epoch: int
    committed_offset: int | None
    """None: the group never committed on it."""
    tried_offset: int = 0
    attempts: int = 0
    """With ordered handling, how often the message at `tried_offset` was handled without being
    finished."""


class SessionEvents(Protocol):
    """Events for the owner of sessions. None of these may block."""

    def on_joined(self, broker_name: str) -> None:
        """A session has begun, or continues over a new stream, perhaps with a restarted broker."""
        ...

    def on_members(self, broker_name: str, members: Sequence[Member]) -> None: ...

    def on_granted(self, broker_name: str, grant: Grant) -> None: ...

    def on_lost(self, broker_name: str, held: HeldQueue, reason: str) -> None: ...

    def on_group_deleted(self, broker_name: str) -> None:
        """The broker forgets the group; the next session there belongs to a new one. May be called
        several times, and before the broker has forgotten."""
        ...


def clustering_members(changed: broker_pb2.MembersChanged) -> list[Member]:
    """The members that share queues."""
    return [
        Member(member.client_id, frozenset(each.topic for each in member.subscriptions))
        for member in changed.members
        if not member.broadcasting
    ]
