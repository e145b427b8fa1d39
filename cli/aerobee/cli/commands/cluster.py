"""`aerobee cluster`: the brokers of a cluster, how they are, and cleaning them by command."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from aerobee.cli.event_loop import run
from aerobee.cli.output import json_option, print_json, print_table, remark
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from aerobee.client_core import Admin
    from aerobee.v1 import broker_pb2, nameserver_pb2

MIB = 1024 * 1024
STATS_TIMEOUT_MS = 2_000


@click.group()
def cluster() -> None:
    """Show the brokers of the cluster, and clean their logs."""


@cluster.command()
@json_option
@target_options
def show(target: Target, as_json: bool) -> None:
    """Show each broker: address, role, registration, log, traffic, memory."""

    async def main() -> None:
        from aerobee.client_core import Admin

        async with target.connect() as connection:
            admin = Admin(connection, timeout_ms=STATS_TIMEOUT_MS)
            description = await admin.describe_cluster()
            async with asyncio.TaskGroup() as tasks:
                asked = [
                    tasks.create_task(_stats(admin, broker.address))
                    for broker in description.brokers
                ]
        found = sorted(
            zip(
                description.brokers,
                description.heartbeat_age_ms,
                (task.result() for task in asked),
                strict=True,
            ),
            key=lambda row: (row[0].identity.broker_name, row[0].identity.broker_id),
        )
        if as_json:
            print_json(
                {
                    "cluster": description.cluster or target.cluster,
                    "stale": description.stale,
                    "brokers": [_document(*row) for row in found],
                }
            )
            return
        if description.stale:
            remark("etcd is away: this is what the nameserver last knew")
        print_table(
            [
                "broker",
                "id",
                "role",
                "address",
                "heartbeat",
                "flush",
                "log",
                "disk",
                "in",
                "out",
                "memory",
            ],
            [_row(*row) for row in found],
            title=f"cluster {description.cluster or target.cluster}: {len(found)} brokers",
        )
        for broker, _, stats in found:
            for line in _remarks(stats):
                remark(f"{broker.identity.broker_name}: {line}")

    run(main)


@cluster.command()
@click.argument("broker")
@click.option("--force", is_flag=True, help="Unexpired segments too, while the disk is too full.")
@click.option("--unread", is_flag=True, help="Also messages that groups have not read.")
@click.option("--yes", is_flag=True, help="Do not ask, even on a terminal.")
@json_option
@target_options
def clean(target: Target, broker: str, force: bool, unread: bool, yes: bool, as_json: bool) -> None:
    """Remove expired log segments of BROKER now, whatever the hour; oldest first.

    BROKER is a broker's name or its address. Segments that are not expired stay, and those with
    messages that a group has not read; the options change that.
    """
    if unread and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("--unread loses messages: say --yes, too")
        click.confirm(f"Remove messages of {broker} even if groups have not read them?", abort=True)

    async def main() -> None:
        from aerobee.client_core import Admin

        async with target.connect() as connection:
            admin = Admin(connection)
            address = await _address_of(admin, broker)
            done = await admin.clean_store(address, force=force, unread=unread)
        if as_json:
            print_json(_message(done))
            return
        click.echo(
            f"{broker}: removed {done.removed_segments} segments "
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
            remark(f"the rest stays: {done.kept_because}")

    run(main)


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


async def _stats(admin: Admin, address: str) -> broker_pb2.BrokerStats | None:
    """None for a broker that is registered but does not answer."""
    from aerobee.runtime.errors import MqError

    try:
        return await admin.broker_stats(address)
    except MqError:
        return None


def _row(
    broker: nameserver_pb2.BrokerEndpoint,
    heartbeat_age_ms: int,
    stats: broker_pb2.BrokerStats | None,
) -> list[object]:
    row: list[object] = [
        broker.identity.broker_name,
        broker.identity.broker_id,
        _role(broker),
        broker.address,
        "-" if heartbeat_age_ms < 0 else f"{heartbeat_age_ms / 1_000:.1f} s ago",
    ]
    if stats is None:
        return [*row, "no answer", "-", "-", None, None, "-"]
    return [
        *row,
        stats.flush_mode if stats.writable else "read-only",
        f"{(stats.log_appended_end - stats.log_min_offset) / MIB:,.1f} MiB",
        _disk(stats),
        stats.messages_in,
        stats.messages_out,
        f"{stats.resident_bytes / MIB:,.0f} MiB",
    ]


def _disk(stats: broker_pb2.BrokerStats) -> str:
    """How full it is."""
    if not stats.disk_total_bytes:
        return "-"
    return f"{100 * (1 - stats.disk_free_bytes / stats.disk_total_bytes):.0f} %"


def _remarks(stats: broker_pb2.BrokerStats | None) -> list[str]:
    """What an operator should know and no column has room for."""
    if stats is None:
        return []
    remarks = []
    if not stats.writable:
        remarks.append(f"takes no messages: {stats.not_writable_reason}")
    if stats.removed_unread_messages:
        groups = sorted({each.group for each in stats.removed_unread})
        remarks.append(
            f"{stats.removed_unread_messages:,} messages were removed before they were read, of "
            f"the groups {', '.join(groups)}; see `aerobee group show`"
        )
    return remarks


def _role(broker: nameserver_pb2.BrokerEndpoint) -> str:
    from aerobee.v1 import common_pb2

    return common_pb2.BrokerRole.Name(broker.role).lower()


def _document(
    broker: nameserver_pb2.BrokerEndpoint,
    heartbeat_age_ms: int,
    stats: broker_pb2.BrokerStats | None,
) -> dict[str, object]:
    return {
        "broker": broker.identity.broker_name,
        "id": broker.identity.broker_id,
        "instance": broker.identity.instance,
        "role": _role(broker),
        "epoch": broker.epoch,
        "address": broker.address,
        "writable": broker.writable,
        "heartbeatAgeMs": heartbeat_age_ms if heartbeat_age_ms >= 0 else None,
        "stats": None if stats is None else _message(stats),
    }


def _message(message: Message) -> dict[str, object]:
    from google.protobuf.json_format import MessageToDict

    document: dict[str, object] = MessageToDict(message, always_print_fields_with_no_presence=True)
    return document
