"""A cluster as `aerobee cluster show` shows it: what the nameserver knows and each broker says.

Owns: one row, and one JSON document, for each replica that a broker group has or that is
registered, and the remarks for which no column has room. A slave's lag is what its master sees.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aerobee.runtime.errors import AerobeeError
from aerobee.v1 import common_pb2, nameserver_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from aerobee.client_core import Admin
    from aerobee.v1 import broker_pb2

MIB = 1024 * 1024

HEADERS = (
    "broker",
    "id",
    "role",
    "epoch",
    "in sync",
    "lag",
    "address",
    "heartbeat",
    "flush",
    "log",
    "disk",
    "in",
    "out",
    "memory",
)


DROPPABLE = ("memory", "heartbeat", "flush", "epoch", "zone", "out", "in", "disk", "log", "in sync")
"""Left out on a narrow terminal, the first one first."""


ZONE_COLUMN = 2
"""After what names a replica."""


@dataclass(frozen=True, slots=True)
class Lag:
    """What a slave lacks of its master's log."""

    size_bytes: int
    age_ms: int | None
    """Since it last had everything; None where only the slave itself was asked."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a broker group."""

    broker_name: str
    broker_id: int
    group: nameserver_pb2.GroupRecord
    endpoint: nameserver_pb2.BrokerEndpoint | None = None
    """None: it is not registered now."""
    heartbeat: nameserver_pb2.BrokerHeartbeat | None = None
    heartbeat_age_ms: int = -1
    stats: broker_pb2.BrokerStats | None = None
    """None: it does not answer."""
    master_stats: broker_pb2.BrokerStats | None = None

    @property
    def role(self) -> str:
        if self.endpoint is None:
            return "away"
        return common_pb2.BrokerRole.Name(self.endpoint.role).lower()

    @property
    def condition(self) -> str:
        """What keeps it from its work; empty if nothing does."""
        if self.endpoint is None or not self.endpoint.condition:
            return ""
        name = nameserver_pb2.BrokerCondition.Name(self.endpoint.condition)
        return name.removeprefix("BROKER_").lower().replace("_", " ")

    @property
    def zone(self) -> str:
        return "" if self.endpoint is None else self.endpoint.zone

    @property
    def epoch(self) -> int:
        """Of its group."""
        return max(self.group.epoch, 0 if self.endpoint is None else self.endpoint.epoch)

    @property
    def is_in_sync(self) -> bool:
        """Whether its log, as it is, belongs to those that an election chooses from."""
        known = self.heartbeat.incarnation if self.heartbeat is not None else ""
        return any(
            name.broker_id == self.broker_id and known in ("", name.incarnation)
            for name in self.group.in_sync
        )

    @property
    def lag(self) -> Lag | None:
        if self.endpoint is None or self.endpoint.role == common_pb2.MASTER:
            return None
        if self.master_stats is not None:
            for progress in self.master_stats.replicas:
                if progress.broker_id == self.broker_id and progress.connected:
                    return Lag(progress.lag_bytes, progress.lag_ms)
        if self.stats is not None and self.stats.HasField("slave") and self.stats.slave.master_end:
            missing = self.stats.slave.master_end - self.stats.log_appended_end
            return Lag(max(0, missing), None)
        return None

    @property
    def trouble(self) -> str:
        """Why it does not follow its master; empty while it does."""
        if self.endpoint is None or self.endpoint.role == common_pb2.MASTER:
            return ""
        if self.stats is not None and self.stats.HasField("slave"):
            return self.stats.slave.trouble
        return self.heartbeat.replication_trouble if self.heartbeat is not None else ""


