"""A cluster as `aerobee cluster show` shows it: what the nameserver knows and each broker says.

Owns: one row, and one JSON document, for each replica that a broker group has or that is
registered, and the remarks for which no column has room. A slave's lag is what its master sees.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aerobee.cli.output import counted
from aerobee.client_core.admin_cluster import BrokerGroup
from aerobee.client_core.broker_groups import BrokerGroupState
from aerobee.runtime.errors import AerobeeError

if TYPE_CHECKING:
    from aerobee import AdminClient, Broker, BrokerStatistics, ClusterState

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
    group: BrokerGroup
    broker: Broker | None = None
    """None: it is not registered now."""
    statistics: BrokerStatistics | None = None
    """None: it does not answer."""
    of_master: BrokerStatistics | None = None

    @property
    def role(self) -> str:
        if self.broker is None:
            return "away"
        return "master" if self.broker.is_master else "slave"

    @property
    def condition(self) -> str:
        """What keeps it from its work; empty if nothing does."""
        if self.broker is None or self.broker.condition == "well":
            return ""
        return self.broker.condition

    @property
    def zone(self) -> str:
        return "" if self.broker is None else self.broker.zone

    @property
    def epoch(self) -> int:
        """Of its group."""
        return max(self.group.epoch, 0 if self.broker is None else self.broker.epoch)

    @property
    def is_in_sync(self) -> bool:
        """Whether its log, as it is, belongs to those that an election chooses from."""
        if self.broker is not None:
            return self.broker.is_in_sync
        return self.broker_id in self.group.in_sync

    @property
    def lag(self) -> Lag | None:
        if self.broker is None or self.broker.is_master:
            return None
        if self.of_master is not None:
            for replica in self.of_master.replicas:
                if replica.broker_id == self.broker_id and replica.is_connected:
                    return Lag(replica.lag_bytes, replica.lag_ms)
        own = self.statistics
        if own is not None and own.master is not None and own.master.log_end:
            return Lag(max(0, own.master.log_end - own.log_appended_end), None)
        return None

    @property
    def trouble(self) -> str:
        """Why it does not follow its master; empty while it does."""
        if self.broker is None or self.broker.is_master:
            return ""
        if self.statistics is not None and self.statistics.master is not None:
            return self.statistics.master.trouble
        return self.broker.replication_trouble


async def look(admin: AdminClient, state: ClusterState) -> list[Replica]:
    """All replicas, by broker and id. Brokers are asked at once; one that does not answer is shown
    without what only it knows."""
    answers = await asyncio.gather(*(_statistics(admin, each.address) for each in state.brokers))
    groups = {group.broker_name: group for group in state.groups}
    found: dict[tuple[str, int], Replica] = {}
    masters: dict[str, BrokerStatistics | None] = {}
    for broker, statistics in zip(state.brokers, answers, strict=True):
        name = broker.broker_name
        group = groups.get(name, BrokerGroup(name, BrokerGroupState.OPEN, 0, None, (), (), ()))
        found[name, broker.broker_id] = Replica(name, broker.broker_id, group, broker, statistics)
        if broker.is_master:
            masters[name] = statistics
    for name, group in groups.items():
        for broker_id in group.replicas:
            found.setdefault((name, broker_id), Replica(name, broker_id, group))
    return [replace(found[key], of_master=masters.get(key[0])) for key in sorted(found)]


async def _statistics(admin: AdminClient, address: str) -> BrokerStatistics | None:
    """None for a broker that is registered but does not answer."""
    try:
        return await admin.brokers.statistics(address)
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
    broker, stats = replica.broker, replica.statistics
    age_ms = None if broker is None else broker.heartbeat_age_ms
    begin: list[object] = [
        replica.broker_name,
        replica.broker_id,
        replica.role,
        replica.epoch,
        replica.is_in_sync,
        _lag_text(replica.lag),
        None if broker is None else broker.address,
        "-" if age_ms is None else f"{age_ms / 1_000:.1f} s ago",
    ]
    if stats is None:
        return [*begin, "-" if broker is None else "no answer", "-", "-", None, None, "-"]
    return [
        *begin,
        stats.flush_mode if stats.is_writable or replica.role == "slave" else "read-only",
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


def _disk(stats: BrokerStatistics) -> str:
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
    if replica.broker is None and replica.is_in_sync:
        lines.append("not registered; start it again: it has all messages")
    elif replica.broker is None:
        lines.append(
            "not registered; if it has gone for good: "
            f"aerobee cluster remove-replica {replica.broker_name} {replica.broker_id}"
        )
    condition = replica.condition
    if condition == "disk hung":
        lines.append("disk hung: it is not elected, nor in sync, before its disk answers")
    elif condition == "slow":
        lines.append("slow: its event loop runs late; another replica should be master")
    if replica.group.state is BrokerGroupState.CLOSED and replica.role != "slave":
        lines.append(
            "closed, takes no new messages; see what remains with `aerobee broker-group show "
            f"{replica.broker_name}`"
        )
    if replica.trouble:
        lines.append(f"does not follow its master: {replica.trouble}")
    stats = replica.statistics
    if stats is not None and not stats.is_writable and replica.role != "slave":
        lines.append(f"takes no messages: {stats.not_writable_reason}")
    if stats is not None and stats.removed_unread_messages:
        groups = sorted({each.group for each in stats.removed_unread})
        lines.append(
            f"removed before they were read: {counted(stats.removed_unread_messages, 'message')} "
            f"of {'group' if len(groups) == 1 else 'groups'} {', '.join(groups)}; see `aerobee "
            "group show`"
        )
    return lines


def replica_document(replica: Replica) -> dict[str, object]:
    """For --json."""
    broker, lag, statistics = replica.broker, replica.lag, replica.statistics
    return {
        "broker": replica.broker_name,
        "id": replica.broker_id,
        "instance": None if broker is None else broker.instance,
        "role": replica.role,
        "epoch": replica.epoch,
        "inSync": replica.is_in_sync,
        "lagBytes": None if lag is None else lag.size_bytes,
        "lagMs": None if lag is None else lag.age_ms,
        "trouble": replica.trouble,
        "condition": replica.condition,
        "address": None if broker is None else broker.address,
        "outsideAddress": None if broker is None else broker.outside_address or None,
        "zone": replica.zone or None,
        "writable": broker is not None and broker.is_writable,
        "heartbeatAgeMs": None if broker is None else broker.heartbeat_age_ms,
        "stats": None if statistics is None else statistics.everything,
    }


def group_document(group: BrokerGroup) -> dict[str, object]:
    """For --json; a group without master has masterId null."""
    return {
        "broker": group.broker_name,
        "closed": group.state is BrokerGroupState.CLOSED,
        "epoch": group.epoch,
        "masterId": group.master_id,
        "inSync": list(group.in_sync),
        "replicas": list(group.replicas),
        "uncleanEpochs": list(group.unclean_epochs),
    }
