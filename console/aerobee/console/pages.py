"""The console as an ASGI application: its pages, who asks for them, and how they fail."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from aerobee.console import (
    audit_log_pages,
    client_pages,
    cluster_page,
    dead_letter_pages,
    deletion_pages,
    group_edits,
    group_pages,
    message_pages,
    recurring_edits,
    recurring_pages,
    reset_pages,
    schedule_pages,
    send_pages,
    topic_edits,
    topic_pages,
    transaction_pages,
    user_pages,
    words,
)
from aerobee.console.clients import Clients, MakeAdmin
from aerobee.console.editing import EditPages, Subject
from aerobee.console.guarding import Guarded
from aerobee.console.offset_audit_page import OffsetAuditPage
from aerobee.console.sessions import Sessions, SignInLimit
from aerobee.console.settings import ConsoleSettings
from aerobee.console.sign_in import SignIn
from aerobee.console.tail_pages import TailPages
from aerobee.console.visit import FormRefused, SentForms, Visit
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock, SystemClock
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

FOLDER: Final = Path(__file__).parent
Handler = Callable[[Visit], Awaitable[Response]]

_STATUS: Final[Mapping[type, int]] = {
    errors.AccessDenied: 403,
    errors.TopicNotFound: 404,
    errors.GroupNotFound: 404,
    errors.QueueNotFound: 404,
    errors.MessageNotFound: 404,
    errors.InvalidArgument: 400,
    errors.MessageIllegal: 400,
    errors.TopicExists: 409,
    errors.GroupInUse: 409,
    errors.Busy: 503,
    errors.Unreachable: 503,
    errors.DeadlineExceeded: 503,
    errors.NoBrokerAvailable: 503,
    errors.RegistryUnavailable: 503,
    errors.NotMaster: 503,
}


class Console:
    """Owns: the sessions, the clients, and the application."""

    def __init__(
        self,
        settings: ConsoleSettings,
        make_admin: MakeAdmin,
        *,
        cluster: str,
        examine: cluster_page.Examine | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`examine`: finds what is wrong with the cluster now; None: no page says it."""
        self._settings = settings
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._sessions = Sessions()
        self._sent = SentForms()
        self._clients = Clients(make_admin)
        self._templates = _templates()
        self._cookie = "__Host-aerobee-console" if settings.is_https else "aerobee-console"
        limit = SignInLimit(self._clock.monotonic_s())
        self._sign_in = SignIn(self._clients, self._sessions, limit, self._clock)
        self._tails = TailPages(self._clock)
        self.routes = self._routes(cluster_page.ClusterPage(examine))
        self.app: ASGIApp = Guarded(
            Starlette(
                routes=self.routes,
                lifespan=self._lifespan,
                exception_handlers={404: self._not_found, 500: self._broken},
            ),
            settings,
        )

    def _routes(self, cluster_view: cluster_page.ClusterPage) -> list[BaseRoute]:
        topics = topic_pages.TopicPages(self._clock)
        tails = self._tails
        return [
            Route("/", _home),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
            self._route("/sign-in", self._sign_in.show),
            self._route("/sign-in", self._sign_in.begin, "POST"),
            self._route("/sign-out", self._sign_in.end, "POST"),
            self._route("/open", group_pages.open_group),
            self._route("/groups", group_pages.all_groups),
            self._route("/groups/{name}", group_pages.one_group),
            self._route("/groups/{name}/reset", reset_pages.preview),
            self._route("/groups/{name}/reset", reset_pages.reset, "POST"),
            self._route("/groups/{name}/delete", deletion_pages.group_preview),
            self._route("/groups/{name}/delete", deletion_pages.delete_group, "POST"),
            self._route("/groups/{name}/dead-letters", dead_letter_pages.all_letters),
            self._route("/groups/{name}/dead-letters", dead_letter_pages.settle, "POST"),
            self._route("/topics", topics.all_topics),
            self._route("/topics/{name}", topics.one_topic),
            self._route("/topics/{name}/delete", deletion_pages.topic_preview),
            self._route("/topics/{name}/delete", deletion_pages.delete_topic, "POST"),
            self._route("/topics/{name}/tail", tails.show),
            self._route("/topics/{name}/tail/events", tails.events),
            *self._edits("/new-topic", topic_edits.new_topic),
            *self._edits("/topics/{name}/change", topic_edits.one_topic),
            *self._edits("/topics/{name}/send", send_pages.one_message),
            *self._edits("/new-group", group_edits.new_group),
            *self._edits("/groups/{name}/change", group_edits.one_group),
            self._route("/messages", message_pages.search),
            self._route("/message", message_pages.one_message),
            self._route("/cluster", cluster_view.show),
            self._route("/scheduled", schedule_pages.all_waiting),
            self._route("/scheduled", schedule_pages.change, "POST"),
            self._route("/scheduled/recurring", recurring_pages.all_schedules),
            self._route("/scheduled/recurring/one", recurring_pages.one_schedule),
            self._route("/scheduled/recurring/one", recurring_pages.act, "POST"),
            *self._edits("/scheduled/recurring/new", recurring_edits.new_schedule),
            *self._edits("/scheduled/recurring/change", recurring_edits.one_schedule),
            self._route("/transactions", transaction_pages.all_open),
            self._route("/transactions", transaction_pages.end, "POST"),
            self._route("/clients", client_pages.all_clients),
            self._route("/offset-audit", OffsetAuditPage(self._settings.audit_results).show),
            self._route("/audit-log", audit_log_pages.last_lines),
            self._route("/users", user_pages.all_users),
            self._route("/users/{name}", user_pages.one_user),
            self._route("/users/{name}", user_pages.act, "POST"),
            *self._edits("/new-user", user_pages.new_user),
            *self._edits("/users/{name}/policy", user_pages.policy),
        ]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """Its clients are open; by the application's lifespan, or by who serves it without one."""
        async with self._clients:
            yield self

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self.opened():
            yield

    def _route(self, path: str, handler: Handler, method: str = "GET") -> Route:
        async def answer(request: Request) -> Response:
            return await self._answer(request, handler)

        return Route(path, answer, methods=[method])

    def _edits(
        self, path: str, subject_of: Callable[[Visit], Awaitable[Subject]]
    ) -> tuple[Route, Route]:
        edits = EditPages(subject_of)
        return self._route(path, edits.show), self._route(path, edits.change, "POST")

    def stop(self) -> None:
        """Answers that go on until somebody ends them end."""
        self._tails.stop()

    async def _answer(self, request: Request, handler: Handler) -> Response:
        visit = self._visit(request)
        try:
            response = await handler(visit)
        except errors.Unauthenticated as error:
            response = self._asked_to_sign_in(visit, error)
        except errors.AerobeeError as error:
            response = _failed(visit, error)
        except FormRefused as error:
            response = _failed(visit, error, 403)
        self._set_cookie(visit, response)
        return response

    def _visit(self, request: Request) -> Visit:
        token = request.cookies.get(self._cookie, "")
        session = self._sessions.find(token, self._clock.monotonic_s())
        return Visit(
            request=request,
            settings=self._settings,
            templates=self._templates,
            sessions=self._sessions,
            sent=self._sent,
            admin=self._clients.anonymous if session is None else session.admin,
            session=session,
            token=token,
            cluster=self._cluster,
        )

    def _asked_to_sign_in(self, visit: Visit, error: errors.Unauthenticated) -> Response:
        if visit.session is not None:
            # The user was deleted, or its secret exchanged.
            self._sessions.end(visit.token)
        if visit.request.method != "GET":
            return _failed(visit, error, 401)
        return RedirectResponse(f"/sign-in?{urlencode({'next': visit.here})}", 303)

    def _set_cookie(self, visit: Visit, response: Response) -> None:
        if visit.new_token:
            response.set_cookie(
                self._cookie,
                visit.new_token,
                httponly=True,
                secure=self._settings.is_https,
                samesite="lax",
                path="/",
            )

    async def _not_found(self, request: Request, _: Exception) -> Response:
        text = f"There is no page {words.shown(request.url.path)[:200]}."
        return self._visit(request).render("problem.html", 404, title="Not found", text=text)

    async def _broken(self, request: Request, error: Exception) -> Response:
        log_event(log, "page failed", level=logging.ERROR, path=request.url.path, error=error)
        text = "The console failed; its log has the reason."
        return self._visit(request).render("problem.html", 500, title="Failed", text=text)


async def _home(_: Request) -> Response:
    return RedirectResponse("/groups")


def _failed(visit: Visit, error: Exception, status: int = 0) -> Response:
    if not status:
        kinds = type(error).__mro__
        status = next((code for kind in kinds if (code := _STATUS.get(kind))), 502)
    titles = {403: "Not allowed", 404: "Not found", 400: "Not possible", 401: "Sign in first"}
    title = titles.get(status, "No answer" if status == 503 else "Failed")
    return visit.render("problem.html", status, title=title, text=str(error))


def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "number": words.number,
        "lasting": words.length,
        "age": words.age,
        "moment": words.moment,
        "size": words.size,
        "shown": words.shown,
        "counted": words.counted,
        "in_path": lambda name: quote(str(name), safe=""),
    }
    found.filters.update(filters)
    return found
