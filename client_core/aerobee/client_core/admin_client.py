"""Administration for users: one client, whose parts have one subject each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from aerobee.access.credentials import Credentials
from aerobee.client_core.admin_access import PolicyAdmin, QuotaAdmin, UserAdmin
from aerobee.client_core.admin_brokers import BrokerAdmin
from aerobee.client_core.admin_cluster import ClusterState, cluster_state
from aerobee.client_core.admin_groups import GroupAdmin
from aerobee.client_core.admin_topics import TopicAdmin
from aerobee.client_core.audit_logs import AuditLogAdmin
from aerobee.client_core.broker_groups import BrokerGroups
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.connected_clients import ClientAdmin
from aerobee.client_core.dead_letters import DeadLetters
from aerobee.client_core.defaults import check_whole_number, milliseconds
from aerobee.client_core.master_search import Masters
from aerobee.client_core.messages import Messages
from aerobee.client_core.offsets import Offsets
from aerobee.client_core.schedules import Schedules
from aerobee.client_core.transactions import Transactions
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime.clock import Clock

TIMEOUT_S = 5.0
AWAIT_CLUSTER_MS = 10_000
"""The same as for producers and consumers."""


class AdminClient:
    """Topics, groups, offsets, messages, clients, users, audit logs and brokers of a cluster,
    between `start` and `aclose` or inside `async with`. Connects on first use.

    Args:
        nameservers, cluster, tls, credentials: as for `ClusterConnection`.
        timeout: seconds for each question to a nameserver or broker.
        await_cluster_ms: how long the first call retries while no nameserver can be reached; it
            logs that after 1 s; 0: it fails at once.

    Example::

        async with AdminClient("127.0.0.1:8081") as admin:
            topics = await admin.topics.list()
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        *,
        timeout: float = TIMEOUT_S,
        await_cluster_ms: int = AWAIT_CLUSTER_MS,
        tls: bool | TlsConfig | None = None,
        credentials: Credentials | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        timeout_ms = milliseconds(timeout)
        check_whole_number("await_cluster_ms", await_cluster_ms, minimum=0)
        self._connection = connection = ClusterConnection(
            nameservers,
            cluster,
            tls=tls,
            credentials=credentials,
            clock=clock,
            chance=chance,
            await_cluster_ms=await_cluster_ms,
        )
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self.topics = TopicAdmin(connection, timeout_ms=timeout_ms)
        self.groups = GroupAdmin(connection, timeout_ms=timeout_ms)
        self.offsets = Offsets(connection, timeout_ms=timeout_ms)
        self.messages = Messages(connection, timeout_ms=timeout_ms)
        self.dead_letters = DeadLetters(connection, timeout_ms=timeout_ms)
        self.schedules = Schedules(connection, timeout_ms=timeout_ms)
        self.transactions = Transactions(connection, timeout_ms=timeout_ms)
        self.brokers = BrokerAdmin(connection, timeout_ms=timeout_ms)
        self.broker_groups = BrokerGroups(connection, timeout_ms=timeout_ms)
        self.clients = ClientAdmin(connection, timeout_ms=timeout_ms)
        self.users = UserAdmin(connection, timeout_ms=timeout_ms)
        self.policies = PolicyAdmin(connection, timeout_ms=timeout_ms)
        self.quotas = QuotaAdmin(connection, timeout_ms=timeout_ms)
        self.audit_log = AuditLogAdmin(connection, timeout_ms=timeout_ms)

    async def cluster(self) -> ClusterState:
        """Brokers and broker groups. Raises Unreachable, DeadlineExceeded, AccessDenied."""
        return cluster_state(await self._masters.describe_cluster())

    @property
    def connection(self) -> ClusterConnection:
        """A connection to the same cluster, for anything that no part covers."""
        return self._connection

    async def start(self) -> None:
        """Open it; the cluster is not contacted before the first call. Close it in the same
        task."""
        await self._connection.__aenter__()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._connection.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._connection.__aexit__(kind, error, traceback)