async def look(admin: Admin, description: nameserver_pb2.ClusterDescription) -> list[Replica]:
    """All replicas, by broker and id. Brokers are asked at once; one that does not answer is shown
    without what only it knows."""
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_stats(admin, broker.address)) for broker in description.brokers]
    groups = {group.broker_name: group for group in description.groups}
    found: dict[tuple[str, int], Replica] = {}
    masters: dict[str, broker_pb2.BrokerStats | None] = {}
    for number, endpoint in enumerate(description.brokers):
        name, broker_id = endpoint.identity.broker_name, endpoint.identity.broker_id
        stats = asked[number].result()
        heartbeats, ages = description.last_heartbeats, description.heartbeat_age_ms
        found[name, broker_id] = Replica(
            name,
            broker_id,
            groups.get(name, nameserver_pb2.GroupRecord(broker_name=name)),
            endpoint,
            heartbeats[number] if number < len(heartbeats) else None,
            ages[number] if number < len(ages) else -1,
            stats,
        )
        if endpoint.role == common_pb2.MASTER:
            masters[name] = stats
    for name, group in groups.items():
        for broker_id in group.replicas:
            found.setdefault((name, broker_id), Replica(name, broker_id, group))
    return [replace(found[key], master_stats=masters.get(key[0])) for key in sorted(found)]


async def _stats(admin: Admin, address: str) -> broker_pb2.BrokerStats | None:
    """None for a broker that is registered but does not answer."""
    try:
        return await admin.broker_stats(address)
    except AerobeeError:
        return None


def table(replicas: list[Replica]) -> tuple[list[str], list[list[object]]]:
    """Headers and rows; with zones if any broker says one."""
    headers, rows = list(HEADERS), [row(each) for each in replicas]
    if any(each.zone for each in replicas):
        headers.insert(ZONE_COLUMN, "zone")
        for each, cells in zip(replicas, rows, strict=True):
            cells.insert(ZONE_COLUMN, each.zone or "-")
    return headers, rows


def row(replica: Replica) -> list[object]:
    """The cells below HEADERS."""
    endpoint, stats, age_ms = replica.endpoint, replica.stats, replica.heartbeat_age_ms
    begin: list[object] = [
        replica.broker_name,
        replica.broker_id,
        replica.role,
        replica.epoch,
        replica.is_in_sync,
        _lag_text(replica.lag),
        None if endpoint is None else endpoint.address,
        "-" if age_ms < 0 else f"{age_ms / 1_000:.1f} s ago",
    ]
    if stats is None:
        return [*begin, "-" if endpoint is None else "no answer", "-", "-", None, None, "-"]
    return [
        *begin,
        stats.flush_mode if stats.writable or replica.role == "slave" else "read-only",
        f"{(stats.log_appended_end - stats.log_min_offset) / MIB:,.1f} MiB",
        _disk(stats),
        stats.messages_in,
        stats.messages_out,
        f"{stats.resident_bytes / MIB:,.0f} MiB",
    ]


def _lag_text(lag: Lag | None) -> str:
    if lag is None:
        return "-"
    if lag.size_bytes == 0:
        return "none"
    size = f"{lag.size_bytes / MIB:,.1f} MiB" if lag.size_bytes >= MIB else f"{lag.size_bytes:,} B"
    return size if lag.age_ms is None else f"{size}, {lag.age_ms / 1_000:.1f} s"


def _disk(stats: broker_pb2.BrokerStats) -> str:
    """How full it is."""
    if not stats.disk_total_bytes:
        return "-"
    return f"{100 * (1 - stats.disk_free_bytes / stats.disk_total_bytes):.0f} %"


def remarks(replicas: list[Replica]) -> list[str]:
    """What an operator should know and no column has room for."""
    said = []
    for name in dict.fromkeys(replica.broker_name for replica in replicas):
        members = [replica for replica in replicas if replica.broker_name == name]
        said += [f"{name}: {line}" for line in _group_remarks(members)]
        for member in members:
            said += [f"{_name(member, members)}: {line}" for line in _replica_remarks(member)]
    return said


def _name(member: Replica, members: list[Replica]) -> str:
    return member.broker_name if len(members) == 1 else f"{member.broker_name}/{member.broker_id}"


