"""`aerobee topic spread`: topics use new broker groups, and leave old ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.completion import broker_names, topic_names
from aerobee.cli.options import confirm, json_option, wide_option, yes_option
from aerobee.cli.output import counted, print_json, print_table, remark, say
from aerobee.cli.target import Target, asking_options
from aerobee.domain.topic_attributes import keeps_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee import AdminClient, Remaining, TopicSpread

TIMEOUT_MS = 10_000
LOOK_S = 1.0
"""How often `--wait` looks at what remains."""
_NAMED_MAX = 3


@click.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=topic_names)
@click.option("--all", "is_all", is_flag=True, help="Every topic of the cluster.")
@click.option(
    "--retire",
    metavar="BROKER",
    multiple=True,
    shell_complete=broker_names,
    help="Leave this broker group; repeatable.",
)
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=0.0,
    help="With --retire: wait until nothing remains there, then remove its queues.",
)
@click.option("--preview", is_flag=True, help="Only show what would change.")
@yes_option
@json_option
@wide_option
@asking_options(TIMEOUT_MS)
def spread(
    target: Target,
    name: str | None,
    is_all: bool,
    retire: tuple[str, ...],
    wait_s: float,
    preview: bool,
    yes: bool,
    as_json: bool,
    wide: bool,
) -> None:
    """Let the topic NAME use all broker groups, or leave some.

    Messages do not move. Without --retire, groups that have fewer queues of the topic get as many
    as the others. Some sharding keys and message groups move to new queues, once.

    With --retire BROKER, its queues there take no new messages, and each gets a successor: a new
    queue elsewhere that takes over its keys. No other key moves. Repeat the command to see what
    remains there; once nothing does, it removes these queues.

    Exit code 1: something remains there.
    """
    if is_all == (name is not None):
        raise click.UsageError("name one topic, or use --all")
    names = [name] if name is not None else target.administer(_all_names)

    async def plan(admin: AdminClient) -> list[TopicSpread]:
        return await _spread(admin, names, retire, is_all=is_all, preview=True)

    planned = target.administer(plan)
    changes = [each for each in planned if each.before != each.after]
    if not as_json:
        _show(changes, retire, wide=wide)
    if preview:
        if as_json:
            print_json([_document(each) for each in changes])
        return
    if changes:
        confirm(f"Change {counted(len(changes), 'topic')}?", yes=yes)

    async def carry_out(admin: AdminClient) -> list[dict[str, Any]]:
        wanted = [each.before.name for each in changes]
        await _spread(admin, wanted, retire, is_all=is_all, preview=False)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + wait_s
        while True:
            left = await _remove_finished(admin, [each.after.name for each in planned], retire)
            if not left or loop.time() >= end_s:
                return left
            await asyncio.sleep(LOOK_S)

    left = target.administer(carry_out)
    if as_json:
        print_json({"changed": [_document(each) for each in changes], "remaining": left})
    else:
        _show_left(left, retire, wide=wide)
    if left:
        raise SystemExit(1)


async def _all_names(admin: AdminClient) -> list[str]:
    return [each.name for each in await admin.topics.list()]


async def _spread(
    admin: AdminClient,
    names: Sequence[str],
    retire: Sequence[str],
    *,
    is_all: bool,
    preview: bool,
) -> list[TopicSpread]:
    """Of all topics, those without queues on a group to retire them from are left alone."""
    found = []
    present = {each.name: each for each in await admin.topics.list()} if is_all else {}
    for name in names:
        there = retire
        if is_all and retire:
            there = [each for each in retire if each in present[name].queues_by_broker]
            if not there:
                continue
        found.append(await admin.topics.spread(name, retire=there, preview=preview))
    return found


async def _remove_finished(
    admin: AdminClient, names: Sequence[str], retire: Sequence[str]
) -> list[dict[str, Any]]:
    """Takes queues out of topics where nothing remains; returns what remains elsewhere."""
    from aerobee.runtime.errors import AerobeeError

    left = []
    for name in names if retire else ():
        topic = await admin.topics.get(name)
        for broker in topic.retired:
            if broker not in retire:
                continue
            try:
                remaining = await admin.broker_groups.remaining(broker, topic=name)
            except AerobeeError as error:
                left.append({"topic": name, "broker": broker, "why": str(error)})
                continue
            if why := _why(remaining):
                left.append({"topic": name, "broker": broker, "why": why})
                continue
            await admin.topics.remove_retired(name, broker)
    return left


def _why(remaining: Remaining) -> str:
    """What keeps the queues; empty: nothing."""
    if remaining.refuses_in_s:
        return f"takes messages for another {remaining.refuses_in_s:.0f} s"
    if not remaining.refuses:
        return "has not heard of it yet"
    readers = [
        f"group {each.group}: {each.unread:,} unread in {each.topic}"
        for each in remaining.readers[:_NAMED_MAX]
    ]
    more = len(remaining.readers) - _NAMED_MAX
    parts = [*readers, *([f"{more} more"] if more > 0 else [])]
    for count, one, several in (
        (remaining.delayed, "message waits for its time", "messages wait for their time"),
        (remaining.open_transactions, "transaction is open", "transactions are open"),
        (remaining.set_aside, "transaction is set aside", "transactions are set aside"),
        (remaining.schedules, "schedule runs here", "schedules run here"),
    ):
        if count:
            parts.append(counted(count, one, several))
    return "; ".join(parts)


def _show(changes: Sequence[TopicSpread], retire: Sequence[str], *, wide: bool) -> None:
    rows = [
        [
            each.after.name,
            _queues(each.before.queues_by_broker, each.before.retired),
            _queues(each.after.queues_by_broker, each.after.retired),
        ]
        for each in changes
    ]
    if rows:
        print_table(["topic", "from", "to"], rows, wide=wide)
    elif not retire:
        say("nothing to spread: each topic has as many queues on one broker group as on the others")
    topics = [each.before for each in changes]
    moving = [each.name for each in topics if keeps_order(each.attributes, is_ordered=each.ordered)]
    if moving and not retire:
        remark(
            f"keys of {', '.join(moving[:_NAMED_MAX])}"
            f"{' and others' if len(moving) > _NAMED_MAX else ''} move once: newer messages of a "
            "key may be handled before older ones"
        )


def _show_left(left: Sequence[dict[str, Any]], retire: Sequence[str], *, wide: bool) -> None:
    if left:
        print_table(
            ["topic", "broker", "what remains"],
            [[each["topic"], each["broker"], each["why"]] for each in left],
            wide=wide,
        )
        remark("repeat the command to remove these queues once nothing remains")
    elif retire:
        say(f"no queue is left on {', '.join(retire)}")


def _queues(queues_by_broker: Any, retired: Sequence[str]) -> str:
    return ", ".join(
        f"{count} on {name}{' (retired)' if name in retired else ''}"
        for name, count in queues_by_broker.items()
    )


def _document(change: TopicSpread) -> dict[str, Any]:
    return {
        "topic": change.before.name,
        "from": change.before.queues_by_broker,
        "to": change.after.queues_by_broker,
        "retired": list(change.after.retired),
    }
