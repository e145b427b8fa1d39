"""`aerobee offset`: an operator's hand on a group's offsets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from aerobee.cli.confirm import confirm, yes_option
from aerobee.cli.event_loop import run
from aerobee.cli.moments import MOMENT_METAVAR, Moment, MomentKind, moment_argument
from aerobee.cli.output import json_option, print_json, print_table
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee.client_core import MessageQueue, Offsets, QueueBounds


queue_option = partial(click.option, "--queue", "queues", multiple=True, metavar="BROKER:ID")


@click.group()
def offset() -> None:
    """Move or delete the committed offsets of a consumer group."""


@offset.command()
@click.argument("group")
@click.argument("topic")
@click.option(
    "--to",
    callback=moment_argument,
    metavar=MOMENT_METAVAR,
    help="The first message, the end, or the first message since TIME.",
)
@click.option("--to-offset", type=click.IntRange(min=0), help="This offset, on every chosen queue.")
@queue_option(help="Only this queue; repeatable.  [default: all queues]")
@click.option("--dry-run", is_flag=True, help="Show what would be set and change nothing.")
@yes_option
@json_option
@target_options
def reset(
    target: Target,
    group: str,
    topic: str,
    to: Moment | None,
    to_offset: int | None,
    queues: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Set the offsets of GROUP on TOPIC; running members continue from there.

    Messages between the old and the new offset are skipped or come again.
    """
    if (to is None) == (to_offset is None):
        raise click.UsageError("say where to: either --to first|last|TIME or --to-offset NUMBER")
    if not dry_run:
        confirm(f"Set the offsets of {group} on {topic}, whatever they are now?", yes=yes)

    async def main() -> None:
        from aerobee.client_core import Offsets

        async with target.connect() as connection:
            route = await connection.routes.route(topic)
            chosen = _chosen(route.queues, queues)
            offsets = Offsets(connection)
            before = await offsets.committed(group, chosen)
            bounds = await offsets.bounds(chosen)
            after = await _targets(offsets, bounds, to, to_offset)
            if not dry_run:
                await offsets.reset(group, after)
        _print(group, topic, before, after, bounds, dry_run=dry_run, as_json=as_json)

    run(main)


@offset.command()
@click.argument("group")
@click.argument("topic")
@queue_option(help="Only this queue, which need not exist any more; repeatable.  [default: all]")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted and change nothing.")
@yes_option
@json_option
@target_options
def delete(
    target: Target,
    group: str,
    topic: str,
    queues: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Forget the offsets of GROUP on TOPIC; the group begins there anew when it comes back.

    Also of queues and topics that do not exist any more. Refused while a member holds one of the
    queues.
    """
    chosen = [_place(name) for name in queues]
    if not dry_run:
        confirm(f"Delete the offsets of {group} on {topic}?", yes=yes)

    async def main() -> None:
        from aerobee.client_core import Deletions

        async with target.connect() as connection:
            deletions = Deletions(connection)
            if dry_run:
                removed = await deletions.committed_offsets(group, topic, chosen)
            else:
                removed = await deletions.delete_offsets(group, topic, chosen)
        if as_json:
            print_json(
                {
                    "group": group,
                    "topic": topic,
                    "changed": not dry_run,
                    "queues": [
                        {"broker": queue.broker_name, "queue": queue.queue_id, "offset": committed}
                        for queue, committed in removed.items()
                    ],
                }
            )
            return
        print_table(
            ["broker", "queue", "offset"],
            [[queue.broker_name, queue.queue_id, each] for queue, each in removed.items()],
            title=f"{group} on {topic}: " + ("would be deleted" if dry_run else "deleted"),
        )

    run(main)


def _place(name: str) -> tuple[str, int]:
    broker, _, queue_id = name.rpartition(":")
    if not broker or not (queue_id.isascii() and queue_id.isdigit()):
        raise click.UsageError(f"--queue is BROKER:ID, as broker-a:3, not {name!r}")
    return broker, int(queue_id)


def _chosen(known: tuple[MessageQueue, ...], wanted: tuple[str, ...]) -> list[MessageQueue]:
    if not wanted:
        return list(known)
    by_name = {f"{queue.broker_name}:{queue.queue_id}": queue for queue in known}
    for name in wanted:
        if name not in by_name:
            raise click.UsageError(
                f"the topic has no queue {name!r}; its queues are {', '.join(by_name)}"
            )
    return [by_name[name] for name in dict.fromkeys(wanted)]


async def _targets(
    offsets: Offsets,
    bounds: dict[MessageQueue, QueueBounds],
    to: Moment | None,
    to_offset: int | None,
) -> dict[MessageQueue, int]:
    """The new offset of each queue, inside what the queue holds."""
    if to is None:
        assert to_offset is not None
        return {
            queue: min(max(to_offset, held.min_offset), held.max_offset_end)
            for queue, held in bounds.items()
        }
    if to.kind is MomentKind.FIRST:
        return {queue: held.min_offset for queue, held in bounds.items()}
    if to.kind is MomentKind.LAST:
        return {queue: held.max_offset_end for queue, held in bounds.items()}
    found = await offsets.by_timestamp(bounds, to.timestamp_ms)
    return {
        # Nothing is as new as that: the end.
        queue: held.max_offset_end
        if held.count == 0 or held.last_store_timestamp_ms < to.timestamp_ms
        else found[queue]
        for queue, held in bounds.items()
    }


def _print(
    group: str,
    topic: str,
    before: dict[MessageQueue, int | None],
    after: dict[MessageQueue, int],
    bounds: dict[MessageQueue, QueueBounds],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        print_json(
            {
                "group": group,
                "topic": topic,
                "changed": not dry_run,
                "queues": [
                    {
                        "broker": queue.broker_name,
                        "queue": queue.queue_id,
                        "before": before[queue],
                        "after": new,
                        "maxOffset": bounds[queue].max_offset_end,
                    }
                    for queue, new in sorted(after.items())
                ],
            }
        )
        return
    print_table(
        ["broker", "queue", "before", "after", "max"],
        [
            [queue.broker_name, queue.queue_id, before[queue], new, bounds[queue].max_offset_end]
            for queue, new in sorted(after.items())
        ],
        title=f"{group} on {topic}: " + ("would be set to" if dry_run else "set to"),
    )
