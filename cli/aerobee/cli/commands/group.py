"""`aerobee group`: consumer groups, who holds which queue, and how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.completion import group_names
from aerobee.cli.options import confirm, dry_run_option, json_option, wide_option, yes_option
from aerobee.cli.output import (
    counted,
    print_documents,
    print_json,
    remark,
    remark_unanswered,
    say,
)
from aerobee.cli.retry_words import retry_lines
from aerobee.cli.target import Target, target_options
from aerobee.domain.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee import (
        AdminClient,
        AnswerDict,
        Group,
        GroupQueueState,
        GroupRetry,
        Member,
        MessageQueue,
    )
    from aerobee.runtime.errors import AerobeeError


@click.group()
def group() -> None:
    """Show, configure and delete consumer groups: members, leases, offsets, lag, retries."""


@group.command("list")
@click.option("--all", "with_own", is_flag=True, help="Also list groups of the system.")
@json_option
@wide_option
@target_options
def list_groups(target: Target, with_own: bool, as_json: bool, wide: bool) -> None:
    """List all groups that have members, offsets or settings."""
    states = target.administer(lambda admin: admin.groups.describe_all(with_own=with_own))
    if as_json:
        print_json([_summary(state) for state in states])
        remark_unanswered(states.unanswered)
        return
    print_documents(
        [
            {
                **_summary(state),
                "held": sum(
                    bool(each.lease_holder) and not _is_of_retries(each.queue.topic)
                    for each in state.queues
                ),
            }
            for state in states
        ],
        {
            "group": "group",
            "members": "members",
            "topics": lambda state: (
                " ".join(each for each in state["topics"] if not _is_of_retries(each)) or "-"
            ),
            "queues held": "held",
            "lag": "lag",
        },
        droppable=("queues held", "topics", "members"),
        wide=wide,
        empty="no groups yet; create one with `aerobee consume TOPIC --group NAME`",
    )
    remark_unanswered(states.unanswered)


@group.command()
@click.argument("name", shell_complete=group_names)
@json_option
@wide_option
@target_options
def show(target: Target, name: str, as_json: bool, wide: bool) -> None:
    """Show the members, retries and queues of the group NAME.

    Of each queue: who holds it, the committed offset and the lag.
    """

    async def question(admin: AdminClient) -> tuple[Group, AnswerDict[MessageQueue, int]]:
        return await admin.groups.describe(name), await admin.groups.removed_unread(name)

    state, lost = target.administer(question)
    members = [_member(member) for member in state.members]
    queues = [_queue(queue) for queue in state.queues]
    losses = [{**_place(queue), "messages": lost[queue]} for queue in lost]
    unanswered = sorted({*state.unanswered, *lost.unanswered})
    lag = "not known" if state.lag is None else f"{state.lag:,}"
    if as_json:
        print_json(
            {
                **_summary(state),
                "retry": {broker: _retry(each) for broker, each in state.retry.items()},
                "memberList": members,
                "queueList": queues,
                "removedUnread": losses,
            }
        )
        remark_unanswered(unanswered)
        return
    if members:
        print_documents(
            members,
            {
                "member": "clientId",
                "mode": _mode,
                "subscriptions": lambda member: ", ".join(
                    f"{topic} ({expression})"
                    for topic, expression in member["subscriptions"].items()
                ),
                "heartbeat": lambda member: f"{member['lastHeartbeatAgeMs']} ms ago",
            },
            title=f"{name}: {counted(len(members), 'member')}, lag {lag}",
        )
    else:
        say(f"{name}: no members, lag {lag}")
    say()
    for line in retry_lines(state.retry):
        say(line)
    say()
    place = {"topic": "topic", "broker": "broker", "queue": "queue"}
    if queues:
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
    else:
        remark("no offsets yet")
    if losses:
        say()
        print_documents(losses, {**place, "removed unread": "messages"})
    remark_unanswered(unanswered)


@group.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=group_names)
@click.option("--watch", is_flag=True, help="Update the list until Ctrl-C.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    help="Pause between two updates of --watch.",
)
@json_option
@wide_option
@target_options
def lag(
    target: Target,
    names: tuple[str, ...],
    watch: bool,
    interval_s: float,
    as_json: bool,
    wide: bool,
) -> None:
    """Show how many messages groups have not read, by topic.

    Of all groups, or of those named. With --watch also how fast the group reads and messages
    arrive, and when it will have caught up at these rates. With --json, --watch prints one document
    a line.
    """
    from aerobee.cli.group_lag import watch_lag

    watch_lag(
        target,
        names,
        interval_s=interval_s if watch else None,
        as_json=as_json,
        wide=wide,
    )


@group.command()
@click.argument("name", shell_complete=group_names)
@click.option(
    "--retries-max",
    type=click.IntRange(0),
    metavar="N",
    help="How often a failed message comes again before it is a dead letter.",
)
@click.option(
    "--back-off",
    type=click.Choice(["levels", "exponential"]),
    help="How long it waits: levels: 10s, 30s, 1m and longer, as the brokers are configured; "
    "exponential: --initial, then --multiplier times as long each time.",
)
@click.option("--initial", metavar="TIME", help="Exponential: after the first failure (5s).")
@click.option("--longest", metavar="TIME", help="Exponential: at most (2h).")
@click.option(
    "--multiplier",
    type=click.IntRange(1),
    help="Exponential: how many times longer each further wait is (2).",
)
@click.option(
    "--ordered/--unordered",
    "is_ordered",
    default=None,
    help="Whether Apache's clients get the messages of a message group one after the other.",
)
@json_option
@target_options
def configure(
    target: Target,
    name: str,
    retries_max: int | None,
    back_off: str | None,
    initial: str | None,
    longest: str | None,
    multiplier: int | None,
    is_ordered: bool | None,
    as_json: bool,
) -> None:
    """Change when the group NAME gets failed messages again.

    Also sets whether it gets the messages of a message group in order. Settings that are not given
    stay as they are. The group need not exist yet. Messages that are already waiting for a retry
    keep their time.
    """
    is_exponential = (initial, longest, multiplier) != (None, None, None)
    if is_exponential and back_off == "levels":
        raise click.UsageError(
            "--initial, --longest and --multiplier are for --back-off exponential"
        )
    if (retries_max, back_off, is_ordered) == (None, None, None) and not is_exponential:
        raise click.UsageError("name what to change: --retries-max, --back-off or --ordered")
    new: list[AerobeeError] = []
    initial_ms, longest_ms = (_length_ms(each) for each in (initial, longest))

    async def change(admin: AdminClient) -> Mapping[str, GroupRetry]:
        from aerobee import BackOff
        from aerobee.runtime.errors import GroupNotFound, NoBrokerAvailable

        try:
            await admin.groups.describe(name)
        except GroupNotFound as error:
            new.append(error)
        except NoBrokerAvailable:
            pass  # The change meets it, too.
        return await admin.groups.configure(
            name,
            retries_max=retries_max,
            back_off=BackOff(initial_ms, longest_ms, multiplier or 0)
            if back_off == "exponential" or is_exponential
            else None,
            by_delay_levels=back_off == "levels",
            ordered=is_ordered,
        )

    changed = target.administer(change)
    for error in new:
        remark(f"group {name} is new: no broker knew it{target.meant(error)}")
    if as_json:
        print_json({"group": name, "retry": {key: _retry(changed[key]) for key in changed}})
        return
    for line in retry_lines(changed):
        say(f"{name}: {line}")


@group.command()
@click.argument("name", shell_complete=group_names)
@click.option("--force", is_flag=True, help="End the sessions of its members first.")
@dry_run_option
@yes_option
@json_option
@target_options
def delete(target: Target, name: str, force: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the group NAME: its offsets, leases and settings.

    Refused while the group has members. --force ends their sessions and waits until none of them
    can still work; a member that keeps running joins again, as a new group. Messages stay.
    """
    if not dry_run:
        confirm(f"Delete group {name} with all its offsets?", yes=yes)

    async def question(admin: AdminClient) -> tuple[int, int, tuple[str, ...]]:
        if dry_run:
            state = await admin.groups.describe(name)
            committed = [each for each in state.queues if each.committed_offset is not None]
            return len(state.members), len(committed), state.unanswered
        deleted = await admin.groups.delete(name, force=force)
        return deleted.members_ended, deleted.offsets, ()

    members, offsets, unanswered = target.administer(question)
    remark_unanswered(unanswered)
    if as_json:
        document = {"group": name, "changed": not dry_run, "offsets": offsets}
        print_json({**document, "members": members, "unanswered": list(unanswered)})
        return
    told = f"{counted(members, 'session')}, {counted(offsets, 'offset')}"
    say(f"would delete group {name}: {told}" if dry_run else f"deleted group {name}: {told}")


