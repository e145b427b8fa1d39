"""One request: who makes it, what it may do, and how it is answered."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from aerobee.client_core.admin_client import AdminClient
from aerobee.console.sessions import Session, Sessions, new_token
from aerobee.console.settings import ConsoleSettings
from aerobee.runtime.errors import AccessDenied, InvalidArgument
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

FORM_BYTES_MAX: Final = 512 * 1_024
FORM_FIELDS_MAX: Final = 5_000
FORMS_REMEMBERED: Final = 10_000


class FormRefused(Exception):
    """A form that is not ours, or was sent before; nothing was changed."""


class SentForms:
    """Forms that were sent, so that reloading the page of a result does not do it again."""

    def __init__(self) -> None:
        self._sent: OrderedDict[str, None] = OrderedDict()

    def note(self, once: str) -> bool:
        """False: it was sent before."""
        if once in self._sent:
            return False
        self._sent[once] = None
        if len(self._sent) > FORMS_REMEMBERED:
            self._sent.popitem(last=False)
        return True


class Form:
    """The fields of a form that is known to be ours."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def __getitem__(self, name: str) -> str:
        """The first of that name; empty: there is none."""
        return next((value for each, value in self._pairs if each == name), "")

    def all(self, name: str) -> list[str]:
        return [value for each, value in self._pairs if each == name]


@dataclass(slots=True)
class Visit:
    """A request, and what answering it needs."""

    request: Request
    settings: ConsoleSettings
    templates: Environment
    sessions: Sessions
    sent: SentForms
    admin: AdminClient
    session: Session | None
    token: str
    """Of the browser's cookie; empty: it has none yet."""
    new_token: str = ""
    """What the answer gives the browser."""
    cluster: str = ""

    @property
    def user(self) -> str:
        return "" if self.session is None else self.session.user

    @property
    def may_change(self) -> bool:
        """Of a user, the policies decide."""
        return self.session is not None or self.settings.allow_changes

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def path(self) -> str:
        """As in an address: names may have percent signs."""
        return quote(self.request.url.path, safe="/")

    @property
    def here(self) -> str:
        """The address of this page, for its refresh."""
        query = self.request.url.query
        return f"{self.path}?{query}" if query else self.path

    @property
    def form_token(self) -> str:
        if not self.token:
            self.token = self.new_token = new_token()
        return self.sessions.form_token(self.token)

    def name(self, what: str = "name") -> str:
        """A name in the path."""
        return str(self.request.path_params[what])

    def render(self, template: str, /, status: int = 200, **values: Any) -> Response:
        # Every page has a form: that of the search, or to sign out.
        token = self.form_token
        page = self.templates.get_template(template).render(
            visit=self, form_token=token, once=new_token(), **values
        )
        return HTMLResponse(page, status)

    async def form(self) -> Form:
        """The fields of a form that changes something.

        Raises:
            AccessDenied: this console only shows. FormRefused.
        """
        form = await self.changing_form()
        self.use(form)
        return form

    async def changing_form(self) -> Form:
        """As `form`, for one that may only look at what it would change; then `use` it."""
        if not self.may_change:
            raise AccessDenied(
                "this console only shows; start it with --allow-changes, or switch on access "
                "control in the cluster and sign in"
            )
        return await self.any_form()

    def use(self, form: Form) -> None:
        """What the form says is done now. Raises FormRefused: it was sent before."""
        if not self.sent.note(form["once"]):
            raise FormRefused(
                "this form was sent before, and nothing was done now; go back, and open it again"
            )

    async def any_form(self) -> Form:
        """As `form`, for what everyone may do. Raises FormRefused, InvalidArgument."""
        form = Form(await self._pairs())
        if not self.sessions.is_form_token(self.token, form["form_token"]):
            raise FormRefused(
                "this form is too old, or not from this console, and nothing was changed; go back, "
                "reload the page and send it again"
            )
        return form

    async def _pairs(self) -> list[tuple[str, str]]:
        body = b""
        async for chunk in self.request.stream():
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                raise InvalidArgument(
                    f"a form has at most {FORM_BYTES_MAX // 1_024} KiB: choose less at once"
                )
        try:
            return parse_qsl(
                body.decode("ascii"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX
            )
        except ValueError:
            raise InvalidArgument("the form cannot be read: send it from a page again") from None

    def changed(self, act: str, on: str, **counts: int | str) -> None:
        """Logs what was changed, beside the line that the cluster's audit log has of the call."""
        client = self.request.client
        log_event(
            log,
            "changed from the console",
            act=act,
            on=on,
            user=self.user or "anonymous",
            address="" if client is None else client.host,
            counts=" ".join(f"{name}={value}" for name, value in counts.items()),
        )
