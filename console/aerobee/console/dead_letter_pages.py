"""A group's dead letters: found, looked at, resent or dropped, with a result for each."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.dead_letters import Letter, LetterFilter
from aerobee.console.visit import Visit
from aerobee.runtime.errors import InvalidArgument

LETTERS_PER_PAGE: Final = 50
LETTERS_READ_MAX: Final = 10_000
"""Of one page: older ones are read to get to it."""


async def all_letters(visit: Visit) -> Response:
    """Oldest first, broker by broker."""
    name = visit.name()
    wanted = LetterFilter(
        topic=visit.query.get("topic", "").strip(),
        key=visit.query.get("key", "").strip(),
        reason=visit.query.get("reason", "").strip(),
    )
    page_text = visit.query.get("page", "1")
    page = int(page_text) if page_text.isascii() and page_text.isdigit() else 1
    first = (min(max(page, 1), LETTERS_READ_MAX // LETTERS_PER_PAGE) - 1) * LETTERS_PER_PAGE
    letters: list[Letter] = []
    has_more, seen = False, 0
    found = visit.admin.dead_letters.find(name, wanted)
    async for letter in found:
        seen += 1
        if seen <= first:
            continue
        if len(letters) == LETTERS_PER_PAGE:
            has_more = True
            break
        letters.append(letter)
    if not letters and not found.unanswered:
        await visit.admin.groups.describe(name)  # One that does not exist is worth a word.
    return visit.render(
        "dead_letters.html",
        name=name,
        letters=letters,
        wanted=wanted,
        first=first,
        page=first // LETTERS_PER_PAGE + 1,
        has_more=has_more,
        unanswered=found.unanswered,
    )


async def settle(visit: Visit) -> Response:
    """Resends or drops what was chosen."""
    name, form = visit.name(), await visit.form()
    act = form["act"]
    chosen = set(form.all("letter"))
    if act not in ("resend", "drop") or not chosen:
        raise InvalidArgument("nothing was changed: choose letters, and what to do with them")
    if act == "drop" and form["confirm"] != name:
        raise InvalidArgument(
            f"nothing was dropped: to confirm, type the group's name, {name}, as it is"
        )
    letters = await _chosen(visit.admin, name, chosen)
    to_all = form["to"] == "all"
    if act == "resend":
        answers = await visit.admin.dead_letters.resend(name, letters, to_all_groups=to_all)
    else:
        answers = await visit.admin.dead_letters.drop(name, letters)
    results = [(letter, answer) for letter, answer in zip(letters, answers, strict=True)]
    done = sum(answer is None for answer in answers)
    visit.changed(f"{act} dead letters", name, letters=done, refused=len(letters) - done)
    return visit.render(
        "dead_letters_done.html",
        name=name,
        act=act,
        to_all=to_all,
        results=results,
        done=done,
        gone=len(chosen) - len(letters),
    )


def place_of(letter: Letter) -> str:
    """What a form says of a letter."""
    return f"{letter.message.queue_offset} {letter.message.queue.broker_name}"


async def _chosen(admin: AdminClient, name: str, chosen: set[str]) -> list[Letter]:
    """Those of them that nobody settled meanwhile."""
    letters = []
    async for letter in admin.dead_letters.find(name):
        if place_of(letter) in chosen:
            letters.append(letter)
            if len(letters) == len(chosen):
                break
    return letters
