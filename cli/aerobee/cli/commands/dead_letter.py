"""`aerobee dead-letter`: messages that failed too often, found, sent again, dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aerobee.cli.completion import group_names
from aerobee.cli.failures import NEGATIVE
from aerobee.cli.moments import time_argument, timestamp_text
from aerobee.cli.options import (
    always_json_option,
    confirm,
    dry_run_option,
    json_option,
    wide_option,
    yes_option,
)
from aerobee.cli.output import counted, print_json, print_table, remark, remark_unanswered, say
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee import AdminClient, Letter, LetterFilter

BATCH = 100
PROGRESS_LETTERS = 1_000

Command = Callable[..., Any]


@click.group("dead-letter")
def dead_letter() -> None:
    """Find, resend and drop messages that failed as often as their group allows."""


def filter_options(command: Command) -> Command:
    """Which letters are meant."""
    for option in (
        click.option("--topic", default="", help="Only letters that came from this topic."),
        click.option("--key", default="", help="Only those with this key, or this message id."),
        click.option(
            "--reason", default="", help="Only letters whose exception contains this text."
        ),
        click.option(
            "--from",
            "begin_ms",
            metavar="TIME",
            callback=time_argument,
            help="Only letters that died at or after TIME.",
        ),
        click.option(
            "--until",
            "end_ms",
            metavar="TIME",
            callback=time_argument,
            help="Only letters that died before TIME.",
        ),
    ):
        command = option(command)
    return command


@dead_letter.command("list")
@click.argument("group", shell_complete=group_names)
@filter_options
@click.option(
    "--max",
    "max_letters",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="List at most this many letters.",
)
@json_option
@wide_option
@target_options
def list_(
    target: Target, group: str, max_letters: int, as_json: bool, wide: bool, **wanted: Any
) -> None:
    """List the dead letters of GROUP that are not settled, oldest first.

    Exit code 1: there is no such group.
    """

    async def question(admin: AdminClient) -> tuple[list[Letter], tuple[str, ...]]:
        letters: list[Letter] = []
        found = admin.dead_letters.find(group, _filter(wanted))
        async for letter in found:
            if len(letters) > max_letters:
                break
            letters.append(letter)
        return letters, found.unanswered

    letters, unanswered = target.administer(question)
    remark_unanswered(unanswered)
    shown = [_document(letter) for letter in letters[:max_letters]]
    if as_json:
        document = {"group": group, "letters": shown, "more": len(letters) > max_letters}
        print_json({**document, "unanswered": list(unanswered)})
    elif shown:
        print_table(
            ("id", "from", "attempts", "died", "reason"),
            [
                (
                    letter["messageId"],
                    letter["topic"],
                    str(letter["attempts"]),
                    timestamp_text(letter["timeMs"]),
                    f"{letter['reasonClass']}: {letter['reason']}",
                )
                for letter in shown
            ],
            times="died",
            droppable=("died",),
            cuttable="reason",
            wide=wide,
        )
    if len(letters) > max_letters and not as_json:
        remark("there are more: narrow the search, or raise --max")
    if not shown:
        target.administer(lambda admin: admin.groups.describe(group))
        if not as_json:
            remark(f"group {group} has no matching dead letter")


@dead_letter.command()
@click.argument("group", shell_complete=group_names)
@click.argument("message_id", metavar="ID")
@always_json_option
@target_options
def show(target: Target, group: str, message_id: str) -> None:
    """Show everything of the dead letter ID of GROUP, as JSON. Exit code 1: there is none."""

    async def question(admin: AdminClient) -> tuple[Letter | None, tuple[str, ...]]:
        found = admin.dead_letters.find(group, _filter({"key": message_id}))
        async for letter in found:
            return letter, ()
        return None, found.unanswered

    letter, unanswered = target.administer(question)
    remark_unanswered(unanswered)
    if letter is None:
        if not unanswered:
            target.administer(lambda admin: admin.groups.describe(group))
        remark(f"group {group} has no dead letter {message_id}")
        raise click.exceptions.Exit(NEGATIVE)
    from aerobee.cli.message_lines import document_of_message

    print_json({**_document(letter), "message": document_of_message(letter.message)})


@dead_letter.command()
@click.argument("group", shell_complete=group_names)
@filter_options
@click.option(
    "--to",
    "to_topic",
    default="",
    metavar="TOPIC",
    help="Send them to TOPIC instead, for all groups that read it.",
)
@click.option(
    "--to-all-groups",
    is_flag=True,
    help="Send them to the topics they came from: every group that reads these gets them again.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    help="Send at most this many letters per second.",
)
@click.option(
    "--resends-max",
    type=click.IntRange(1, 16),
    default=3,
    show_default=True,
    help="Refuse letters that were resent this often and came back each time.",
)
@dry_run_option
@yes_option
@json_option
@target_options
def resend(
    target: Target,
    group: str,
    to_topic: str,
    to_all_groups: bool,
    rate: float | None,
    resends_max: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Send dead letters of GROUP again, each exactly once, to GROUP alone.

    No other group gets them, unless --to-all-groups or --to says so. A group with ordered listeners
    needs one of these. Attempts are counted from zero. Exit code 1: some were refused, for example
    because they were resent too often, or have no origin; these stay.
    """
    if to_topic and to_all_groups:
        raise click.UsageError("give either --to or --to-all-groups")
    if not dry_run:
        whom = "all groups of their topics" if to_all_groups else f"{to_topic or group}"
        confirm(f"Send dead letters of group {group} again, to {whom}?", yes=yes)

    async def settle(admin: AdminClient, some: list[Letter]) -> list[Any]:
        return await admin.dead_letters.resend(
            group, some, topic=to_topic, to_all_groups=to_all_groups, resends_max=resends_max
        )

    settled = _settle_all(target, group, wanted, settle, rate=rate, dry_run=dry_run)
    _tell("resent", group, settled, dry_run=dry_run, as_json=as_json)


