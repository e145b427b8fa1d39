"""A console on a cluster, as commands start it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aerobee import AdminClient
    from aerobee.access.credentials import Credentials
    from aerobee.console.pages import Console
    from aerobee.console.settings import ConsoleSettings
    from aerobee.rpc.tls_config import TlsConfig

QUESTION_S: Final = 4.0
SEVERITIES: Final = ("CRITICAL", "ERROR", "WARNING", "INFO")


def console_on(
    nameserver: str, cluster: str, tls: TlsConfig | bool, settings: ConsoleSettings
) -> Console:
    """Its clients have the credentials of their visitors, and none of the environment. Loads what
    it needs, which takes a while."""
    from aerobee import AdminClient
    from aerobee.console.pages import Console

    def make(credentials: Credentials) -> AdminClient:
        return AdminClient(
            nameserver,
            cluster,
            timeout=QUESTION_S,
            await_cluster_ms=0,
            tls=tls,
            credentials=credentials,
        )

    return Console(settings, make, cluster=cluster, examine=_examine)


async def _examine(admin: AdminClient) -> Sequence[Mapping[str, Any]]:
    """The findings of `aerobee doctor`, the worst first."""
    from aerobee.offset_audit.doctor.asking import read_cluster
    from aerobee.offset_audit.doctor.examining import examined
    from aerobee.offset_audit.rules.limits import Limits
    from aerobee.runtime.clock import SystemClock

    tables = await read_cluster(admin.connection)
    found = examined(tables, Limits(now_ms=SystemClock().now_ms()))
    return sorted(found, key=lambda each: SEVERITIES.index(each["severity"]))
