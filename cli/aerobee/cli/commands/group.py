"""`aerobee group`: consumer groups, who holds which queue, and how far they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from aerobee.cli.confirm import confirm, yes_option
from aerobee.cli.event_loop import run
from aerobee.cli.output import counted, json_option, print_json, print_table, say, wide_option
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee.client_core import Admin, GroupQueueState, GroupState, MessageQueue
    from aerobee.v1 import broker_pb2


@click.group()
def group() -> None:
    """Show consumer groups: members, queue leases, committed offsets, lag; delete them."""


@group.command("list")
@json_option
@target_options
def list_groups(target: Target, as_json: bool) -> None:
    """List all groups that have members or offsets."""

    async def main() -> None:
        from aerobee.client_core import Admin

        async with target.connect() as connection:
            admin = Admin(connection)
            names = await admin.list_groups()
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(_described(admin, name)) for name in names]
        states = [state for task in asked if (state := task.result()) is not None]
        if as_json:
            print_json([_summary(state) for state in states])
            return
        print_table(
            ["group", "members", "topics", "queues held", "lag"],
            [
                [
                    state.group,
                    len(state.members),
                    " ".join(_topics(state)) or "-",
                    sum(1 for queue in state.queues if queue.lease_holder),
                    state.lag,
                ]
                for state in states
            ],
            empty="no groups yet; one begins with `aerobee consume TOPIC --group NAME`",
        )

    run(main)


@group.command()
@click.argument("name")
@json_option
@wide_option
@target_options
def show(target: Target, name: str, as_json: bool, wide: bool) -> None:
    """Show the members of the group NAME and each queue's holder, offset and lag."""

    async def main() -> None:
        from aerobee.client_core import Admin

        async with target.connect() as connection:
            admin = Admin(connection)
            state = await admin.describe_group(name)
            lost = await admin.removed_unread(name)
        if as_json:
            print_json(
                {
                    **_summary(state),
                    "memberList": [_member(member) for member in state.members],
                    "queueList": [_queue(queue) for queue in state.queues],
                    "removedUnread": [_loss(queue, lost[queue]) for queue in lost],
                }
            )
            return
        print_table(
            ["member", "mode", "subscriptions", "heartbeat"],
            [
                [
                    member.client_id,
                    "broadcasting" if member.broadcasting else "clustering",
                    _subscriptions(member),
                    f"{member.last_heartbeat_age_ms} ms ago",
                ]
                for member in state.members
            ],
            empty="no member has joined now",
            title=f"{name}: {counted(len(state.members), 'member')}, lag {state.lag:,}",
        )
        say()
        print_table(
            ["topic", "broker", "queue", "held by", "lease epoch", "committed", "max", "lag"],
            [
                [
                    queue.queue.topic,
                    queue.queue.broker_name,
                    queue.queue.queue_id,
                    queue.lease_holder or "-",
                    queue.lease_epoch if queue.lease_holder else None,
                    queue.committed_offset,
                    queue.max_offset_end,
                    queue.lag,
                ]
                for queue in state.queues
            ],
            droppable=("lease epoch", "max", "broker"),
            wide=wide,
        )
        if lost:
            say()
            print_table(
                ["topic", "broker", "queue", "removed unread"],
                [[each.topic, each.broker_name, each.queue_id, lost[each]] for each in lost],
            )

    run(main)


@group.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="End the sessions of its members first.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted and change nothing.")
@yes_option
@json_option
@target_options
def delete(target: Target, name: str, force: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the group NAME: its offsets on all brokers, its leases and its settings.

    Refused while it has members. --force ends their sessions and waits until none of them can still
    work; a member that is not stopped joins again, as a new group. Messages stay.
    """
    if not dry_run:
        confirm(f"Delete group {name} with all its offsets?", yes=yes)

    async def main() -> None:
        from aerobee.client_core import Admin, Deletions

        async with target.connect() as connection:
            if dry_run:
                state = await Admin(connection).describe_group(name)
                members = len(state.members)
                offsets = sum(1 for each in state.queues if each.committed_offset is not None)
            else:
                deleted = await Deletions(connection).delete_group(name, force=force)
                members, offsets = deleted.members_ended, deleted.offsets
        if as_json:
            document = {"group": name, "changed": not dry_run, "offsets": offsets}
            print_json({**document, "members": members})
            return
        told = f"{counted(members, 'session')}, {counted(offsets, 'offset')}"
        say(f"would delete group {name}: {told}" if dry_run else f"deleted group {name}: {told}")

    run(main)


async def _described(admin: Admin, name: str) -> GroupState | None:
    """None for a group that has gone since it was listed."""
    from aerobee.runtime.errors import GroupNotFound

    try:
        return await admin.describe_group(name)
    except GroupNotFound:
        return None


def _topics(state: GroupState) -> list[str]:
    subscribed = {each.topic for member in state.members for each in member.subscriptions}
    return sorted(subscribed | {queue.queue.topic for queue in state.queues})


def _subscriptions(member: broker_pb2.GroupMember) -> str:
    return ", ".join(
        f"{each.topic} ({each.filter.expression or '*'})" for each in member.subscriptions
    )


def _summary(state: GroupState) -> dict[str, object]:
    return {
        "group": state.group,
        "members": len(state.members),
        "topics": _topics(state),
        "lag": state.lag,
    }


def _member(member: broker_pb2.GroupMember) -> dict[str, object]:
    return {
        "clientId": member.client_id,
        "broadcasting": member.broadcasting,
        "lastHeartbeatAgeMs": member.last_heartbeat_age_ms,
        "subscriptions": {
            each.topic: each.filter.expression or "*" for each in member.subscriptions
        },
    }


def _loss(queue: MessageQueue, messages: int) -> dict[str, object]:
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "messages": messages,
    }


def _queue(state: GroupQueueState) -> dict[str, object]:
    return {
        "topic": state.queue.topic,
        "broker": state.queue.broker_name,
        "queue": state.queue.queue_id,
        "leaseHolder": state.lease_holder,
        "leaseEpoch": state.lease_epoch if state.lease_holder else None,
        "committedOffset": state.committed_offset,
        "minOffset": state.min_offset,
        "maxOffset": state.max_offset_end,
        "lag": state.lag,
    }
