"""`aerobee schedule`: messages that wait for their time; `recurring.py` has those that recur."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.commands.recurring import COMMANDS
from aerobee.cli.completion import topic_names
from aerobee.cli.moments import delay_argument, time_argument, timestamp_text
from aerobee.cli.one_by_one import do_each
from aerobee.cli.options import confirm, json_option, wide_option, yes_option
from aerobee.cli.output import counted, print_json, print_table, remark, remark_unanswered, say
from aerobee.cli.target import Target, target_options
from aerobee.runtime.clock import SystemClock

if TYPE_CHECKING:
    from aerobee import AdminClient, WaitingMessage, WaitingMessages
    from aerobee.cli.one_by_one import Change

handles_argument = click.argument("handles", metavar="HANDLE...", nargs=-1, required=True)


@click.group()
def schedule() -> None:
    """Find, recall, deliver and move messages that wait for their time, and send some regularly.

    `add` sends a message again and again; `recurring` lists such schedules, and `change`, `pause`,
    `resume`, `run-now` and `remove` take their NAME. `list`, `recall`, `deliver-now` and `move` are
    about messages that were sent with a delay or a time.

    A HANDLE identifies a message. `aerobee produce --delay` and `aerobee schedule list --handles`
    print it.
    """


for command in COMMANDS:
    schedule.add_command(command)


@schedule.command("list")
@click.argument("topic", shell_complete=topic_names, required=False, default="")
@click.option(
    "--from", "begin_ms", metavar="TIME", callback=time_argument, help="Only those due at or after."
)
@click.option(
    "--until", "end_ms", metavar="TIME", callback=time_argument, help="Only those due before."
)
@click.option("--key", default="", help="Only those with this key, or this message id.")
@click.option(
    "--max",
    "max_messages",
    type=click.IntRange(min=1, max=100_000),
    default=100,
    show_default=True,
    help="List at most this many messages, those that are due first.",
)
@click.option(
    "--handles",
    is_flag=True,
    help="Print only recall handles, one per line. Messages with a delay level have none.",
)
@json_option
@wide_option
@target_options
def list_(
    target: Target,
    topic: str,
    begin_ms: int | None,
    end_ms: int | None,
    key: str,
    max_messages: int,
    handles: bool,
    as_json: bool,
    wide: bool,
) -> None:
    """List waiting messages of TOPIC, or of all topics, by time.

    TIME is a local time such as 2026-01-31T12:00, or Unix milliseconds. Exit code 1: there is no
    such topic.
    """
    found = target.administer(
        lambda admin: admin.schedules.list(
            topic,
            begin_ms=begin_ms or 0,
            end_ms=end_ms or 0,
            key=key,
            max_messages=max_messages,
        )
    )
    if as_json:
        print_json(
            {
                "messages": [_document(each) for each in found.messages],
                "more": found.more,
                "unanswered": list(found.unanswered),
            }
        )
    elif handles:
        for each in found.messages:
            if each.recall_handle:
                say(each.recall_handle)
    elif found.messages:
        _print_list(found, wide=wide)
    if found.more and not as_json:
        remark("there are more: bound the time with --from and --until, or raise --max")
    remark_unanswered(found.unanswered)
    if not found.messages:
        if topic:
            target.administer(lambda admin: admin.topics.describe(topic))
        if not as_json:
            remark("no matching message waits; `aerobee produce --delay TIME` sends one that does")


@schedule.command()
@handles_argument
@yes_option
@json_option
@target_options
def recall(target: Target, handles: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Cancel messages: they are never delivered.

    Exit code 1: a message is no longer waiting. The others are recalled nevertheless.
    """
    confirm(f"Cancel {counted(len(handles), 'message')} for good?", yes=yes)
    _each(
        target,
        handles,
        lambda admin, handle: admin.schedules.recall(handle),
        "recalled",
        as_json=as_json,
    )


@schedule.command("deliver-now")
@handles_argument
@yes_option
@json_option
@target_options
def deliver_now(target: Target, handles: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Deliver messages at once.

    Exit code 1: a message is no longer waiting. The others are delivered nevertheless.
    """
    confirm(f"Deliver {counted(len(handles), 'message')} now?", yes=yes)
    _each(
        target,
        handles,
        lambda admin, handle: admin.schedules.deliver_now(handle),
        "delivered",
        as_json=as_json,
    )


@schedule.command()
@handles_argument
@click.option(
    "--at", "deliver_ms", metavar="TIME", callback=time_argument, help="Deliver at this time."
)
@click.option(
    "--delay",
    "delay_ms",
    metavar="TIME",
    callback=delay_argument,
    help="Deliver after this time: 30s, 2h.",
)
@json_option
@target_options
def move(
    target: Target,
    handles: tuple[str, ...],
    deliver_ms: int | None,
    delay_ms: int | None,
    as_json: bool,
) -> None:
    """Change when messages are delivered. Prints their new handles.

    Exit code 1: a message is no longer waiting. The others are moved nevertheless.
    """
    if (deliver_ms is None) == (delay_ms is None):
        raise click.UsageError("give either --at TIME or --delay TIME")
    at_ms = deliver_ms if delay_ms is None else SystemClock().now_ms() + delay_ms
    assert at_ms is not None, "one of them is given"

    async def change(admin: AdminClient, handle: str) -> dict[str, Any]:
        moved = await admin.schedules.move(handle, at_ms)
        if not as_json:
            say(moved)
        return {"newRecallHandle": moved, "deliverMs": at_ms}

    _each(target, handles, change, "moved", noun="", as_json=as_json)


def _each(
    target: Target,
    handles: tuple[str, ...],
    change: Change,
    done: str,
    *,
    noun: str = "message",
    as_json: bool,
) -> None:
    do_each(target, handles, change, member="recallHandle", done=done, noun=noun, as_json=as_json)


def _document(waiting: WaitingMessage) -> dict[str, object]:
    document: dict[str, object] = {
        "topic": waiting.queue.topic,
        "broker": waiting.queue.broker_name,
        "queue": waiting.queue.queue_id,
        "deliverMs": waiting.deliver_ms,
        "messageId": waiting.message_id,
        "bornMs": waiting.born_timestamp_ms,
        "storedMs": waiting.store_timestamp_ms,
        "bodyBytes": waiting.body_bytes,
    }
    if waiting.delay_level:
        document["delayLevel"] = waiting.delay_level
    if waiting.recall_handle:
        document["recallHandle"] = waiting.recall_handle
    if waiting.tag:
        document["tag"] = waiting.tag
    if waiting.keys:
        document["keys"] = list(waiting.keys)
    return document


def _print_list(found: WaitingMessages, *, wide: bool) -> None:
    print_table(
        ["due", "topic", "broker", "id", "level", "tag", "keys", "bytes"],
        [
            [
                timestamp_text(each.deliver_ms),
                each.queue.topic,
                each.queue.broker_name,
                each.message_id or None,
                each.delay_level or None,
                each.tag or None,
                " ".join(each.keys) or None,
                each.body_bytes,
            ]
            for each in found.messages
        ],
        times="due",
        droppable=("level", "bytes", "broker", "tag", "keys"),
        wide=wide,
    )
