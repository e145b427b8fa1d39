"""What every request passes first, and every answer carries.

Owns: the check of the request's host, and the headers that tell browsers what a page may do: run
our scripts and styles only, send forms to us only, be in no frame, be kept in no cache.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aerobee.console.settings import ConsoleSettings

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: browsers would then hide the origin of our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
STATIC: Final = "/static/"
CHANGES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Guarded:
    """An application behind these checks."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._hosts = settings.known_hosts
        self._is_https = settings.is_https

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_static = scope["path"].startswith(STATIC)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.update(HEADERS)
                answer["Cache-Control"] = "no-cache" if is_static else "no-store"
                if self._is_https:
                    answer["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        app = self._refusal(scope, headers) or self._app
        await app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        host = headers.get("host", "")
        if _name_of(host) not in self._hosts:
            return PlainTextResponse(
                "This console is not known by the name in the address; start it with --name NAME "
                "to allow another one.\n",
                421,
            )
        origin = headers.get("origin")
        if scope["method"] in CHANGES and origin is not None:
            scheme = "https" if self._is_https else "http"
            if origin.lower() != f"{scheme}://{host}".lower():
                return PlainTextResponse("This form was sent from another site.\n", 403)
        return None


def _name_of(host: str) -> str:
    """Without a port; of an IPv6 address without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
