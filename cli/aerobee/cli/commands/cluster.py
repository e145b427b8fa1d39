"""`aerobee cluster`: the brokers of a cluster, their state, and what can be removed from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aerobee.cli.completion import broker_names
from aerobee.cli.options import confirm, json_option, wide_option, yes_option
from aerobee.cli.output import counted, print_json, print_table, remark, say
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee.cli.cluster_picture import Replica
    from aerobee.client_core import Admin, ClusterConnection
    from aerobee.v1 import broker_pb2, nameserver_pb2

MIB = 1024 * 1024
STATS_TIMEOUT_MS = 2_000


@click.group()
def cluster() -> None:
    """Show the brokers of the cluster, clean their logs, remove lost replicas."""


@cluster.command()
@json_option
@wide_option
@target_options
def show(target: Target, as_json: bool, wide: bool) -> None:
    """Show the state of each replica.

    The columns are its role, epoch, lag, address, last heartbeat, log, disk, traffic and memory;
    and its zone, if any broker has one.
    """
    from aerobee.cli import cluster_picture

    async def question(
        connection: ClusterConnection,
    ) -> tuple[nameserver_pb2.ClusterDescription, list[Replica]]:
        from aerobee.client_core import Admin

        admin = Admin(connection, timeout_ms=STATS_TIMEOUT_MS)
        description = await admin.describe_cluster()
        return description, await cluster_picture.look(admin, description)

    description, replicas = target.ask(question)
    name = description.cluster or target.cluster
    if as_json:
        print_json(
            {
                "cluster": name,
                "stale": description.stale,
                "etcdTrouble": description.etcd_trouble,
                "groups": [cluster_picture.group_document(group) for group in description.groups],
                "brokers": [cluster_picture.replica_document(each) for each in replicas],
            }
        )
        return
    if description.stale:
        remark("etcd is away: this is what the nameserver last knew")
    headers, rows = cluster_picture.table(replicas)
    print_table(
        headers,
        rows,
        droppable=cluster_picture.DROPPABLE,
        wide=wide,
        empty="no broker is registered yet; start one with `aerobee broker`",
        title=f"cluster {name}: {counted(len(description.brokers), 'broker')}",
    )
    if description.etcd_trouble:
        remark(description.etcd_trouble)
    for line in cluster_picture.remarks(replicas):
        remark(line)


@cluster.command("remove-replica")
@click.argument("broker", shell_complete=broker_names)
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@yes_option
@json_option
@target_options
def remove_replica(target: Target, broker: str, broker_id: int, yes: bool, as_json: bool) -> None:
    """Remove replica ID, which is lost for good, from the broker group BROKER.

    Refused while the replica is registered or in sync: its log may be the only one with all
    messages. If the replica is started again later, it joins as a new one.
    """
    from aerobee.cli.cluster_picture import group_document
    from aerobee.client_core import Admin

    confirm(f"Forget replica {broker_id} of {broker} for good?", yes=yes)
    group = target.ask(lambda connection: Admin(connection).remove_replica(broker, broker_id))
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
    """Remove expired log segments of BROKER now, at any hour, the oldest first.

    BROKER is a broker's name or its address. Segments that are not expired stay, and so do those
    with messages that a group has not read, unless an option says otherwise.
    """
    from aerobee.cli.cluster_picture import message_document

    if unread:
        confirm(f"Remove messages of {broker} even if groups have not read them?", yes=yes)

    async def question(connection: ClusterConnection) -> broker_pb2.CleanStoreResponse:
        from aerobee.client_core import Admin

        admin = Admin(connection)
        address = await _address_of(admin, broker)
        return await admin.clean_store(address, force=force, unread=unread)

    done = target.ask(question)
    if as_json:
        print_json(message_document(done))
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


async def _address_of(admin: Admin, broker: str) -> str:
    """Where the broker of a name is; an address is taken as it is.

    Raises:
        click.UsageError: no registered broker has the name.
    """
    if ":" in broker:
        return broker
    masters = await admin.masters()
    for endpoint in masters:
        if endpoint.broker_name == broker:
            return endpoint.address
    known = ", ".join(endpoint.broker_name for endpoint in masters) or "none"
    raise click.UsageError(f"no broker is named {broker}; registered are: {known}")
