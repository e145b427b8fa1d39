"""Which cluster a client command talks to: the options that all of them share."""

from __future__ import annotations

import asyncio
import difflib
import functools
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aerobee.cli.event_loop import run
from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.local_cluster.plan import HOST, NAMESERVER_PORT
from aerobee.cli.options import timeout_option
from aerobee.cli.tls_options import tls_options
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime import errors

if TYPE_CHECKING:
    from aerobee import AdminClient

TIMEOUT_MS = 5_000
PATIENCE_S = 1.0
"""Of a question that only a suggestion needs."""
NOT_FOUND = (errors.TopicNotFound, errors.GroupNotFound)

_UNRESOLVED = re.compile(r"the host name \S+ cannot be resolved")
_ENCRYPTION = re.compile(
    r"its certificate is not valid[^;]*|it does not speak TLS|the server closed the connection"
)
"""What calls say where one end speaks TLS and the other does not, or does not trust it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster by its access point and name."""

    nameserver: str
    cluster: str
    tls: TlsConfig | bool = False
    timeout_s: float = TIMEOUT_MS / 1_000
    """For each question."""

    def administer(self, question: Callable[[AdminClient], Awaitable[T]]) -> T:
        """The answer of an `AdminClient`, which is closed by then.

        Raises click.exceptions.Exit if a signal ends it.
        """

        async def main() -> T:
            async with self.admin_client() as admin:
                return await question(admin)

        return run(main)

    def meant(self, error: errors.AerobeeError) -> str:
        """`; did you mean 'orders'?` if the cluster has a name like one of this command's arguments
        that the error tells to be unknown; else nothing."""
        context = click.get_current_context(silent=True)
        given = context.params.values() if context is not None else ()
        words = [word for each in given for word in (each if isinstance(each, tuple) else (each,))]
        unknown = [word for word in words if isinstance(word, str) and word and word in str(error)]
        if not unknown:
            return ""

        async def names(admin: AdminClient) -> list[str]:
            async with asyncio.timeout(PATIENCE_S):
                if isinstance(error, errors.GroupNotFound):
                    brokers = [each.broker_name for each in (await admin.cluster()).groups]
                    return [*await admin.groups.list(), *brokers]
                return [each.name for each in await admin.topics.list()]

        try:
            known = replace(self, timeout_s=PATIENCE_S).administer(names)
        except Exception:
            return ""  # Nobody asked for this question.
        # The command itself may have made what it names.
        others = [name for name in known if name not in unknown]
        near = [each for word in unknown for each in difflib.get_close_matches(word, others)]
        return f"; did you mean {' or '.join(map(repr, dict.fromkeys(near)))}?" if near else ""

    def admin_client(self) -> AdminClient:
        """To be opened where an event loop runs already."""
        from aerobee import AdminClient

        return AdminClient(
            self.nameserver,
            self.cluster,
            timeout=self.timeout_s,
            await_cluster_ms=0,  # A person would rather be told.
            tls=self.tls,
        )


def _unreachable(error: Exception, target: Target) -> errors.Unreachable | None:
    """The error, if it says that a nameserver could not be reached, rather than a broker."""
    if isinstance(error, ExceptionGroup):
        found = (_unreachable(inner, target) for inner in error.exceptions)
        return next((each for each in found if each is not None), None)
    addresses = target.nameserver.replace(";", ",").split(",")
    if isinstance(error, errors.Unreachable) and any(
        address.strip() in str(error) for address in addresses
    ):
        return error
    return None


def _unknown(error: BaseException) -> errors.AerobeeError | None:
    """The error, if it says that there is no such topic or group."""
    if isinstance(error, BaseExceptionGroup):
        return next((each for each in map(_unknown, error.exceptions) if each is not None), None)
    return error if isinstance(error, NOT_FOUND) else None


def _cannot_reach(error: errors.Unreachable, target: Target) -> EnvironmentFailure:
    unresolved = _UNRESOLVED.search(str(error))
    if unresolved is not None:
        return EnvironmentFailure(
            f"cannot reach the cluster: {unresolved[0]}; check --nameserver "
            f"{target.nameserver} and this machine's DNS"
        )
    encryption = _ENCRYPTION.search(str(error))
    if encryption is not None:
        advice = (
            "see --tls and --tls-ca" if target.tls else "if it speaks TLS, give --tls-ca or --tls"
        )
        return EnvironmentFailure(
            f"cannot reach the cluster: the nameserver at {target.nameserver}: {encryption[0]}; "
            f"{advice}"
        )
    return EnvironmentFailure(
        f"cannot reach the cluster: no nameserver answers at {target.nameserver}; start one with "
        "`aerobee up`, or name another with --nameserver"
    )


def asking_options(timeout_ms: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options of `connection_options`, and --timeout for each question."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @timeout_option(
            timeout_ms, "How long one question to the cluster may take.", has_former=False
        )
        @functools.wraps(command)
        def wrapped(*args: Any, target: Target, timeout_ms: int, **kwargs: Any) -> Any:
            return command(*args, target=replace(target, timeout_s=timeout_ms / 1_000), **kwargs)

        return connection_options(wrapped)

    return add


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`asking_options`, with the time that suffices nearly everywhere."""
    return asking_options(TIMEOUT_MS)(command)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --nameserver, --cluster and those of `tls_options`; the command gets them as
    `target`. For commands whose --timeout is about something else, or that have none."""

    @click.option(
        "--nameserver",
        envvar="AEROBEE_NAMESERVER",
        default=f"{HOST}:{NAMESERVER_PORT}",
        show_default=True,
        metavar="HOST:PORT[,...]",
        help="The cluster's nameservers (environment: AEROBEE_NAMESERVER).",
    )
    @click.option(
        "--cluster",
        envvar="AEROBEE_CLUSTER",
        default="aerobee",
        show_default=True,
        help="The cluster's name (environment: AEROBEE_CLUSTER).",
    )
    @tls_options
    @functools.wraps(command)
    def wrapped(
        *args: Any, nameserver: str, cluster: str, tls: TlsConfig | bool, **kwargs: Any
    ) -> Any:
        target = Target(nameserver, cluster, tls)
        try:
            return command(*args, target=target, **kwargs)
        except (errors.Unreachable, *NOT_FOUND, ExceptionGroup) as error:
            unreachable = _unreachable(error, target)
            if unreachable is not None:
                raise _cannot_reach(unreachable, target) from error
            unknown = _unknown(error)
            if unknown is not None:
                raise type(unknown)(f"{unknown}{target.meant(unknown)}") from error
            raise

    return wrapped
