"""`aerobee message`: single messages, found by position or by key."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from aerobee.cli.completion import topic_names
from aerobee.cli.failures import NEGATIVE
from aerobee.cli.moments import Moment, MomentKind, moment_argument, timestamp_text
from aerobee.cli.options import json_option, wide_option
from aerobee.cli.output import counted, print_json, print_table, remark, remark_unanswered, say
from aerobee.cli.target import Target, target_options
from aerobee.runtime.printable import printable

if TYPE_CHECKING:
    from aerobee import AdminClient, FoundMessages, ReceivedMessage
    from aerobee.client_core import Messages

_OFFSET_MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_PLACE = re.compile(r"(?P<broker>[^:]+):(?P<offset>\d{1,19})", re.ASCII)
_OFFSET_END = 1 << 63
BODY_PREVIEW_CHARACTERS = 40


@click.group()
def message() -> None:
    """Find single messages, whether read or not."""


@message.command()
@click.argument("message_id", metavar="ID")
@click.option(
    "--topic",
    shell_complete=topic_names,
    help="Look for ID as a producer's message id, in this topic.",
)
@json_option
@target_options
def get(target: Target, message_id: str, topic: str | None, as_json: bool) -> None:
    """Show one message.

    ID is an offset message id (32 or 56 hex digits), BROKER:OFFSET with an offset in that broker's
    log, or, with --topic, a producer's message id. Exit code 1: there is no such message.
    """
    if topic is None and not (
        _OFFSET_MESSAGE_ID.fullmatch(message_id) or _PLACE.fullmatch(message_id)
    ):
        raise click.UsageError(
            f"{message_id!r} is neither an offset message id (32 or 56 hex digits) nor "
            "BROKER:OFFSET; if it is the id that its producer gave the message, name the topic "
            "with --topic"
        )
    place = None if topic is not None else _PLACE.fullmatch(message_id)
    if place is not None and int(place["offset"]) >= _OFFSET_END:
        raise click.UsageError(f"{place['offset']} is not an offset: offsets end at 2^63")
    _check_text(message_id, topic or "")

    from aerobee.cli.message_lines import document_of_message

    found = target.administer(lambda admin: _get(admin.messages, message_id, topic))
    if as_json:
        print_json(document_of_message(found))
    else:
        _print_message(found)


async def _get(messages: Messages, message_id: str, topic: str | None) -> ReceivedMessage:
    from aerobee.runtime.errors import MessageNotFound, NoBrokerAvailable

    if topic is None:
        if place := _PLACE.fullmatch(message_id):
            return await messages.by_offset(place["broker"], int(place["offset"]))
        try:
            return await messages.by_id(message_id)
        except MessageNotFound as error:
            raise MessageNotFound(
                f"{error}; or it is the id that its producer gave it: then name the topic with "
                "--topic"
            ) from error
    found = await messages.by_unique_key(topic, message_id)
    remark_unanswered(found.unanswered)
    if len(found.messages) > 1:
        remark(f"{len(found.messages)} messages have this id; this is the newest")
    if found.messages:
        return found.messages[0]
    if _OFFSET_MESSAGE_ID.fullmatch(message_id):
        by_id = await messages.by_id(message_id)
        if by_id.topic == topic:
            return by_id
    if found.unanswered:
        raise NoBrokerAvailable(
            f"the brokers that answered have no message with the id {message_id} in topic {topic}: "
            "try again later"
        )
    raise MessageNotFound(f"topic {topic} has no message with the id {message_id}")


@message.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--key", help="One of the keys that the producer gave the message.")
@click.option("--unique-key", help="The message id that the producer's client made.")
@click.option(
    "--begin",
    callback=moment_argument,
    metavar="TIME",
    help="Only messages stored at or after TIME.",
)
@click.option(
    "--end",
    callback=moment_argument,
    metavar="TIME",
    help="Only messages stored at or before TIME.",
)
@click.option(
    "--max",
    "max_messages",
    type=click.IntRange(1, 100_000),
    default=64,
    show_default=True,
    help="List at most this many messages, the newest ones.",
)
@json_option
@wide_option
@target_options
def query(
    target: Target,
    topic: str,
    key: str | None,
    unique_key: str | None,
    begin: Moment | None,
    end: Moment | None,
    max_messages: int,
    as_json: bool,
    wide: bool,
) -> None:
    """List the messages of TOPIC that have a key, newest first.

    TIME is an age such as 90s, 15m, 2h or 3d, a local time such as 2026-01-31T12:00, or Unix
    milliseconds. Exit code 1: nothing was found.
    """
    if (key is None) == (unique_key is None):
        raise click.UsageError("give either --key or --unique-key")
    _check_text(topic, key or "", unique_key or "")

    from aerobee.cli.message_lines import document_of_message

    async def question(admin: AdminClient) -> FoundMessages:
        bounds = {
            "begin_ms": _time_ms(begin),
            "end_ms": _time_ms(end),
            "max_messages": max_messages,
        }
        if key is not None:
            return await admin.messages.by_key(topic, key, **bounds)
        assert unique_key is not None
        return await admin.messages.by_unique_key(topic, unique_key, **bounds)

    found = target.administer(question)
    if as_json:
        print_json(
            {
                "messages": [document_of_message(each) for each in found.messages],
                "more": found.more,
                "unanswered": list(found.unanswered),
            }
        )
    elif found.messages:
        _print_list(found, wide=wide)
    remark_unanswered(found.unanswered)
    if not found.messages:
        if found.more:
            remark("the search is incomplete: bound the time with --begin and --end")
        elif not as_json:
            remark("no message found")
        raise click.exceptions.Exit(NEGATIVE)


def _check_text(*texts: str) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise click.UsageError(
                f"{text!a} is not UTF-8 text, as names, keys and message ids must be"
            ) from None


def _time_ms(moment: Moment | None) -> int:
    """0, which leaves the side open, for none, `first` and `last`."""
    if moment is None or moment.kind is not MomentKind.TIME:
        return 0
    return moment.timestamp_ms


def _print_list(found: FoundMessages, *, wide: bool) -> None:
    print_table(
        ["stored", "broker", "queue", "offset", "id", "tag", "keys", "body"],
        [
            [
                timestamp_text(each.store_timestamp_ms),
                each.queue.broker_name,
                each.queue.queue_id,
                each.queue_offset,
                each.message_id,
                each.tag,
                " ".join(each.keys) or None,
                _preview(each),
            ]
            for each in found.messages
        ],
        times="stored",
        droppable=("offset", "queue", "broker", "tag", "keys"),
        cuttable="body",
        wide=wide,
    )
    if found.more:
        remark("there are more: raise --max, or bound the time with --begin and --end")


def _print_message(found: ReceivedMessage) -> None:
    rows = [
        ("topic", found.topic),
        ("queue", f"{found.queue.broker_name}:{found.queue.queue_id}"),
        ("offset", str(found.queue_offset)),
        ("stored", timestamp_text(found.store_timestamp_ms)),
        ("born", f"{timestamp_text(found.born_timestamp_ms)} at {found.record.born_host}"),
        ("id", found.message_id),
        ("offset id", found.offset_message_id),
        ("log", f"{found.record.physical_offset}, {counted(found.record.size, 'byte')}"),
    ]
    rows += [(name, value) for name, value in sorted(found.properties.items())]
    if found.reconsume_times:
        rows.append(("consumed", f"{counted(found.reconsume_times, 'time')} before"))
    rows = [(printable(name), value) for name, value in rows]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        say(f"{name:{width}}  {value}")
    say()
    _print_body(_body_text(found))


def _preview(found: ReceivedMessage) -> str:
    text = printable(_body_text(found))
    if len(text) > BODY_PREVIEW_CHARACTERS:
        return text[: BODY_PREVIEW_CHARACTERS - 3] + "..."
    return text


def _print_body(text: str) -> None:
    """Several lines stay several; a pipe gets it as it is."""
    if sys.stdout.isatty():
        say(text, keep="\n\t")
    else:
        sys.stdout.write(text + "\n")


def _body_text(found: ReceivedMessage) -> str:
    """The body for a person's eyes; --json has the bytes."""
    from aerobee.runtime.errors import CorruptBody

    try:
        body = found.body
    except CorruptBody as error:
        return f"({error})"
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"({counted(len(body), 'byte')}, not text; --json shows them)"
