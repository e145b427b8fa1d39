"""Who is connected to the cluster, of every protocol: `AdminClient.clients`, a page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import Masters, ask_masters
from aerobee.cluster_view.methods import LIST_CLIENTS
from aerobee.cluster_view.route import Endpoint
from aerobee.v1 import broker_pb2

CLIENTS_MAX = 100

ClientPlace = tuple[str, str]
"""Client id and group."""


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client in one group, over all brokers that answered."""

    client_id: str
    group: str
    """Empty: it is in none, as a producer."""
    protocol: str
    """`aerobee`, `gRPC` (clients of Apache RocketMQ 5) or `remoting` (of RocketMQ 4)."""
    kind: str
    """Such as `consumer`, `push consumer`, `producer`."""
    language: str
    version: str
    """Empty: it does not say."""
    addresses: tuple[str, ...]
    """host:port of its connections; empty: unknown since the broker's last start."""
    last_heard_age_ms: int
    topics: tuple[str, ...]
    """The first of those that it subscribes to, by name."""
    topics_count: int
    queues_held: int
    """Leases, which only Aerobee's consumers hold."""
    user: str
    """Empty without access control."""

    @property
    def place(self) -> ClientPlace:
        """For the page that follows it."""
        return self.client_id, self.group


@dataclass(frozen=True, slots=True)
class ConnectedClients:
    """A page of them, by client id and group."""

    clients: tuple[ConnectedClient, ...]
    more: bool
    """Others follow."""
    unanswered: tuple[str, ...]
    """Broker groups that could not be asked; what only they know is missing here."""


class ClientAdmin:
    """Clients: list. Producers of Aerobee do not say who they are, and are missing."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._channels = connection.channels
        self._timeout_ms = timeout_ms

    async def list(
        self,
        search: str = "",
        *,
        after: ClientPlace | None = None,
        max_clients: int = CLIENTS_MAX,
    ) -> ConnectedClients:
        """Clients with their groups: one question to each broker.

        Args:
            search: only those whose id, group or address contains this, in any case.
            after: only those that follow this `place`.
            max_clients: at most 1,000.

        Raises:
            AccessDenied: this needs Get or Sub on every group.
            NoBrokerAvailable: no broker answers. Unreachable, DeadlineExceeded.
        """
        request = broker_pb2.ListClientsRequest(search=search, clients_max=max_clients)
        if after is not None:
            request.after.client_id, request.after.group = after

        async def ask(endpoint: Endpoint) -> broker_pb2.ListClientsResponse:
            return await self._channels.call(
                endpoint.address, LIST_CLIENTS, request, timeout_ms=self._timeout_ms
            )

        answers, unanswered = await ask_masters(await self._masters.roll_call(), ask)
        return merged(answers, unanswered, max_clients)


def merged(
    answers: Mapping[str, broker_pb2.ListClientsResponse],
    unanswered: Iterable[str],
    max_clients: int,
) -> ConnectedClients:
    """From the first `max_clients` rows of each broker; the same client is one row."""
    found: dict[ClientPlace, ConnectedClient] = {}
    for answer in answers.values():
        for row in map(_client, answer.clients):
            before = found.get(row.place)
            found[row.place] = row if before is None else _sum(before, row)
    places = sorted(found)
    return ConnectedClients(
        clients=tuple(found[place] for place in places[:max_clients]),
        more=len(places) > max_clients or any(answer.more for answer in answers.values()),
        unanswered=tuple(unanswered),
    )


def _sum(one: ConnectedClient, other: ConnectedClient) -> ConnectedClient:
    return replace(
        one,
        version=one.version or other.version,
        addresses=tuple(sorted({*one.addresses, *other.addresses})),
        last_heard_age_ms=min(one.last_heard_age_ms, other.last_heard_age_ms),
        topics=max(one.topics, other.topics, key=len),
        topics_count=max(one.topics_count, other.topics_count),
        queues_held=one.queues_held + other.queues_held,
    )


def _client(found: broker_pb2.ConnectedClient) -> ConnectedClient:
    return ConnectedClient(
        client_id=found.client_id,
        group=found.group,
        protocol=found.protocol,
        kind=found.kind,
        language=found.language,
        version=found.version,
        addresses=(found.address,) if found.address else (),
        last_heard_age_ms=found.heard_age_ms,
        topics=tuple(found.topics),
        topics_count=found.topics_count,
        queues_held=found.queues_held,
        user=found.user,
    )
