"""`aerobee offset`: move or delete the offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.completion import group_names, topic_names
from aerobee.cli.moments import MOMENT_METAVAR, Moment, moment_argument
from aerobee.cli.options import confirm, dry_run_option, json_option, wide_option, yes_option
from aerobee.cli.output import print_documents, print_json, remark, remark_unanswered
from aerobee.cli.queue_places import chosen_queues, offsets_at, queue_option, queue_place
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee import AdminClient, MessageQueue


@click.group()
def offset() -> None:
    """Move or delete the committed offsets of a consumer group."""


@offset.command()
@click.argument("group", shell_complete=group_names)
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--to",
    callback=moment_argument,
    metavar=MOMENT_METAVAR,
    help="The first message, the end, or the first message stored at or after TIME.",
)
@click.option("--to-offset", type=click.IntRange(min=0), help="This offset, on each chosen queue.")
@click.option("--create", is_flag=True, help="Create GROUP if no broker knows it.")
@queue_option(help="Only this queue; repeatable.  [default: all queues]")
@dry_run_option
@yes_option
@json_option
@wide_option
@target_options
def reset(
    target: Target,
    group: str,
    topic: str,
    to: Moment | None,
    to_offset: int | None,
    create: bool,
    queues: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    wide: bool,
) -> None:
    """Set the offsets of GROUP on TOPIC; members continue from there.

    Messages between the old and the new offset are skipped, or come again. Exit code 1: there is
    no such topic or group.
    """
    place = to if to_offset is None else to_offset
    if place is None or (to is not None and to_offset is not None):
        raise click.UsageError("give either --to first|last|TIME or --to-offset NUMBER")
    if not dry_run:
        confirm(f"Set the offsets of {group} on {topic}, whatever they are now?", yes=yes)

    async def question(admin: AdminClient) -> list[dict[str, Any]]:
        chosen = chosen_queues(await admin.topics.describe(topic), queues)
        if not create:
            await _check_known(admin, group)
        before = await admin.offsets.committed(group, chosen)
        bounds = await admin.offsets.bounds(chosen)
        after = await offsets_at(admin.offsets, bounds, place)
        if not dry_run:
            await admin.offsets.reset(group, after)
        return [
            {
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "before": before[queue],
                "after": new,
                "maxOffset": bounds[queue].max_offset_end,
            }
            for queue, new in sorted(after.items())
        ]

    changed = target.administer(question)
    columns = {"before": "before", "after": "after", "max": "maxOffset"}
    verb = "would be set to" if dry_run else "set to"
    _print(group, topic, changed, columns, verb, dry_run=dry_run, as_json=as_json, wide=wide)


async def _check_known(admin: AdminClient, group: str) -> None:
    """Raises GroupNotFound, so that no slip of the fingers makes a group."""
    from aerobee.runtime.errors import GroupNotFound

    try:
        await admin.groups.describe(group)
    except GroupNotFound as error:
        raise GroupNotFound(f"{error}, or give --create to make it") from None


@offset.command()
@click.argument("group", shell_complete=group_names)
@click.argument("topic", shell_complete=topic_names)
@queue_option(help="Only this queue, which may no longer exist; repeatable.  [default: all queues]")
@dry_run_option
@yes_option
@json_option
@wide_option
@target_options
def delete(
    target: Target,
    group: str,
    topic: str,
    queues: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    wide: bool,
) -> None:
    """Delete the offsets of GROUP on TOPIC.

    The group then starts there as a new group does. Includes offsets on queues and topics that no
    longer exist. Refused while a member holds one of the queues.
    """
    chosen = [queue_place(name) for name in queues]
    unanswered: list[str] = []
    if not dry_run:
        confirm(f"Delete the offsets of {group} on {topic}?", yes=yes)

    async def question(admin: AdminClient) -> dict[MessageQueue, int]:
        if dry_run:
            found = await admin.groups.committed_offsets(group, topic, chosen)
            unanswered.extend(found.unanswered)
            return found
        removed = await admin.groups.delete_offsets(group, topic, chosen)
        if not removed:
            await admin.groups.describe(group)  # One that does not exist is worth a word.
        return removed

    removed = [
        {"broker": queue.broker_name, "queue": queue.queue_id, "offset": committed}
        for queue, committed in target.administer(question).items()
    ]
    verb = "would be deleted" if dry_run else "deleted"
    remark_unanswered(unanswered)
    _print(
        group,
        topic,
        removed,
        {"offset": "offset"},
        verb,
        unanswered=unanswered,
        dry_run=dry_run,
        as_json=as_json,
        wide=wide,
    )


def _print(
    group: str,
    topic: str,
    queues: list[dict[str, Any]],
    columns: dict[str, str],
    verb: str,
    *,
    dry_run: bool,
    as_json: bool,
    wide: bool,
    unanswered: Sequence[str] = (),
) -> None:
    if as_json:
        document = {"group": group, "topic": topic, "changed": not dry_run, "queues": queues}
        print_json({**document, "unanswered": list(unanswered)})
        return
    if not queues:
        remark(f"group {group} has no offsets on {topic}")
        return
    print_documents(
        queues,
        {"broker": "broker", "queue": "queue", **columns},
        title=f"{group} on {topic}: {verb}",
        droppable=("max",),
        wide=wide,
    )
