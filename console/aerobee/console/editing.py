"""Forms that first show what would change, from what to what, and then do exactly that.

What was shown is compared with what is there when it is done: if somebody else changed it
meanwhile, nothing is changed and the visitor looks again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.responses import Response

from aerobee.console.visit import Form, Visit
from aerobee.runtime import errors
from aerobee.runtime.printable import printable

REFUSALS: Final = (
    errors.InvalidArgument,
    errors.MessageIllegal,
    errors.TopicExists,
    errors.TopicNotFound,
    errors.ScheduleExists,
    errors.ScheduleChanged,
    errors.NotWritableTopic,
    errors.LimitReached,
)
"""What is wrong with what was filled in: the form says it and keeps what it has."""


@dataclass(frozen=True, slots=True)
class Field:
    """One input of a form."""

    name: str
    label: str
    value: str = ""
    """What it has at first."""
    help: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Texts by value; empty: any text."""
    is_long: bool = False
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that changes. Empty: it is not there."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a filled in form would do."""

    act: str
    """For the log: `create topic`."""
    on: str
    differences: Sequence[Difference]
    """Only what differs."""
    do: Callable[[], Awaitable[str]]
    """Does it; returns a sentence that says so."""
    notes: Sequence[str] = ()
    """What else should be known before."""

    @property
    def seen(self) -> str:
        """The same as long as it would change the same."""
        rows = [(each.what, each.before, each.after) for each in self.differences]
        return hashlib.sha256(repr((self.act, self.on, rows)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a form is about."""

    title: str
    fields: Sequence[Field]
    plan: Callable[[Mapping[str, str]], Awaitable[Plan]]
    """By the fields' values. Raises one of `REFUSALS` for those that make no sense."""
    back: str
    """The page it is reached from, and its name."""
    back_name: str
    command: str
    """What does the same on the command line, for visitors who may not do it here."""


class EditPages:
    """The pages of one kind of form."""

    def __init__(self, subject_of: Callable[[Visit], Awaitable[Subject]]) -> None:
        self._subject_of = subject_of

    async def show(self, visit: Visit) -> Response:
        """The form, with what is there now."""
        subject = await self._subject_of(visit)
        return _page(visit, subject, {each.name: each.value for each in subject.fields})

    async def change(self, visit: Visit) -> Response:
        """What the form would do; once that was seen, does it."""
        form = await visit.changing_form()
        subject = await self._subject_of(visit)
        values = {each.name: _text(form, each.name) for each in subject.fields}
        is_confirmed = form["act"] == "do"
        if is_confirmed:
            visit.use(form)
        try:
            plan = await subject.plan(values)
            if not is_confirmed:
                return _page(visit, subject, values, plan)
            if form["seen"] != plan.seen:
                problem = "It was changed meanwhile, and nothing was done: look again."
                return _page(visit, subject, values, plan, problem=problem, status=409)
            done = await plan.do()
        except REFUSALS as error:
            return _page(visit, subject, values, problem=str(error), status=400)
        visit.changed(plan.act, plan.on)
        return visit.render("done.html", text=done, back=subject.back)


def _page(
    visit: Visit,
    subject: Subject,
    values: Mapping[str, str],
    plan: Plan | None = None,
    *,
    problem: str = "",
    status: int = 200,
) -> Response:
    return visit.render(
        "edit.html", status, subject=subject, values=values, plan=plan, problem=problem
    )


def _text(form: Form, name: str) -> str:
    """Browsers end lines with CR LF."""
    return form[name].replace("\r\n", "\n").strip()


def differences(rows: Sequence[tuple[str, str, str]]) -> list[Difference]:
    """Those that differ, of (what, before, after)."""
    return [Difference(*row) for row in rows if row[1] != row[2]]


def whole(text: str, what: str, *, least: int = 0) -> int:
    """Raises InvalidArgument: it is no number from `least` on."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9) or int(text) < least:
        raise errors.InvalidArgument(f"{what}: write a whole number from {least} on, not {text!r}")
    return int(text)


def pairs(text: str, what: str) -> dict[str, str]:
    """Lines of NAME=VALUE. Raises InvalidArgument."""
    found: dict[str, str] = {}
    for line in filter(None, (each.strip() for each in text.splitlines())):
        name, sign, value = line.partition("=")
        name = name.strip()
        if not sign or not name:
            raise errors.InvalidArgument(f"{what}: write NAME=VALUE on each line, not {line!r}")
        if name in found:
            raise errors.InvalidArgument(f"{what}: {name} is named twice")
        found[name] = value.strip()
    return found


def lines_of(found: Mapping[str, str]) -> str:
    """As `pairs` reads them."""
    return "\n".join(printable(f"{name}={value}") for name, value in sorted(found.items()))
