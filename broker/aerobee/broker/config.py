"""What an operator can set about a broker, with the defaults and the limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from aerobee.access.config import AccessConfig, require_certificates
from aerobee.broker.config_risks import broker_risks
from aerobee.broker.replication.config import READ_MEMORY_SHARE, ReplicationConfig
from aerobee.rocketmq_api.config import RocketmqConfig
from aerobee.rocketmq_remoting.config import RemotingConfig
from aerobee.rpc.grpc_config import GrpcConfig
from aerobee.rpc.outside_config import BrokerOutsideConfig, require_outside_that_works
from aerobee.rpc.tls_config import NodeTlsConfig, require_tls_that_works
from aerobee.runtime.addresses import (
    require_address,
    require_dialled_address,
    require_ports_of_their_own,
)
from aerobee.runtime.audit_log.config import AuditLogConfig
from aerobee.runtime.config import Change, require
from aerobee.runtime.config_check import Risk
from aerobee.runtime.health import HealthConfig
from aerobee.runtime.log_config import LogConfig
from aerobee.runtime.machine import UsableMemory
from aerobee.runtime.metrics.config import MetricsConfig
from aerobee.store.engine.config import StoreConfig
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.tier.config import TierConfig

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ZONE = re.compile(r"[a-zA-Z0-9_.-]{0,64}")
_WILDCARDS = frozenset({"0.0.0.0", "[::]"})


OTHER_FILES = 128
"""Files open beside read handles: the log's end, files being replaced, one per cold read, and the
event loop's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """How long a consumer's membership, and with it its queue leases, outlive its heartbeats."""

    timeout_default_ms: int = 10_000
    """The session of a member that does not request a length.

    Costs: longer: the queues of a member that died wait longer for another one.
    """
    timeout_min_ms: int = 1_000
    """Shorter requests are raised to this.

    Costs: shorter: members lose their queues when the network pauses.
    """
    timeout_max_ms: int = 120_000
    """Longer requests are cut to this.

    Costs: the same as for `timeout_default_ms`, for members that ask for it.
    """

    def __post_init__(self) -> None:
        require(self.timeout_min_ms > 0, "sessions.timeout_min_ms must be > 0", self.timeout_min_ms)
        require(
            self.timeout_min_ms <= self.timeout_default_ms <= self.timeout_max_ms,
            "sessions.timeout_default_ms must be between timeout_min_ms and timeout_max_ms",
            self.timeout_default_ms,
        )

    def clamp_timeout_ms(self, wanted_ms: int) -> int:
        """The session timeout for a member that asks for `wanted_ms`; 0 asks for the default."""
        wanted_ms = wanted_ms or self.timeout_default_ms
        return max(self.timeout_min_ms, min(wanted_ms, self.timeout_max_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsConfig:
    """How many consumer groups a broker knows, and for how long."""

    max: int = 20_000
    """The largest number of groups; more are refused, existing ones stay.

    Unit: groups
    Costs: memory, and longer snapshots of their offsets.
    """
    expire_after_days: int = 30
    """A group without members that has not committed for this long is deleted with its offsets,
    unless unread messages are kept for it; 0: never. See [how long a group is
    kept](consumer-groups.md#how-long-a-group-is-kept).

    Unit: days
    Costs: shorter: a group that reads rarely starts over as a new group; longer: names and offsets
    of abandoned groups stay longer.
    """
    waiting_polls_max: int = 100_000
    """How many calls of Apache's clients may wait for messages at the same time; more are refused.

    Unit: calls
    Costs: memory.
    """

    def __post_init__(self) -> None:
        require(self.max > 0, "groups.max must be > 0", self.max)
        require(
            self.waiting_polls_max > 0,
            "groups.waiting_polls_max must be > 0",
            self.waiting_polls_max,
        )
        require(
            self.expire_after_days >= 0,
            "groups.expire_after_days must be >= 0",
            self.expire_after_days,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsConfig:
    """How many transactions may be open, and when producers are asked about their outcome; see
    [transactions](transactions.md).
    """

    pending_max: int = 100_000
    """How many transactions may be open at the same time; messages of further ones are refused.

    Unit: transactions
    Costs: memory, about 1 KiB each, and the time that a new master needs to read them.
    """
    timeout_ms: int = 6_000
    """How old a transaction is before its producers are asked for the first time, unless its
    message says otherwise (transactionTimeOut).

    Costs: shorter: producers are asked while they are still working; longer: messages of producers
    that died wait longer.
    """
    check_interval_ms: int = 30_000
    """How often open transactions are checked, and their producers asked again
    (transactionCheckInterval).

    Costs: each check stores the message once more; see `checks_max`.
    """
    checks_max: int = 15
    """How many times producers are asked before the message is set aside for an operator
    (transactionCheckMax).

    Unit: checks
    Costs: more: the message of a transaction that is never ended is stored that many times; fewer:
    after an outage of a producer, an operator has to act sooner.
    """

    def __post_init__(self) -> None:
        for name in ("pending_max", "timeout_ms", "check_interval_ms", "checks_max"):
            require(
                getattr(self, name) > 0, f"transactions.{name} must be > 0", getattr(self, name)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker process over one folder."""

    cluster: str = field(default="aerobee", metadata={"change": Change.NEVER})
    """The cluster's name; the nameserver refuses a broker of another cluster.

    Unit: 1 to 64 letters, digits, `_`, `-`
    Costs: nothing.
    """
    broker_name: str = field(default="broker-a", metadata={"change": Change.NEVER})
    """The broker group's name, which its replicas share.

    Unit: 1 to 64 letters, digits, `_`, `-`
    Costs: nothing.
    """
    broker_id: int = 0
    """Which replica of the broker group this is; 0 is the first.

    Unit: number, unique in its broker group
    Costs: a different number is a different replica; the old one stays in the broker group's record
    until you run `aerobee cluster remove-replica`.
    """
    listen: str = "127.0.0.1:10911"
    """host:port to serve on; port 0 lets the system choose.

    Unit: host:port
    Costs: without `access.enabled`, every host that reaches it may send and read.
    """
    address: str = ""
    """host:port where clients reach this broker, possibly a DNS name; empty: the same as `listen`.

    Unit: host:port
    Costs: each client that connects looks up the name.
    """
    zone: str = ""
    """The zone that this broker's machine is in, for example `eu-1a`: shown by `aerobee cluster
    show`, and the audit warns if [one zone has too much](audit-findings.md#one_zone).

    Unit: up to 64 letters, digits, `_`, `.`, `-`; empty: unknown
    Costs: nothing.
    """
    store_host: str = ""
    """ip:port stamped into every record, and so into message ids, where remoting clients look a
    message up; empty: `listen`, or else what `address` resolves to. If a load balancer or a virtual
    IP leads to any replica of the broker group, give all of them its address: then [ids answer
    after a fail-over](remoting.md#message-ids), too.

    Unit: ip:port
    Costs: nothing.
    """
    nameservers: tuple[str, ...] = ("127.0.0.1:8081",)
    """host:port of each nameserver; empty: the broker serves without one, with the topics of its
    store.

    Unit: host:port
    Costs: one stream, to one of them at a time.
    """
    registration_lease_ms: int = 5_000
    """How long routes show this broker after its last heartbeat, and how long a group of several
    replicas has no master after its master dies. Keep it well below the consumers' session
    timeouts, so that their queue leases outlive the change of master.

    Costs: longer: after a master's death, the group takes no messages for this time and up to 1.5 s
    more; shorter: the master loses its term if a machine, the network or etcd pauses for two thirds
    of it. etcd itself needs about 2000.
    """
    store_root: Path
    """The folder that holds everything the broker stores.

    Costs: the speed of its disk limits everything.
    """
    read_threads_max: int = 4
    """Threads that read what is not in the page cache.

    Unit: threads
    Costs: that many reads at once on the disk, beside its writes.
    """
    catch_up_bytes_per_s: int = 32 * 1024 * 1024
    """The combined rate of all readers that are far behind while many messages are sent, if each of
    them then still reads faster than messages arrive; 0: no limit. "Many" is more than 4 MiB or
    2,000 messages per second. While fewer are sent, the rate doubles after every tenth of a second
    in which the event loop is at most 5 ms late, halves when it is later, and stays between this
    value and four times this value. Without sends there is no limit.

    Costs: higher: senders wait longer while old messages are read.
    """
    snapshot_interval_ms: int = 5_000
    """How often committed offsets and group settings are written to their files.

    Costs: shorter: more small files written; longer: more of the offset journal to read after a
    crash.
    """
    closing_grace_ms: int = 60_000
    """How long the broker still takes new messages after its group was closed, for producers that
    do not know it yet.

    Costs: longer: it takes longer until the group is empty; shorter: producers that still have the
    old route are refused.
    """
    stop_grace_ms: int = 1_000
    """How long running calls may continue after a stop is requested and everything is flushed.

    Costs: a stop takes longer.
    """
    store: StoreConfig = field(default_factory=StoreConfig)
    sessions: SessionConfig = field(default_factory=SessionConfig)
    groups: GroupsConfig = field(default_factory=GroupsConfig)
    transactions: TransactionsConfig = field(default_factory=TransactionsConfig)
    tier: TierConfig = field(default_factory=TierConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    log: LogConfig = field(default_factory=LogConfig)
    grpc: GrpcConfig = field(default_factory=GrpcConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    rocketmq: RocketmqConfig = field(default_factory=RocketmqConfig)
    remoting: RemotingConfig = field(default_factory=RemotingConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    audit_log: AuditLogConfig = field(default_factory=AuditLogConfig)
    tls: NodeTlsConfig = field(default_factory=NodeTlsConfig)
    outside: BrokerOutsideConfig = field(default_factory=BrokerOutsideConfig)

    def __post_init__(self) -> None:
        for name in ("cluster", "broker_name"):
            value = getattr(self, name)
            require(
                _NAME.fullmatch(value) is not None,
                f"{name} must be 1 to 64 letters, digits, '_' and '-'",
                value,
            )
        require(
            _ZONE.fullmatch(self.zone) is not None,
            "zone must be up to 64 letters, digits, '_', '.' and '-'",
            self.zone,
        )
        require(self.broker_id >= 0, "broker_id must be >= 0", self.broker_id)
        require_address("listen", self.listen)
        require_ports_of_their_own(
            {
                "listen": self.listen,
                "outside.listen": self.outside.listen,
                "health.listen": self.health.listen,
                "metrics.listen": self.metrics.listen,
            }
        )
        require_tls_that_works(self)
        require_outside_that_works(self)
        require_certificates(self.access, self.tls)
        if self.address:
            require_address("address", self.address)
        elif _host_of(self.listen) in _WILDCARDS and self.nameservers:
            require(
                False,
                "address must be set when listen is a wildcard address, to which clients "
                "cannot connect",
                self.listen,
            )
        if self.store_host:
            try:
                HostAddress.parse(self.store_host)
            except ValueError as error:
                require(False, f"store_host must be ip:port; {error}", self.store_host)
        for nameserver in self.nameservers:
            require_dialled_address("nameservers", nameserver)
        for name in ("read_threads_max", "snapshot_interval_ms"):
            require(getattr(self, name) > 0, f"{name} must be > 0", getattr(self, name))
        for name in ("stop_grace_ms", "catch_up_bytes_per_s"):
            require(getattr(self, name) >= 0, f"{name} must be >= 0", getattr(self, name))
        require(
            self.registration_lease_ms >= 1_000,
            "registration_lease_ms must be >= 1000",
            self.registration_lease_ms,
        )

    def risks(self) -> list[Risk]:
        """Which of these settings are risky, alone or together."""
        return broker_risks(self)

    def derived(self, memory: UsableMemory) -> list[str]:
        """The values that unset settings take in a process with that memory."""
        if self.replication.slave_read_bytes:
            return []
        budget = self.replication.slave_read_bytes_of(memory.bytes)
        return [
            f"replication.slave_read_bytes is {budget} here: {READ_MEMORY_SHARE:.0%} of "
            f"{memory.bytes} bytes, by {memory.source}"
        ]

    @property
    def own_files(self) -> int:
        """How many files the broker may have open, clients not counted."""
        return self.store.open_files_max + OTHER_FILES

    def known_store_host(self) -> HostAddress | None:
        """What to stamp into records, if no name must be resolved for it."""
        for text in (self.store_host, self.listen, self.address):
            if text and _host_of(text) not in _WILDCARDS:
                try:
                    return HostAddress.parse(text)
                except ValueError:
                    continue
        return None


def _host_of(address: str) -> str:
    return address.rpartition(":")[0]