def _length_ms(text: str | None) -> int:
    """0: not named."""
    from aerobee.cli.moments import parse_delay_ms

    try:
        return 0 if text is None else parse_delay_ms(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _retry(retry: GroupRetry) -> dict[str, Any]:
    document: dict[str, Any] = {"retriesMax": retry.retries_max}
    document |= {"backOff": retry.kind, "ordered": retry.ordered}
    if retry.back_off is not None:
        document |= {
            "initialMs": retry.back_off.initial_ms,
            "longestMs": retry.back_off.max_ms,
            "multiplier": retry.back_off.multiplier,
        }
    elif retry.delays_ms:
        document["delaysMs"] = list(retry.delays_ms)
    if (in_order := retry.in_order) is not None:
        document["inOrder"] = {
            "retriesMax": in_order.retries_max,
            "initialMs": in_order.back_off.initial_ms,
            "longestMs": in_order.back_off.max_ms,
            "multiplier": in_order.back_off.multiplier,
        }
    return document


def _summary(state: Group) -> dict[str, Any]:
    return {
        "group": state.name,
        "members": len(state.members),
        "topics": list(state.topics),
        "lag": state.lag,
        "unanswered": list(state.unanswered),
    }


def _is_of_retries(topic: str) -> bool:
    """Every group has that topic, and its members hold it beside those that they chose."""
    return topic.startswith(RETRY_PREFIX)


def _mode(member: Mapping[str, Any]) -> object:
    own = "broadcasting" if member["broadcasting"] else "clustering"
    return member["official"] or own


def _member(member: Member) -> dict[str, Any]:
    return {
        "clientId": member.client_id,
        "broadcasting": member.broadcasting,
        "official": member.official or None,
        "lastHeartbeatAgeMs": member.last_heartbeat_age_ms,
        "subscriptions": dict(member.subscriptions),
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
