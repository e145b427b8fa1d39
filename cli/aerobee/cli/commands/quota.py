"""`aerobee quota`: how much users and consumer groups may use at each node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from aerobee.cli.options import json_option, wide_option
from aerobee.cli.output import print_documents, print_json, say
from aerobee.cli.target import Target, target_options
from aerobee.runtime.errors import InvalidArgument

if TYPE_CHECKING:
    from aerobee import AdminClient, Quota

Kind = Literal["user", "group", "default"]

NO_LIMIT = "none"
TO_DEFAULT = "default"


@click.group()
def quota() -> None:
    """Set, list and delete quotas.

    \b
    SUBJECT  user NAME, group NAME, or default: for each user who has no quota of
             its own; without access control, for each address
    a second    send_requests, send_bytes, read_requests, read_bytes,
                cold_read_requests, cold_read_bytes
    at a time   connections, subscriptions
    an hour     topics_created, groups_created

    Each node counts separately. Groups have only quotas for reading.
    """


@quota.command("set")
@click.argument("subject", nargs=-1, required=True, metavar="SUBJECT LIMIT=NUMBER...")
@json_option
@target_options
def set_quota(target: Target, subject: tuple[str, ...], as_json: bool) -> None:
    """Set limits; limits that are not named stay. NUMBER may be `none` (no limit) or `default`."""
    words = [word for word in subject if "=" not in word]
    limits, to_default = _limits(subject[len(words) :])
    kind, name = _subject(words)
    changed = target.administer(
        lambda admin: admin.quotas.set(kind, name, limits, to_default=to_default)
    )
    document = _document(changed)
    if as_json:
        print_json(document)
        return
    say(f"the quota of {' '.join(words)} is {_limits_text(document['limits'])}")


@quota.command()
@click.argument("subject", nargs=-1, required=True, metavar="SUBJECT")
@json_option
@target_options
def delete(target: Target, subject: tuple[str, ...], as_json: bool) -> None:
    """Delete a quota; the default applies again."""
    kind, name = _subject(subject)
    target.administer(lambda admin: admin.quotas.delete(kind, name))
    if as_json:
        print_json({"kind": kind, "name": name, "deleted": True})
        return
    say(f"deleted the quota of {' '.join(subject)}")


@quota.command("list")
@json_option
@wide_option
@target_options
def list_quotas(target: Target, as_json: bool, wide: bool) -> None:
    """List the quotas that were set, and the built-in ones.

    The built-in ones apply where none was set.
    """

    async def question(admin: AdminClient) -> tuple[list[Quota], Quota]:
        return await admin.quotas.list(), await admin.quotas.built_in()

    quotas, built_in = target.administer(question)
    rows = [*map(_document, quotas), _document(built_in) | {"kind": "built-in"}]
    if as_json:
        print_json(rows)
        return
    print_documents(
        rows,
        {
            "of": lambda each: f"{each['kind']} {each['name']}".strip(),
            "limits": lambda each: _limits_text(each["limits"]),
        },
        wide=wide,
    )


def _subject(words: list[str] | tuple[str, ...]) -> tuple[Kind, str]:
    match list(words):
        case ["default"]:
            return "default", ""
        case ["user", name]:
            return "user", name
        case ["group", name]:
            return "group", name
    raise InvalidArgument("say whose quota it is: user NAME, group NAME, or default")


def _limits(words: tuple[str, ...]) -> tuple[dict[str, int], list[str]]:
    """What is to be set, and what to be left to the default. Raises InvalidArgument."""
    limits: dict[str, int] = {}
    to_default: list[str] = []
    for word in words:
        field, _, number = word.partition("=")
        if number == TO_DEFAULT:
            to_default.append(field)
        elif number == NO_LIMIT:
            limits[field] = 0
        elif number.isascii() and number.isdecimal() and 0 < len(number) < 18 and int(number):
            limits[field] = int(number)
        else:
            raise InvalidArgument(
                f"{word!r} sets no limit: write {field or 'send_bytes'}=NUMBER with a number from "
                f"1 on, {NO_LIMIT} or {TO_DEFAULT}"
            )
    if not words:
        raise InvalidArgument("name at least one limit, for example send_bytes=1000000")
    return limits, to_default


def _document(one: Quota) -> dict[str, Any]:
    return {"kind": one.kind, "name": one.name, "limits": one.limits}


def _limits_text(limits: Mapping[str, int]) -> str:
    return " ".join(f"{field}={limit or NO_LIMIT}" for field, limit in limits.items())
