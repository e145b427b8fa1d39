"""One reading of a cluster: each registered broker is asked once, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aerobee.client_core import ClusterConnection
from aerobee.offset_audit.doctor.examining import Row
from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.sources.live.asking import (
    RegistryView,
    ask_once,
    list_topics,
    registered_brokers,
    snapshot_request,
    view_of,
)
from aerobee.offset_audit.sources.live.options import READ_TABLES, LiveOptions
from aerobee.offset_audit.sources.live.snapshots import (
    broker_row,
    part_columns,
    registry_rows,
    standing,
)
from aerobee.offset_audit.tables import COLUMNS
from aerobee.runtime.clock import SystemClock
from aerobee.v1 import audit_pb2, common_pb2

TIMEOUT_MS: Final = 5_000
_TABLES: Final = (
    audit_pb2.SNAPSHOT_BROKER,
    audit_pb2.SNAPSHOT_TOPICS,
    audit_pb2.SNAPSHOT_QUEUES,
    audit_pb2.SNAPSHOT_COMMITS,
    audit_pb2.SNAPSHOT_LEASES,
    audit_pb2.SNAPSHOT_MEMBERS,
    audit_pb2.SNAPSHOT_EPOCHS,
)


async def read_cluster(
    connection: ClusterConnection,
    *,
    groups: Sequence[str] = (),
    topics: Sequence[str] = (),
    timeout_ms: int = TIMEOUT_MS,
) -> dict[str, list[Row]]:
    """What the nameservers and the brokers say, as rows of the audit's tables.

    Raises:
        Unreachable, DeadlineExceeded, RegistryUnavailable: no nameserver answers.
    """
    options = LiveOptions(
        cluster=connection.cluster,
        groups=tuple(groups),
        topics=tuple(topics),
        first_unread=True,
        matching_unread=True,
        timeout_ms=timeout_ms,
        registry_timeout_ms=timeout_ms,
    )
    view = await view_of(connection.nameservers, options)
    request = snapshot_request(options, _TABLES)
    clock = SystemClock()
    answers = await asyncio.gather(
        *(
            ask_once(connection.channels, each, request, timeout_ms, clock)
            for each in registered_brokers(view.description, options)
        )
    )
    then = RegistryView(view.description, await list_topics(connection.nameservers, options))
    tables: dict[str, list[Row]] = {
        name: [dict(zip(names_of(COLUMNS[name]), row, strict=True)) for row in rows]
        for name, rows in registry_rows(standing(view, then)).items()
    }
    if topics:
        named = tables["registry_topics"]
        tables["registry_topics"] = [row for row in named if row["topic"] in topics]
    tables |= {name: [] for name in READ_TABLES}
    for registered, answer in zip(view.description.brokers, answers, strict=True):
        row = broker_row(answer)
        if answer.error:
            row |= {
                "role": common_pb2.BrokerRole.Name(registered.role),
                "epoch": registered.epoch,
            }
        tables["brokers"].append(row)
        for part in answer.parts:
            kind, columns = part_columns(part, answer.broker)
            values = zip(*columns.values(), strict=True)
            if columns:
                tables[kind] += [dict(zip(columns, one, strict=True)) for one in values]
    return tables
