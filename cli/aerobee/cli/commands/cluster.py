"""`aerobee cluster`: the brokers of a cluster, their state, and what can be removed from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aerobee.cli.completion import broker_names
from aerobee.cli.options import confirm, json_option, wide_option, yes_option
from aerobee.cli.output import counted, print_json, print_table, remark, say
from aerobee.cli.target import Target, asking_options, target_options

if TYPE_CHECKING:
    from aerobee import AdminClient, CleanedStore, ClusterState
    from aerobee.cli.cluster_picture import Replica

MIB = 1024 * 1024
STATISTICS_TIMEOUT_MS = 2_000


@click.group()
def cluster() -> None:
    """Show the brokers of the cluster, clean their logs, remove lost replicas."""


@cluster.command()
@json_option
@wide_option
@asking_options(STATISTICS_TIMEOUT_MS)
def show(target: Target, as_json: bool, wide: bool) -> None:
    """Show the state of each replica.

    The columns are its role, epoch, lag, address, last heartbeat, log, disk, traffic and memory;
    and its zone, if any broker has one.
    """
    from aerobee.cli import cluster_picture

    async def question(admin: AdminClient) -> tuple[ClusterState, list[Replica]]:
        state = await admin.cluster()
        return state, await cluster_picture.look(admin, state)

    state, replicas = target.administer(question)
    name = state.name or target.cluster
    if as_json:
        print_json(
            {
                "cluster": name,
                "stale": state.is_stale,
                "etcdTrouble": state.etcd_trouble,
                "groups": [cluster_picture.group_document(group) for group in state.groups],
                "brokers": [cluster_picture.replica_document(each) for each in replicas],
            }
        )
        return
    if state.is_stale:
        remark("etcd is away: this is what the nameserver last knew")
    headers, rows = cluster_picture.table(replicas)
    print_table(
        headers,
        rows,
        droppable=cluster_picture.DROPPABLE,
        wide=wide,
        empty="no broker is registered yet; start one with `aerobee broker`",
        title=f"cluster {name}: {counted(len(state.brokers), 'broker')}",
    )
    if state.etcd_trouble:
        remark(state.etcd_trouble)
    for line in cluster_picture.remarks(replicas):
        remark(line)


@cluster.command("remove-replica")
@click.argument("broker", shell_complete=broker_names)
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@yes_option
@json_option
@target_options
def remove_replica(target: Target, broker: str, broker_id: int, yes: bool, as_json: bool) -> None:
    """Remove the lost replica ID from the broker group BROKER.

    Refused while the replica is registered or in sync: its log may be the only one with all
    messages. If the replica is started again later, it joins as a new one.
    """
    from aerobee.cli.cluster_picture import group_document

    confirm(f"Forget replica {broker_id} of {broker} for good?", yes=yes)
    group = target.administer(lambda admin: admin.brokers.remove_replica(broker, broker_id))
    if as_json:
        print_json(group_document(group))
        return
    left = ", ".join(map(str, group.replicas))
    say(f"{broker}: replica {broker_id} is removed; left are {left}")


@cluster.command()
@click.argument("broker", shell_complete=broker_names)
@click.option(
    "--force", is_flag=True, help="Also remove unexpired segments while the disk is too full."
)
@click.option("--unread", is_flag=True, help="Also remove messages that groups have not read.")
@yes_option
@json_option
@target_options
def clean(target: Target, broker: str, force: bool, unread: bool, yes: bool, as_json: bool) -> None:
    """Remove expired log segments of BROKER now, oldest first.

    BROKER is a broker's name or its address. Segments that are not expired stay, and so do those
    with messages that a group has not read, unless an option says otherwise.
    """
    if unread:
        confirm(f"Remove messages of {broker} even if groups have not read them?", yes=yes)

    done = target.administer(lambda admin: admin.brokers.clean(broker, force=force, unread=unread))
    if as_json:
        print_json(_clean_document(done))
        return
    say(
        f"{broker}: removed {counted(done.removed_segments, 'segment')} "
        f"({done.removed_bytes / MIB:,.1f} MiB); the log begins at {done.log_min_offset}"
    )
    if done.removed_unread:
        print_table(
            ["group", "topic", "queue", "removed unread"],
            [
                [each.group, each.topic, each.queue_id, each.messages]
                for each in done.removed_unread
            ],
        )
    if done.kept_because:
        remark(f"the rest is kept: {done.kept_because}")


def _clean_document(done: CleanedStore) -> dict[str, object]:
    """For --json; as in what brokers tell, integers of 64 bits are texts."""
    return {
        "removedSegments": done.removed_segments,
        "removedBytes": str(done.removed_bytes),
        "logMinOffset": str(done.log_min_offset),
        "removedUnread": [
            {
                "group": each.group,
                "topic": each.topic,
                "queueId": each.queue_id,
                "messages": str(each.messages),
            }
            for each in done.removed_unread
        ],
        "keptBecause": done.kept_because,
    }
