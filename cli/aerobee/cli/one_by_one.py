"""Commands that do one thing to several messages, one after the other. If it does not work for one
of them, they say so and do the others nevertheless."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.failures import NEGATIVE
from aerobee.cli.output import counted, print_json, remark, say
from aerobee.cli.target import Target
from aerobee.runtime.errors import MessageNotFound, ScheduleNotFound

if TYPE_CHECKING:
    from aerobee import AdminClient

    Change = Callable[[AdminClient, str], Awaitable[dict[str, Any] | None]]
    """Does it to what has this name; returns what its document has besides."""


def do_each(
    target: Target,
    names: Sequence[str],
    change: Change,
    *,
    member: str,
    done: str,
    noun: str = "",
    as_json: bool,
) -> None:
    """Do `change` to each of `names`.

    Prints how many `noun` were `done`, if there is a noun; or, as JSON, a document for each name,
    which is its `member`, with a `done` that is true or false.

    Raises:
        click.exceptions.Exit: with 1, unless it worked for all.
    """
    documents: list[dict[str, Any]] = []
    first, *others = done.split()
    is_done = first + "".join(map(str.title, others))

    async def question(admin: AdminClient) -> None:
        from aerobee.client_core import TransactionEnded

        for name in names:
            try:
                more = await change(admin, name)
            except (MessageNotFound, ScheduleNotFound, TransactionEnded) as error:
                documents.append({member: name, is_done: False, "error": str(error)})
                if not as_json:
                    remark(str(error))
            else:
                documents.append({member: name, is_done: True, **(more or {})})

    try:
        target.administer(question)
    finally:
        # Also before an error that ends the command: what was done then is done.
        if as_json and documents:
            print_json(documents)
    count = sum(each[is_done] for each in documents)
    if noun and not as_json:
        say(f"{done} {counted(count, noun)}")
    if count < len(names):
        raise click.exceptions.Exit(NEGATIVE)
