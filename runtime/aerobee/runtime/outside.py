"""The two listeners of a node: one inside the cluster, one for clients outside.

Owns: how a call tells through which it came. Nodes talk to each other inside alone. A client is
told the addresses of the listener that it asked through, so it needs to know nothing of this. Each
listener has a port of its own: behind a load balancer nothing else of a connection tells them
apart.
"""

from __future__ import annotations

from typing import Any, Final

from aerobee.runtime.errors import AccessDenied

OUTSIDE: Final = "outside"


def came_outside(context: Any) -> bool:
    """Whether a call came through the outside listener. grpcio's contexts have no word for it, and
    its servers no such listener."""
    return getattr(context, "listener", "") == OUTSIDE


def require_inside(context: Any, what: str) -> None:
    """For what only nodes do.

    Raises:
        AccessDenied: the call came through the outside listener.
    """
    if came_outside(context):
        raise AccessDenied(
            f"{what} is refused on the outside listener, because nodes talk to each other inside: "
            "set `nameservers` of the brokers to the nameservers' inside addresses, and `address` "
            "of each broker to its own"
        )
