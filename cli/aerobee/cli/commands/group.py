"""`aerobee group`: consumer groups, who holds which queue, and how far they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.options import confirm, dry_run_option, json_option, wide_option, yes_option
from aerobee.cli.output import counted, print_documents, print_json, say
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee.client_core import (
        Admin,
        ClusterConnection,
        GroupQueueState,
        GroupState,
        MessageQueue,
    )
    from aerobee.v1 import broker_pb2


@click.group()
def group() -> None:
    """Show and delete consumer groups: members, queue leases, committed offsets, lag."""


@group.command("list")
@json_option
@target_options
def list_groups(target: Target, as_json: bool) -> None:
    """List all groups that have members or offsets."""

    async def question(connection: ClusterConnection) -> list[GroupState]:
        from aerobee.client_core import Admin

        admin = Admin(connection)
        names = await admin.list_groups()
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(_described(admin, name)) for name in names]
        return [state for task in asked if (state := task.result()) is not None]

    states = target.ask(question)
    if as_json:
        print_json([_summary(state) for state in states])
        return
    print_documents(
        [
            {**_summary(state), "held": sum(bool(each.lease_holder) for each in state.queues)}
            for state in states
        ],
        {
            "group": "group",
            "members": "members",
            "topics": lambda state: " ".join(state["topics"]) or "-",
            "queues held": "held",
            "lag": "lag",
        },
        empty="no groups yet; create one with `aerobee consume TOPIC --group NAME`",
    )


@group.command()
@click.argument("name")
@json_option
@wide_option
@target_options
def show(target: Target, name: str, as_json: bool, wide: bool) -> None:
    """Show the members of the group NAME, and the holder, offset and lag of each queue."""

    async def question(connection: ClusterConnection) -> tuple[GroupState, dict[MessageQueue, int]]:
        from aerobee.client_core import Admin

        admin = Admin(connection)
        return await admin.describe_group(name), await admin.removed_unread(name)

    state, lost = target.ask(question)
    members = [_member(member) for member in state.members]
    queues = [_queue(queue) for queue in state.queues]
    losses = [{**_place(queue), "messages": lost[queue]} for queue in lost]
    if as_json:
        print_json(
            {
                **_summary(state),
                "memberList": members,
                "queueList": queues,
                "removedUnread": losses,
            }
        )
        return
    print_documents(
        members,
        {
            "member": "clientId",
            "mode": lambda member: "broadcasting" if member["broadcasting"] else "clustering",
            "subscriptions": lambda member: ", ".join(
                f"{topic} ({expression})" for topic, expression in member["subscriptions"].items()
            ),
            "heartbeat": lambda member: f"{member['lastHeartbeatAgeMs']} ms ago",
        },
        empty="no members",
        title=f"{name}: {counted(len(members), 'member')}, lag {state.lag:,}",
    )
    say()
    place = {"topic": "topic", "broker": "broker", "queue": "queue"}
    print_documents(
        queues,
        {
            **place,
            "held by": lambda queue: queue["leaseHolder"] or "-",
            "lease epoch": "leaseEpoch",
            "committed": "committedOffset",
            "max": "maxOffset",
            "lag": "lag",
        },
        droppable=("lease epoch", "max", "broker"),
        wide=wide,
    )
    if losses:
        say()
        print_documents(losses, {**place, "removed unread": "messages"})


@group.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="End the sessions of its members first.")
@dry_run_option
@yes_option
@json_option
@target_options
def delete(target: Target, name: str, force: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the group NAME: its offsets on all brokers, its leases and its settings.

    Refused while the group has members. --force ends their sessions and waits until none of them
    can still work; a member that keeps running joins again, as a new group. Messages stay.
    """
    if not dry_run:
        confirm(f"Delete group {name} with all its offsets?", yes=yes)

    async def question(connection: ClusterConnection) -> tuple[int, int]:
        from aerobee.client_core import Admin, Deletions

        if dry_run:
            state = await Admin(connection).describe_group(name)
            committed = [each for each in state.queues if each.committed_offset is not None]
            return len(state.members), len(committed)
        deleted = await Deletions(connection).delete_group(name, force=force)
        return deleted.members_ended, deleted.offsets

    members, offsets = target.ask(question)
    if as_json:
        document = {"group": name, "changed": not dry_run, "offsets": offsets}
        print_json({**document, "members": members})
        return
    told = f"{counted(members, 'session')}, {counted(offsets, 'offset')}"
    say(f"would delete group {name}: {told}" if dry_run else f"deleted group {name}: {told}")


async def _described(admin: Admin, name: str) -> GroupState | None:
    """None for a group that has gone since it was listed."""
    from aerobee.runtime.errors import GroupNotFound

    try:
        return await admin.describe_group(name)
    except GroupNotFound:
        return None


def _summary(state: GroupState) -> dict[str, Any]:
    subscribed = {each.topic for member in state.members for each in member.subscriptions}
    return {
        "group": state.group,
        "members": len(state.members),
        "topics": sorted(subscribed | {queue.queue.topic for queue in state.queues}),
        "lag": state.lag,
    }


def _member(member: broker_pb2.GroupMember) -> dict[str, Any]:
    return {
        "clientId": member.client_id,
        "broadcasting": member.broadcasting,
        "lastHeartbeatAgeMs": member.last_heartbeat_age_ms,
        "subscriptions": {
            each.topic: each.filter.expression or "*" for each in member.subscriptions
        },
    }


def _place(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}


def _queue(state: GroupQueueState) -> dict[str, Any]:
    return {
        **_place(state.queue),
        "leaseHolder": state.lease_holder,
        "leaseEpoch": state.lease_epoch if state.lease_holder else None,
        "committedOffset": state.committed_offset,
        "minOffset": state.min_offset,
        "maxOffset": state.max_offset_end,
        "lag": state.lag,
    }
