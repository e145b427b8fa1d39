"""The commands of `aerobee schedule` about what recurs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aerobee.cli.completion import topic_names
from aerobee.cli.moments import delay_argument, time_argument, timestamp_text
from aerobee.cli.one_by_one import do_each
from aerobee.cli.options import (
    always_json_option,
    confirm,
    json_option,
    settings_option,
    wide_option,
    yes_option,
)
from aerobee.cli.output import print_json, print_table, remark, remark_unanswered, say
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee import AdminClient, Message, RecurringSchedule

RULES: Final = ("skip", "one", "all")

names_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)


def when_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """When a schedule runs, as `add` and `change` take it."""
    for option in (
        click.option(
            "--missed",
            type=click.Choice(RULES),
            help="Of runs that came due while none could be sent: skip sends the newest if it is "
            "at most a minute late, one sends the newest, all sends each.",
        ),
        click.option("--max-runs", type=click.IntRange(min=0), help="End after so many runs."),
        click.option(
            "--until", "until_ms", metavar="TIME", callback=time_argument, help="Run only before."
        ),
        click.option(
            "--from",
            "start_ms",
            metavar="TIME",
            callback=time_argument,
            help="Run only at this time or later; intervals are counted from it.",
        ),
        click.option(
            "--every",
            "every_ms",
            metavar="TIME",
            callback=delay_argument,
            help="Run in this interval: 30s, 2h.",
        ),
        click.option("--zone", help="The time zone of --cron: Europe/Berlin. [default: UTC]"),
        click.option(
            "--cron",
            metavar="EXPRESSION",
            help="Run at these times: minute, hour, day of month, month and day of week.",
        ),
    ):
        command = option(command)
    return command


def message_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a schedule sends, as `add` and `change` take it."""
    for option in (
        settings_option(
            "--property", "properties", metavar="NAME=VALUE", help="A property; repeatable."
        ),
        click.option("--key", "keys", multiple=True, help="A key; repeatable."),
        click.option("--tag", help="The tag of each message."),
        click.option(
            "--body-file",
            type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
            help="The body of each message, from a file; -: from standard input.",
        ),
        click.option("--body", help="The body of each message."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("name")
@click.argument("topic", shell_complete=topic_names)
@when_options
@message_options
@json_option
@target_options
def add(
    target: Target,
    name: str,
    topic: str,
    cron: str | None,
    zone: str | None,
    every_ms: int | None,
    start_ms: int | None,
    until_ms: int | None,
    max_runs: int | None,
    missed: str | None,
    body: str | None,
    body_file: Path | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: dict[str, str],
    as_json: bool,
) -> None:
    """Send a message to TOPIC again and again, by schedule NAME.

    Each run is sent exactly once. Prints the time of the first one.
    """
    from aerobee import Message

    if (cron is None) == (every_ms is None):
        raise click.UsageError("give either --cron EXPRESSION or --every TIME")
    if zone is not None and cron is None:
        raise click.UsageError("--zone is for --cron: an interval has no time zone")
    given = _body(body, body_file)
    if given is None:
        raise click.UsageError("give the message with --body TEXT or --body-file FILE")
    message = Message(topic, given, tag=tag, keys=keys, properties=properties)
    added = target.administer(
        lambda admin: admin.schedules.add(
            name,
            message,
            cron=cron or "",
            zone=zone or "UTC",
            every=_interval(every_ms),
            start=start_ms,
            until=until_ms,
            max_runs=max_runs or 0,
            missed=missed or "skip",  # type: ignore[arg-type]
        )
    )
    _tell(added, as_json=as_json)


@click.command()
@click.argument("name")
@when_options
@message_options
@json_option
@target_options
def change(
    target: Target,
    name: str,
    cron: str | None,
    zone: str | None,
    every_ms: int | None,
    start_ms: int | None,
    until_ms: int | None,
    max_runs: int | None,
    missed: str | None,
    body: str | None,
    body_file: Path | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: dict[str, str],
    as_json: bool,
) -> None:
    """Change what is given of the schedule NAME.

    --key and --property replace all keys and properties. Exit code 1: there is no such schedule.
    """
    given = _body(body, body_file)

    async def question(admin: AdminClient) -> RecurringSchedule:
        before = (await admin.schedules.find(name)).message
        is_other = given is not None or tag is not None or keys or properties
        return await admin.schedules.change(
            name,
            message=_changed(before, given, tag, keys, properties) if is_other else None,
            cron=cron,
            zone=zone,
            every=_interval(every_ms),
            start=start_ms,
            until=until_ms,
            max_runs=max_runs,
            missed=missed,  # type: ignore[arg-type]
        )

    _tell(target.administer(question), as_json=as_json)


@click.command()
@click.argument("topic", shell_complete=topic_names, required=False, default="")
@json_option
@wide_option
@target_options
def recurring(target: Target, topic: str, as_json: bool, wide: bool) -> None:
    """List the schedules that send to TOPIC, or to all topics, by name."""
    found = target.administer(lambda admin: admin.schedules.recurring(topic))
    if as_json:
        print_json(
            {
                "schedules": [_document(each) for each in found],
                "unanswered": list(found.unanswered),
            }
        )
    elif found:
        print_table(
            ["name", "topic", "runs at", "next", "runs", "missed", "trouble"],
            [
                [
                    each.name,
                    each.message.topic,
                    _rule(each),
                    _next(each),
                    each.runs,
                    each.missed_runs or None,
                    each.trouble or None,
                ]
                for each in found
            ],
            times="next",
            droppable=("missed", "runs", "trouble"),
            wide=wide,
        )
    remark_unanswered(found.unanswered)
    if not found and not as_json:
        remark("there is no schedule; `aerobee schedule add` adds one")


@click.command()
@click.argument("name")
@always_json_option
@target_options
def show(target: Target, name: str) -> None:
    """Show the schedule NAME as JSON.

    Exit code 1: there is no such schedule.
    """
    print_json(_document(target.administer(lambda admin: admin.schedules.find(name))))


@click.command()
@names_argument
@json_option
@target_options
def pause(target: Target, names: tuple[str, ...], as_json: bool) -> None:
    """Stop schedules until they are resumed.

    Exit code 1: there is no such schedule. The others are paused nevertheless.
    """
    _each(target, names, lambda admin, name: admin.schedules.pause(name), "paused", as_json=as_json)


@click.command()
@names_argument
@json_option
@target_options
def resume(target: Target, names: tuple[str, ...], as_json: bool) -> None:
    """Continue schedules that were paused.

    What would have run during the pause is not sent. Exit code 1: there is no such schedule. The
    others are resumed nevertheless.
    """
    _each(
        target, names, lambda admin, name: admin.schedules.resume(name), "resumed", as_json=as_json
    )


@click.command("run-now")
@names_argument
@json_option
@target_options
def run_now(target: Target, names: tuple[str, ...], as_json: bool) -> None:
    """Send one more run of schedules at once.

    Exit code 1: there is no such schedule. The others run nevertheless.
    """
    _each(target, names, lambda admin, name: admin.schedules.run_now(name), "run", as_json=as_json)


@click.command()
@names_argument
@yes_option
@json_option
@target_options
def remove(target: Target, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove schedules.

    Exit code 1: there is no such schedule. The others are removed nevertheless.
    """
    confirm(f"Remove {', '.join(names)}?", yes=yes)
    _each(
        target, names, lambda admin, name: admin.schedules.remove(name), "removed", as_json=as_json
    )


COMMANDS: Final = (add, change, recurring, show, pause, resume, run_now, remove)


def _each(target: Target, names: tuple[str, ...], act: Any, done: str, *, as_json: bool) -> None:
    do_each(target, names, act, member="name", done=done, noun="schedule", as_json=as_json)


def _body(text: str | None, file: Path | None) -> bytes | None:
    if text is not None and file is not None:
        raise click.UsageError("--body and --body-file exclude each other")
    if file is None:
        return None if text is None else text.encode()
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from None


def _interval(every_ms: int | None) -> timedelta | None:
    return None if every_ms is None else timedelta(milliseconds=every_ms)


def _changed(
    before: Message,
    body: bytes | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: dict[str, str],
) -> Message:
    from aerobee import Message

    return Message(
        before.topic,
        before.body if body is None else body,
        tag=before.tag if tag is None else tag or None,
        keys=keys or before.keys,
        properties=properties or before.properties,
    )


def _tell(schedule: RecurringSchedule, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(schedule))
    elif schedule.has_ended:
        say(f"{schedule.name} has ended")
    elif schedule.is_paused:
        say(f"{schedule.name} is paused")
    else:
        say(f"{schedule.name} runs next at {timestamp_text(schedule.next_ms)}")


def _rule(schedule: RecurringSchedule) -> str:
    if schedule.cron:
        return f"{schedule.cron} {schedule.zone}"
    return f"every {timedelta(milliseconds=schedule.every_ms)}"


def _next(schedule: RecurringSchedule) -> str:
    if schedule.is_paused:
        return "paused"
    return timestamp_text(schedule.next_ms) if schedule.next_ms else "ended"


def _document(schedule: RecurringSchedule) -> dict[str, object]:
    message = schedule.message
    document: dict[str, object] = {
        "name": schedule.name,
        "topic": message.topic,
        "broker": schedule.broker_name,
        "body": message.body.decode(errors="replace"),
        "missed": schedule.missed,
        "paused": schedule.is_paused,
        "ended": schedule.has_ended,
        "nextMs": schedule.next_ms,
        "runs": schedule.runs,
        "missedRuns": schedule.missed_runs,
        "lastMs": schedule.last_ms,
        "createdMs": schedule.created_ms,
    }
    if schedule.cron:
        document |= {"cron": schedule.cron, "zone": schedule.zone}
    else:
        document["everyMs"] = schedule.every_ms
    optional: dict[str, object] = {
        "fromMs": schedule.from_ms,
        "untilMs": schedule.until_ms,
        "maxRuns": schedule.max_runs,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "trouble": schedule.trouble,
    }
    return document | {name: value for name, value in optional.items() if value}
