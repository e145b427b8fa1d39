"""Who is connected to this broker, of every protocol: one page of it, for one caller."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from aerobee.access.recorder import source_of
from aerobee.access.running import groups_read, topics_seen
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.members import Member
from aerobee.broker.groups.receivers import SIMPLE_CONSUMER, Receiver, Receivers
from aerobee.broker.groups.self_assigned import SelfMember
from aerobee.rocketmq_api.clients.table import Client, ClientTable
from aerobee.runtime.clock import Clock
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns
from aerobee.runtime.printable import printable
from aerobee.v1 import broker_pb2

ROWS_DEFAULT: Final = 100
ROWS_MAX: Final = 1_000
TOPICS_MAX: Final = 20
"""Of one client, by name."""


class HeardProducer(Protocol):
    """A producer of a protocol beside gRPC."""

    @property
    def client_id(self) -> str: ...

    @property
    def language(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def heard_s(self) -> float: ...

    @property
    def groups(self) -> Collection[str]: ...


class _Present(NamedTuple):
    """One client in one group, before it is known whether it is on the page."""

    client_id: str
    group: str
    address: str
    known: Any


class ClientRows:
    """On the loop. One page reads all clients once, in turns with other work."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        official: ClientTable,
        receivers: Receivers,
        producers_beside: Callable[[], Iterable[tuple[str, HeardProducer]]],
        clock: Clock,
        turns: LoopTurns,
    ) -> None:
        self._coordinator = coordinator
        self._official = official
        self._receivers = receivers
        self._producers_beside = producers_beside
        self._clock = clock
        self._turns = turns

    async def page(self, request: broker_pb2.ListClientsRequest) -> broker_pb2.ListClientsResponse:
        await self._turns.turn(LISTINGS)
        now_s = self._clock.monotonic_s()
        self._coordinator.expire(now_s)
        sees_group, sees_topic = groups_read(), topics_seen()
        count = min(request.clients_max or ROWS_DEFAULT, ROWS_MAX)
        begin = (request.after.client_id, request.after.group) if request.HasField("after") else ()
        wanted = request.search.casefold()
        found = list[_Present]()
        async for each in self._turns.each(LISTINGS, list(self._present(now_s))):
            if (each.client_id, each.group) <= begin or not sees_group(each.group):
                continue
            if (
                wanted
                and wanted not in f"{each.client_id}\n{each.group}\n{each.address}".casefold()
            ):
                continue
            found.append(each)
        await self._turns.turn(LISTINGS)
        rows = heapq.nsmallest(count, found, key=lambda each: each[:2])
        return broker_pb2.ListClientsResponse(
            clients=[self._row(each, now_s, sees_topic) for each in rows],
            more=len(found) > len(rows),
        )

    def _present(self, now_s: float) -> Iterator[_Present]:
        for member in self._coordinator.members.all_members():
            yield _Present(member.client_id, member.group, member.address, member)
        for client in self._official.present():
            yield _Present(client.client_id, client.group, source_of(client.peer), client)
        for receiver in self._receivers.all(now_s):
            yield _Present(receiver.client_id, receiver.group, receiver.address, receiver)
        ownership = self._coordinator.ownership
        for group in ownership.self_assigned_groups():
            for each in ownership.self_assigning(group):
                yield _Present(
                    each.client_id, group, str(getattr(each.connection, "peer", "")), each
                )
        for address, producer in self._producers_beside():
            for group in producer.groups:
                yield _Present(producer.client_id, group, address, producer)

    def _row(
        self, present: _Present, now_s: float, sees_topic: Callable[[str], bool]
    ) -> broker_pb2.ConnectedClient:
        client = present.known
        row = broker_pb2.ConnectedClient(
            client_id=present.client_id, group=present.group, address=printable(present.address)
        )
        topics: Iterable[str] = ()
        if isinstance(client, Member):
            heard_s = client.last_heartbeat_s
            row.protocol, row.language = "aerobee", "PYTHON"
            row.kind = "broadcasting consumer" if client.broadcasting else "consumer"
            row.version, row.user = client.version, client.user
            leases = self._coordinator.ownership.leases
            row.queues_held = leases.held_by(client.group, client.client_id)
            topics = (each.topic for each in client.subscriptions)
        elif isinstance(client, Receiver):
            heard_s = client.heard_s
            row.protocol, row.language, row.kind = "aerobee", "PYTHON", SIMPLE_CONSUMER
            row.user = client.user
            topics = client.subscriptions
        elif isinstance(client, Client):
            heard_s = client.heard_s
            row.protocol, row.user = "gRPC", client.user
            row.kind = client.kind_name
            row.language, row.version = printable(client.language), printable(client.version)
            topics = client.subscriptions
        elif isinstance(client, SelfMember):
            heard_s = client.heard_s
            row.protocol = "remoting"
            row.kind = "broadcasting consumer" if client.is_broadcasting else "consumer"
            language, version, *_ = client.facts
            row.language, row.version = printable(str(language)), str(version)
            topics = client.wants
        else:
            heard_s = client.heard_s
            row.protocol, row.kind = "remoting", "producer"
            row.language, row.version = printable(client.language), str(client.version)
        row.heard_age_ms = max(0, int((now_s - heard_s) * 1_000))
        seen = sorted(filter(sees_topic, topics))
        row.topics.extend(printable(each) for each in seen[:TOPICS_MAX])
        row.topics_count = len(seen)
        return row
