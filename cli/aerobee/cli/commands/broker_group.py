"""`aerobee broker-group`: close a broker group, see what remains there, remove it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from aerobee.cli.completion import broker_names
from aerobee.cli.options import confirm, json_option, wide_option, yes_option
from aerobee.cli.output import counted, print_json, print_table, remark, say
from aerobee.cli.target import Target, asking_options

if TYPE_CHECKING:
    from aerobee import AdminClient, BrokerGroupState, Remaining

TIMEOUT_MS = 10_000
"""A nameserver changes etcd, and a master counts what its groups have not read."""


@click.group("broker-group")
def broker_group() -> None:
    """Close a broker group, see what remains there, and remove it."""


@broker_group.command()
@click.argument("broker", shell_complete=broker_names)
@json_option
@asking_options(TIMEOUT_MS)
def close(target: Target, broker: str, as_json: bool) -> None:
    """Close the broker group BROKER: it takes no new messages.

    Consumers go on reading. Messages with a sharding key or message group move to queues of other
    groups, once. Refused if a topic has queues nowhere else.
    """
    target.administer(lambda admin: admin.broker_groups.close(broker))
    if as_json:
        print_json({"broker": broker, "state": "closed"})
        return
    say(f"{broker} is closed; see what remains there with `aerobee broker-group show {broker}`")


@broker_group.command("open")
@click.argument("broker", shell_complete=broker_names)
@json_option
@asking_options(TIMEOUT_MS)
def open_again(target: Target, broker: str, as_json: bool) -> None:
    """Open the closed broker group BROKER: it takes new messages again."""
    target.administer(lambda admin: admin.broker_groups.open(broker))
    if as_json:
        print_json({"broker": broker, "state": "open"})
        return
    say(f"{broker} is open")


@broker_group.command()
@click.argument("broker", shell_complete=broker_names)
@json_option
@wide_option
@asking_options(TIMEOUT_MS)
def show(target: Target, broker: str, as_json: bool, wide: bool) -> None:
    """Show what removing the broker group BROKER now would lose.

    Exit code 0: nothing, and it takes no new messages; 1: something, or it still takes messages.
    """

    async def question(admin: AdminClient) -> tuple[BrokerGroupState, Remaining]:
        groups = admin.broker_groups
        return await groups.state(broker), await groups.remaining(broker)

    state, remaining = target.administer(question)
    is_done = remaining.refuses and remaining.is_empty
    if as_json:
        print_json(
            {
                "broker": broker,
                "state": state.value,
                "removable": is_done,
                **dataclasses.asdict(remaining),
            }
        )
    else:
        _show(broker, state, remaining, wide=wide)
    if not is_done:
        raise SystemExit(1)


def _show(broker: str, state: BrokerGroupState, remaining: Remaining, *, wide: bool) -> None:
    if remaining.refuses_in_s:
        remark(f"new messages are refused in {remaining.refuses_in_s:.0f} s")
    print_table(
        ["group", "topic", "unread"],
        [[each.group, each.topic, f"{each.unread:,}"] for each in remaining.readers],
        title=f"{broker}: {state}, {counted(remaining.unread, 'unread message')}",
        empty="all groups have read everything",
        wide=wide,
    )
    for count, one, several in (
        (remaining.delayed, "message waits for its time", "messages wait for their time"),
        (remaining.open_transactions, "transaction is open", "transactions are open"),
        (remaining.set_aside, "transaction is set aside", "transactions are set aside"),
        (remaining.dead_letters, "dead letter is not settled", "dead letters are not settled"),
        (remaining.schedules, "schedule runs here", "schedules run here"),
    ):
        if count:
            say(counted(count, one, several))
    if remaining.refuses and remaining.is_empty:
        say(f"nothing remains: `aerobee broker-group remove {broker}`")


@broker_group.command()
@click.argument("broker", shell_complete=broker_names)
@click.option("--force", is_flag=True, help="Remove it even if something remains there.")
@yes_option
@json_option
@asking_options(TIMEOUT_MS)
def remove(target: Target, broker: str, force: bool, yes: bool, as_json: bool) -> None:
    """Take the closed broker group BROKER out of the cluster.

    Also takes it out of all topics. Its brokers cannot register again, and its name cannot be used
    again. Their folders stay.
    """
    confirm(f"Remove {broker} from the cluster for good?", yes=yes)

    async def question(admin: AdminClient) -> int:
        from aerobee.runtime.errors import InvalidArgument

        groups = admin.broker_groups
        if not force:
            remaining = await groups.remaining(broker)
            if not (remaining.refuses and remaining.is_empty):
                raise InvalidArgument(
                    f"something remains at {broker}, or it takes messages: see `aerobee "
                    f"broker-group show {broker}`; --force removes it nevertheless"
                )
        return await groups.remove(broker)

    topics = target.administer(question)
    if as_json:
        print_json({"broker": broker, "state": "removed", "topics": topics})
        return
    say(f"{broker} is removed; {counted(topics, 'topic')} had queues there. Stop its brokers")