@dead_letter.command()
@click.argument("group", shell_complete=group_names)
@filter_options
@dry_run_option
@yes_option
@json_option
@target_options
def drop(
    target: Target, group: str, dry_run: bool, yes: bool, as_json: bool, **wanted: Any
) -> None:
    """Drop dead letters of GROUP, so that they are no longer listed.

    They cannot be resent after that.
    """
    if not dry_run:
        confirm(f"Drop dead letters of group {group} for good?", yes=yes)

    async def settle(admin: AdminClient, some: list[Letter]) -> list[Any]:
        return await admin.dead_letters.drop(group, some)

    settled = _settle_all(target, group, wanted, settle, rate=None, dry_run=dry_run)
    _tell("dropped", group, settled, dry_run=dry_run, as_json=as_json)


class _Settled(NamedTuple):
    """How many letters were settled, why others were not, and who did not answer."""

    done: int
    refused: list[str]
    unanswered: tuple[str, ...]


def _settle_all(
    target: Target,
    group: str,
    wanted: dict[str, Any],
    settle: Callable[[AdminClient, list[Letter]], Any],
    *,
    rate: float | None,
    dry_run: bool,
) -> _Settled:
    async def question(admin: AdminClient) -> _Settled:
        size = BATCH if rate is None else max(1, min(BATCH, int(rate)))
        done, refused = 0, list[str]()
        batch: list[Letter] = []

        async def flush() -> None:
            nonlocal done
            some, told = batch[:], len(batch)
            batch.clear()
            if dry_run or not some:
                done += told
                return
            answers = await settle(admin, some)
            refused.extend(str(error) for error in answers if error is not None)
            before, done = done, done + sum(error is None for error in answers)
            if done // PROGRESS_LETTERS > before // PROGRESS_LETTERS:
                remark(f"{done:,} so far")
            if rate is not None:
                await asyncio.sleep(told / rate)

        found = admin.dead_letters.find(group, _filter(wanted))
        async for letter in found:
            batch.append(letter)
            if len(batch) >= size:
                await flush()
        await flush()
        if not (done or refused or found.unanswered):
            await admin.groups.describe(group)  # One that does not exist is worth a word.
        return _Settled(done, refused, found.unanswered)

    return target.administer(question)


def _tell(what: str, group: str, settled: _Settled, *, dry_run: bool, as_json: bool) -> None:
    done, refused, unanswered = settled
    remark_unanswered(unanswered)
    if as_json:
        document = {"group": group, what: done, "refused": refused, "changed": not dry_run}
        print_json({**document, "unanswered": list(unanswered)})
    else:
        prefix = f"would have {what}" if dry_run else what
        say(f"{prefix} {counted(done, 'dead letter')} of group {group}")
        for reason in dict.fromkeys(refused):
            remark(f"refused: {reason}")
    if refused:
        raise click.exceptions.Exit(NEGATIVE)


def _filter(wanted: dict[str, Any]) -> LetterFilter:
    from aerobee import LetterFilter

    return LetterFilter(**wanted)


def _document(letter: Letter) -> dict[str, Any]:
    told, message = letter.told, letter.message
    return {
        "messageId": message.message_id,
        # A stray was sent straight to the dead letters.
        "topic": None if told.origin.topic == message.queue.topic else told.origin.topic,
        "queue": told.origin.queue_id,
        "queueOffset": told.origin.queue_offset,
        "attempts": told.death.attempts,
        "reasonClass": told.death.reason_class,
        "reason": told.death.reason,
        "member": told.death.member,
        "timeMs": told.death.time_ms,
        "keys": list(message.keys),
        "resends": [
            {"timeMs": each.time_ms, "from": each.source, "to": each.target}
            for each in told.resends
        ],
    }
