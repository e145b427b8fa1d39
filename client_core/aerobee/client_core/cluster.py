"""One client's connection to a cluster: what producer, consumer and administration share.

Owns: the channels, the routes with their watch, the clock and the source of randomness. Everything
opened through it ends with it.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from aerobee.access.credentials import Credentials
from aerobee.client_core.defaults import cluster_or_default, nameservers_or_default
from aerobee.client_core.short_tracebacks import end_with
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.nameservers import Nameservers, parse_addresses
from aerobee.cluster_view.own_process import OwnProcess
from aerobee.cluster_view.routes import Routes
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.tls import client_tls
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime.clock import Clock, clock_here, system_random
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.format.record import HostAddress


class ClusterConnection:
    """Channels and routes of one cluster. Connects on first use, so opening it cannot fail.

    Args:
        nameservers: host:port of each nameserver, as a list or separated by comma or semicolon; if
            not given, those of the environment variable AEROBEE_NAMESERVER, else 127.0.0.1:8081.
        cluster: the cluster's name; if not given, that of AEROBEE_CLUSTER, else `aerobee`.
        engine: leave it out, or give `own`: clients have only Aerobee's own implementation of gRPC.
        credentials: who calls, such as `user_credentials(access_key, secret_key)` of
            aerobee.client_core; if not given, those of the environment (docs/access.md).
        tls: True: TLS with the system's authorities, or with the files that the environment names
            (AEROBEE_TLS_CA, AEROBEE_TLS_CERTIFICATE, AEROBEE_TLS_KEY); a TlsConfig: as it says;
            False: plain text. If not given, the environment decides; without it, plain text.
        await_cluster_ms: how long the first call retries while no nameserver can be reached.

    Raises:
        InvalidArgument: an address that is not host:port, another engine than `own`, or a TLS file
            that cannot be used.

    Example::

        async with ClusterConnection("127.0.0.1:8081") as connection:
            route = await connection.routes.route("orders")
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        *,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        engine: Engine | None = None,
        credentials: Credentials | None = None,
        tls: bool | TlsConfig | None = None,
        await_cluster_ms: int = 0,
    ) -> None:
        if engine not in (None, Engine.OWN):
            raise InvalidArgument(
                f"engine must be left out, or be own: clients have no gRPC engine {engine}; the "
                "protocol is the same"
            )
        addresses = parse_addresses(nameservers_or_default(nameservers))
        self.cluster = cluster_or_default(cluster)
        self.clock: Clock = clock or clock_here()
        self.random = chance or system_random()
        self._process = OwnProcess("connection")
        self._tls = client_tls(tls)
        self.channels = Channels(
            chance=self.random,
            credentials=credentials,
            tls=None if self._tls is None else self._tls.dialled,
        )
        self.nameservers = Nameservers(
            self.channels,
            addresses,
            clock=self.clock,
            chance=self.random,
            await_cluster_ms=await_cluster_ms,
        )
        self.routes = Routes(
            self.channels, self.nameservers, self.cluster, clock=self.clock, chance=self.random
        )
        self.local_host = local_host()
        self._tasks = asyncio.TaskGroup()
        self._watch: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._process.is_left:
            # Not made before a fork, or all children would draw the same ids.
            self.random.seed()
        await self._tasks.__aenter__()
        self._watch = self._tasks.create_task(self.routes.run(), name="routes:watch")
        if self._tls is not None:
            self._following = self._tasks.create_task(self._tls.keep_following(), name="tls-files")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._following is not None:
            self._following.cancel()
        try:
            await end_with(self._tasks, error)
        finally:
            await self.channels.close()


def local_host() -> HostAddress:
    """This machine's address as used in records: the one from which other networks are reached.

    Connecting a datagram socket sends nothing; without any route it is 127.0.0.1.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
        except OSError:
            address = "127.0.0.1"
    return HostAddress(ip=socket.inet_aton(address), port=0)
