"""The two listeners of a node: one inside the cluster, one for clients outside.

Owns: how to tell which one a call came through. Nodes talk to each other only through the inside
one. A client is given addresses that fit the listener it used, so it needs to know nothing of this.
Each listener has a port of its own: behind a load balancer, nothing else distinguishes the
connections.
"""

from __future__ import annotations

from typing import Any, Final

from aerobee.runtime.errors import AccessDenied

OUTSIDE: Final = "outside"


def came_outside(context: Any) -> bool:
    """Whether a call came through the outside listener. grpcio's contexts do not say, and its
    servers have no such listener."""
    return getattr(context, "listener", "") == OUTSIDE


def require_inside(context: Any, what: str) -> None:
    """For calls that only nodes make.

    Raises:
        AccessDenied: the call came through the outside listener.
    """
    if came_outside(context):
        raise AccessDenied(
            f"{what} is refused on the outside listener, because nodes talk to each other inside: "
            "set `nameservers` of the brokers to the nameservers' inside addresses, and `address` "
            "of each broker to its own"
        )
