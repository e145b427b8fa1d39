"""`aerobee cluster`: the brokers of a cluster and how they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from aerobee.cli.event_loop import run
from aerobee.cli.output import json_option, print_json, print_table, remark
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee.client_core import Admin
    from aerobee.v1 import broker_pb2, nameserver_pb2

MIB = 1024 * 1024
STATS_TIMEOUT_MS = 2_000


@click.group()
def cluster() -> None:
    """Show the brokers of the cluster."""


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
            ["broker", "id", "role", "address", "heartbeat", "flush", "log", "in", "out", "memory"],
            [_row(*row) for row in found],
            title=f"cluster {description.cluster or target.cluster}: {len(found)} brokers",
        )

    run(main)


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
        return [*row, "no answer", "-", None, None, "-"]
    state = stats.flush_mode if stats.writable else f"read-only: {stats.not_writable_reason}"
    return [
        *row,
        state,
        f"{(stats.log_appended_end - stats.log_min_offset) / MIB:,.1f} MiB",
        stats.messages_in,
        stats.messages_out,
        f"{stats.resident_bytes / MIB:,.0f} MiB",
    ]


def _role(broker: nameserver_pb2.BrokerEndpoint) -> str:
    from aerobee.v1 import common_pb2

    return common_pb2.BrokerRole.Name(broker.role).lower()


def _document(
    broker: nameserver_pb2.BrokerEndpoint,
    heartbeat_age_ms: int,
    stats: broker_pb2.BrokerStats | None,
) -> dict[str, object]:
    from google.protobuf.json_format import MessageToDict

    return {
        "broker": broker.identity.broker_name,
        "id": broker.identity.broker_id,
        "instance": broker.identity.instance,
        "role": _role(broker),
        "epoch": broker.epoch,
        "address": broker.address,
        "writable": broker.writable,
        "heartbeatAgeMs": heartbeat_age_ms if heartbeat_age_ms >= 0 else None,
        "stats": None
        if stats is None
        else MessageToDict(stats, always_print_fields_with_no_presence=True),
    }
