"""Places in a topic that options name: single queues, and an offset or a moment in each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from aerobee.cli.moments import Moment, MomentKind

if TYPE_CHECKING:
    from aerobee import MessageQueue, QueueBounds, TopicDescription
    from aerobee.client_core import Offsets

queue_option = partial(click.option, "--queue", "queues", multiple=True, metavar="BROKER:ID")


def queue_place(name: str) -> tuple[str, int]:
    """Raises click.UsageError if it is no BROKER:ID."""
    broker, _, queue_id = name.rpartition(":")
    if not broker or not (queue_id.isascii() and queue_id.isdigit()):
        raise click.UsageError(f"--queue must be BROKER:ID, such as broker-a:3, not {name!r}")
    return broker, int(queue_id)


def chosen_queues(topic: TopicDescription, wanted: tuple[str, ...]) -> list[MessageQueue]:
    """Those that `--queue` names, or all; click.UsageError for one that the topic does not have."""
    known = [each.queue for each in topic.queues]
    if not wanted:
        return known
    by_name = {f"{queue.broker_name}:{queue.queue_id}": queue for queue in known}
    for name in wanted:
        if name not in by_name:
            raise click.UsageError(
                f"the topic has no queue {name!r}; its queues are {', '.join(by_name)}"
            )
    return [by_name[name] for name in dict.fromkeys(wanted)]


async def offsets_at(
    offsets: Offsets, bounds: dict[MessageQueue, QueueBounds], to: Moment | int
) -> dict[MessageQueue, int]:
    """Of each queue the offset, inside what the queue holds, that a moment or an offset means."""
    if isinstance(to, int):
        return {
            queue: min(max(to, held.min_offset), held.max_offset_end)
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
