"""How a nameserver is: what it answers to startup, liveness and readiness.

It is ready while it has routes, be they stale: brokers and clients then go on with what is known,
and would gain nothing by turning away. A nameserver that never reached etcd has nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable

from aerobee.runtime.health import Question


class NameserverHealth:
    """Told of listening and stopping; asks for routes when it is asked."""

    def __init__(self) -> None:
        self._why_no_routes: Callable[[], str] | None = None
        self._is_stopping = False

    def listens(self, why_no_routes: Callable[[], str]) -> None:
        """Calls are answered from now on; those for routes as soon as there are any."""
        self._why_no_routes = why_no_routes

    def ends(self) -> None:
        """It is being stopped."""
        self._is_stopping = True

    def why_not(self, question: Question) -> str:
        match question:
            case Question.STARTUP:
                return "" if self._why_no_routes is not None else "the nameserver is starting"
            case Question.LIVENESS:
                # Whoever reads this was answered by the event loop: that is all there is to it.
                return ""
            case Question.READINESS:
                if self._is_stopping:
                    return "the nameserver is stopping"
                if self._why_no_routes is None:
                    return "the nameserver is starting"
                return self._why_no_routes()
