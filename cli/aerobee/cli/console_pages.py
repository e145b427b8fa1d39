"""A console on a cluster, as commands start it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from aerobee.cli.failures import EnvironmentFailure

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
    from aerobee.console.pages import Console

    def make(credentials: Credentials) -> AdminClient:
        return _client_of(credentials, nameserver, cluster, tls)

    return Console(settings, make, cluster=cluster, examine=_examine)


async def check_certificate(nameserver: str, cluster: str, tls: TlsConfig | bool) -> None:
    """Whether the console's own certificate leaves visitors strangers.

    Raises:
        EnvironmentFailure: it proves a user, who every visitor would be.
        AerobeeError: the cluster cannot be asked.
    """
    from aerobee import user_credentials
    from aerobee.access.credentials import Anonymous

    if isinstance(tls, bool) or not str(tls.certificate):
        return
    stranger = user_credentials(f"nobody-{token_hex(4)}", token_hex(16))
    is_unknown = list[bool]()
    for credentials in (Anonymous(), stranger):
        async with _client_of(credentials, nameserver, cluster, tls) as admin:
            is_unknown.append(await _is_unknown(admin))
    # Without access control, nobody is unknown.
    if is_unknown == [False, True]:
        raise EnvironmentFailure(
            f"{tls.certificate} proves a user of the cluster, and every visitor would be that user "
            "without signing in; give a certificate that proves none, or "
            "--allow-certificate-user if that is what you want"
        )


def _client_of(
    credentials: Credentials, nameserver: str, cluster: str, tls: TlsConfig | bool
) -> AdminClient:
    """One visitor's."""
    from aerobee import AdminClient

    return AdminClient(
        nameserver,
        cluster,
        timeout=QUESTION_S,
        await_cluster_ms=0,
        tls=tls,
        credentials=credentials,
    )


async def _is_unknown(admin: AdminClient) -> bool:
    """Raises AerobeeError."""
    from aerobee.runtime.errors import AccessDenied, Unauthenticated

    try:
        await admin.cluster()
    except Unauthenticated:
        return True
    except AccessDenied:
        return False
    return False


async def _examine(admin: AdminClient) -> Sequence[Mapping[str, Any]]:
    """The findings of `aerobee doctor`, the worst first."""
    from aerobee.offset_audit.doctor.asking import read_cluster
    from aerobee.offset_audit.doctor.examining import examined
    from aerobee.offset_audit.rules.limits import Limits
    from aerobee.runtime.clock import SystemClock

    tables = await read_cluster(admin.connection)
    found = examined(tables, Limits(now_ms=SystemClock().now_ms()))
    return sorted(found, key=lambda each: SEVERITIES.index(each["severity"]))
