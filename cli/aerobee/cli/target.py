"""Which cluster a client command talks to: the options that all of them share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.local_cluster.plan import HOST, NAMESERVER_PORT
from aerobee.runtime import errors

if TYPE_CHECKING:
    from aerobee.client_core import ClusterConnection


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster by its access point and name."""

    nameserver: str
    cluster: str

    def connect(self) -> ClusterConnection:
        """A connection, to be entered; nothing is contacted yet."""
        from aerobee.client_core import ClusterConnection

        return ClusterConnection(self.nameserver, self.cluster)


def _is_unreachable(error: Exception, target: Target) -> bool:
    """Whether it is the nameserver that could not be reached, rather than a broker."""
    if isinstance(error, ExceptionGroup):
        return any(_is_unreachable(inner, target) for inner in error.exceptions)
    addresses = target.nameserver.replace(";", ",").split(",")
    return isinstance(error, errors.Unreachable) and any(
        address.strip() in str(error) for address in addresses
    )


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --nameserver and --cluster; the command gets them as `target`."""

    @click.option(
        "--nameserver",
        envvar="AEROBEE_NAMESERVER",
        default=f"{HOST}:{NAMESERVER_PORT}",
        show_default=True,
        metavar="HOST:PORT[,...]",
        help="Where the cluster is (environment: AEROBEE_NAMESERVER).",
    )
    @click.option(
        "--cluster",
        envvar="AEROBEE_CLUSTER",
        default="aerobee",
        show_default=True,
        help="The cluster's name (environment: AEROBEE_CLUSTER).",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, nameserver: str, cluster: str, **kwargs: Any) -> Any:
        target = Target(nameserver, cluster)
        try:
            return command(*args, target=target, **kwargs)
        except (errors.Unreachable, ExceptionGroup) as error:
            if _is_unreachable(error, target):
                raise EnvironmentFailure(
                    f"cannot reach the cluster: no nameserver answers at {nameserver}; start one "
                    "with `aerobee up`, or name another with --nameserver"
                ) from error
            raise

    return wrapped