def _group_remarks(members: list[Replica]) -> list[str]:
    group, lines = members[0].group, []
    if not any(member.role == "master" for member in members):
        needed = ", ".join(str(member.broker_id) for member in members if member.is_in_sync)
        if needed or not group.in_sync:
            lines.append(
                f"has no master; an election needs one of the replicas in sync: {needed or 'any'}"
            )
        else:
            lines.append(
                "has no master; the replicas that were in sync lack messages now: start all others"
            )
    if group.unclean_epochs:
        epochs = ", ".join(map(str, group.unclean_epochs))
        lines.append(f"messages may have been lost where these epochs began: {epochs}")
    return lines


def _replica_remarks(replica: Replica) -> list[str]:
    lines = []
    if replica.endpoint is None and replica.is_in_sync:
        lines.append("not registered; start it again: it has all messages")
    elif replica.endpoint is None:
        lines.append(
            "not registered; if it has gone for good: "
            f"aerobee cluster remove-replica {replica.broker_name} {replica.broker_id}"
        )
    condition = replica.condition
    if condition == "disk hung":
        lines.append("disk hung: it is not elected, nor in sync, before its disk answers")
    elif condition == "slow":
        lines.append("slow: its event loop runs late; another replica should be master")
    if replica.group.state == nameserver_pb2.BROKER_GROUP_CLOSED and replica.role != "slave":
        lines.append(
            "closed, takes no new messages; see what remains with `aerobee broker-group show "
            f"{replica.broker_name}`"
        )
    if replica.trouble:
        lines.append(f"does not follow its master: {replica.trouble}")
    stats = replica.stats
    if stats is not None and not stats.writable and replica.role != "slave":
        lines.append(f"takes no messages: {stats.not_writable_reason}")
    if stats is not None and stats.removed_unread_messages:
        groups = sorted({each.group for each in stats.removed_unread})
        lines.append(
            f"{stats.removed_unread_messages:,} messages were removed before they were read, of "
            f"the groups {', '.join(groups)}; see `aerobee group show`"
        )
    return lines


def replica_document(replica: Replica) -> dict[str, object]:
    """For --json."""
    endpoint, lag, age_ms = replica.endpoint, replica.lag, replica.heartbeat_age_ms
    return {
        "broker": replica.broker_name,
        "id": replica.broker_id,
        "instance": None if endpoint is None else endpoint.identity.instance,
        "role": replica.role,
        "epoch": replica.epoch,
        "inSync": replica.is_in_sync,
        "lagBytes": None if lag is None else lag.size_bytes,
        "lagMs": None if lag is None else lag.age_ms,
        "trouble": replica.trouble,
        "condition": replica.condition,
        "address": None if endpoint is None else endpoint.address,
        "outsideAddress": endpoint.outside_address or None if endpoint is not None else None,
        "zone": replica.zone or None,
        "writable": endpoint is not None and endpoint.writable,
        "heartbeatAgeMs": age_ms if age_ms >= 0 else None,
        "stats": None if replica.stats is None else message_document(replica.stats),
    }


def group_document(group: nameserver_pb2.GroupRecord) -> dict[str, object]:
    """For --json; a group without master has masterId null."""
    return {
        "broker": group.broker_name,
        "closed": group.state == nameserver_pb2.BROKER_GROUP_CLOSED,
        "epoch": group.epoch,
        "masterId": group.master_id if group.master_id >= 0 else None,
        "inSync": [name.broker_id for name in group.in_sync],
        "replicas": list(group.replicas),
        "uncleanEpochs": list(group.unclean_epochs),
    }


def message_document(message: Message) -> dict[str, object]:
    """A protobuf message as JSON values."""
    from google.protobuf.json_format import MessageToDict

    document: dict[str, object] = MessageToDict(message, always_print_fields_with_no_presence=True)
    return document
