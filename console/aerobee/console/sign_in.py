"""Signing in as a user of the cluster, and out.

The access key and secret sign one question to the cluster; if it knows them, a client that signs
with them belongs to the session. The console keeps no users and no rights of its own.
"""

from __future__ import annotations

import logging

from starlette.responses import RedirectResponse, Response

from aerobee.access.credentials import user_credentials
from aerobee.client_core.admin_client import AdminClient
from aerobee.console.clients import Clients
from aerobee.console.sessions import Sessions, SignInLimit
from aerobee.console.visit import Visit
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AccessDenied, Unauthenticated
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class SignIn:
    """The page, and what it does."""

    def __init__(
        self, clients: Clients, sessions: Sessions, limit: SignInLimit, clock: Clock
    ) -> None:
        self._clients = clients
        self._sessions = sessions
        self._limit = limit
        self._clock = clock

    async def show(self, visit: Visit) -> Response:
        return self._page(visit, visit.query.get("next", ""))

    async def begin(self, visit: Visit) -> Response:
        form = await visit.any_form()
        access_key, destination = form["access_key"].strip(), form["next"]
        wait_s = self._limit.take(access_key, self._clock.monotonic_s())
        if wait_s:
            problem = f"Too many attempts: try again in {wait_s:.0f} s."
            return self._page(visit, destination, problem=problem, status=429)
        if not access_key or not form["secret_key"]:
            return self._page(visit, destination, problem="Enter both.", status=400)
        if not await _needs_proof(self._clients.anonymous):
            problem = "This cluster has no access control, so nobody signs in."
            return self._page(visit, destination, problem=problem, status=400)
        client = await self._clients.open(user_credentials(access_key, form["secret_key"]))
        try:
            is_known = not await _needs_proof(client.admin)
        except BaseException:
            client.close()
            raise
        if not is_known:
            client.close()
            log_event(log, "sign-in refused", level=logging.WARNING, user=access_key[:80])
            problem = "The cluster does not know this access key and secret."
            return self._page(visit, destination, problem=problem, status=401)
        self._sessions.end(visit.token)
        visit.new_token = self._sessions.begin(access_key, client, self._clock.monotonic_s())
        log_event(log, "signed in", user=access_key)
        return RedirectResponse(_inside(destination), 303)

    async def end(self, visit: Visit) -> Response:
        await visit.any_form()
        self._sessions.end(visit.token)
        return RedirectResponse("/sign-in", 303)

    def _page(
        self, visit: Visit, destination: str, *, problem: str = "", status: int = 200
    ) -> Response:
        return visit.render("sign_in.html", status, next=_inside(destination), problem=problem)


async def _needs_proof(admin: AdminClient) -> bool:
    """Whether the cluster does not believe that the caller is somebody. Raises AerobeeError."""
    try:
        await admin.cluster()
    except Unauthenticated:
        return True
    except AccessDenied:
        return False  # It knows who that is.
    return False


def _inside(destination: str) -> str:
    """A page of this console, whatever the address says."""
    is_inside = destination.startswith("/") and not destination.startswith(("//", "/\\"))
    is_plain = destination.isascii() and destination.isprintable() and "\\" not in destination
    return destination if is_inside and is_plain else "/groups"
