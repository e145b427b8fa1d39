"""What an operator can set about a nameserver, with the defaults and the limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from aerobee.access.config import AccessConfig, open_door, require_certificates
from aerobee.rocketmq_api.config import RocketmqConfig
from aerobee.rocketmq_remoting.config import RemotingConfig
from aerobee.rpc.config_risks import common_risks, exposed_secrets
from aerobee.rpc.grpc_config import GrpcConfig
from aerobee.rpc.outside_config import (
    OutsideConfig,
    outside_risks,
    require_outside_that_works,
)
from aerobee.rpc.tls_config import NodeTlsConfig, require_tls_that_works
from aerobee.runtime.addresses import (
    is_loopback,
    require_address,
    require_dialled_address,
    require_ports_of_their_own,
)
from aerobee.runtime.audit_log.config import AuditLogConfig
from aerobee.runtime.config import require
from aerobee.runtime.config_check import Risk
from aerobee.runtime.health import HealthConfig
from aerobee.runtime.log_config import LogConfig
from aerobee.runtime.metrics.config import MetricsConfig

_CLUSTER_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdTlsConfig:
    """TLS of the calls to etcd, which usually has a certificate authority of its own."""

    ca: str = ""
    """PEM file of the authorities that sign the certificates of etcd's members; if set, etcd is
    contacted only over TLS. The file is read again for each new connection.

    Unit: path; empty: no TLS
    Costs: a handshake for each connection.
    """
    certificate: str = ""
    """PEM file with this nameserver's own certificate, for an etcd that requires one.

    Unit: path; empty: none
    Costs: a file that must be replaced before it expires; no restart is needed for that.
    """
    key: str = ""
    """PEM file with the private key of `etcd.tls.certificate`.

    Unit: path; empty: none
    Costs: a secret: only this process should be able to read it.
    """

    def __post_init__(self) -> None:
        require(
            bool(self.certificate) == bool(self.key),
            "etcd.tls.certificate and etcd.tls.key belong together: give both or neither",
            self.certificate or self.key,
        )
        require(
            not self.certificate or bool(self.ca),
            "etcd.tls.certificate needs etcd.tls.ca: without it there is no TLS",
            self.certificate,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """How etcd is reached."""

    endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    """host:port of each member; one is used at a time, the next one if it fails.

    Unit: host:port
    Costs: one connection, to one of them at a time.
    """
    call_timeout_ms: int = 2_000
    """How long one call may take.

    Costs: longer: it takes longer to leave a member that hangs, and registrations are renewed
    later; shorter: a slow etcd counts as unreachable.
    """
    calls_in_flight_max: int = 8
    """The largest number of concurrent calls, each on its own thread; others wait.

    Unit: calls
    Costs: a thread each, and load on etcd.
    """
    read_attempts_max: int = 3
    """How many times a read is tried before etcd counts as unreachable; writes are never repeated
    blindly.

    Unit: attempts
    Costs: time until a caller learns that etcd is unreachable.
    """
    reconnect_max_ms: int = 1_000
    """Longest pause between attempts to reach an etcd that does not answer.

    Costs: shorter: more attempts; longer: routes are out of date for longer after etcd is back.
    """
    tls: EtcdTlsConfig = field(default_factory=EtcdTlsConfig)

    def __post_init__(self) -> None:
        require(len(self.endpoints) > 0, "etcd.endpoints must name at least one", self.endpoints)
        for endpoint in self.endpoints:
            require_dialled_address("etcd.endpoints", endpoint)
        for name in (
            "call_timeout_ms",
            "calls_in_flight_max",
            "read_attempts_max",
            "reconnect_max_ms",
        ):
            value = getattr(self, name)
            require(value > 0, f"etcd.{name} must be > 0", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """How topics are created."""

    auto_create: bool = True
    """Create a topic when a producer first asks for its route.

    Costs: a misspelt name becomes a topic; switch it off in production.
    """
    default_queues_per_group: int = 4
    """How many queues a topic gets on each replica set if the request does not say.

    Unit: queues
    Costs: files and memory on each broker; with fewer queues than members, some members of a group
    are idle.
    """
    queues_max: int = 4_096
    """Largest number of queues of one topic, over all replica sets.

    Unit: queues
    Costs: larger routes for every client of such a topic.
    """
    topics_max: int = 20_000
    """Largest number of topics in the cluster; more are refused, existing ones stay.

    Unit: topics
    Costs: memory and start time of each broker, and the size of what a nameserver sends to a broker
    that registers.
    """
    queues_per_group_max: int = 200_000
    """Largest number of queues of one replica set, over all topics; more are refused.

    Unit: queues
    Costs: files and memory on each replica of the replica set.
    """
    auto_create_topics_max: int = 1_000
    """No topic is created automatically once the cluster has this many.

    Unit: topics
    Costs: higher: a program that invents names, or a stranger, can fill the cluster with topics.
    """
    auto_create_per_minute: int = 60
    """How many topics a minute this nameserver creates automatically once `auto_create_burst` is
    used up; producers retry by themselves.

    Unit: topics a minute
    Costs: higher: the same as for `auto_create_topics_max`, sooner.
    """
    auto_create_burst: int = 100
    """How many topics may be created automatically at once after a quiet period.

    Unit: topics
    Costs: the same as for `auto_create_per_minute`.
    """
    spread_timeout_ms: int = 1_000
    """How long the answer to a topic change waits for the brokers to learn of it.

    Costs: a topic change takes longer while a broker is away.
    """

    def __post_init__(self) -> None:
        require(
            self.default_queues_per_group > 0,
            "topics.default_queues_per_group must be > 0",
            self.default_queues_per_group,
        )
        for name in (
            "queues_max",
            "topics_max",
            "queues_per_group_max",
            "auto_create_per_minute",
            "auto_create_burst",
        ):
            require(getattr(self, name) > 0, f"topics.{name} must be > 0", getattr(self, name))
        require(
            self.auto_create_topics_max >= 0,
            "topics.auto_create_topics_max must be >= 0",
            self.auto_create_topics_max,
        )
        require(
            self.spread_timeout_ms >= 0,
            "topics.spread_timeout_ms must be >= 0",
            self.spread_timeout_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLeaseConfig:
    """How long a broker's registration outlives its last heartbeat."""

    default_ms: int = 5_000
    """The lease of a broker that does not request one.

    Costs: longer: a broker that died stays in the routes for longer.
    """
    min_ms: int = 1_000
    """Shorter requests are raised to this; etcd counts in seconds and has its own minimum.

    Costs: shorter: more writes to etcd, one from each broker in every third of it.
    """
    max_ms: int = 120_000
    """Longer requests are cut to this.

    Costs: the same as for `default_ms`, for brokers that ask for it.
    """

    def __post_init__(self) -> None:
        require(self.min_ms >= 1_000, "broker_lease.min_ms must be >= 1000", self.min_ms)
        require(
            self.min_ms <= self.default_ms <= self.max_ms,
            "broker_lease.default_ms must be between min_ms and max_ms",
            self.default_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NameserverConfig:
    """One nameserver process. Several with the same cluster and etcd are interchangeable."""

    cluster: str = "aerobee"
    """The cluster's name; brokers and clients of another cluster are refused.

    Unit: 1 to 64 letters, digits, `_`, `-`
    Costs: nothing; its keys in etcd are below this name, so a different name is a different
    cluster.
    """
    listen: str = "127.0.0.1:8081"
    """host:port to serve on; port 0 lets the system choose.

    Unit: host:port
    Costs: without `access.enabled`, every host that reaches it may create and delete topics.
    """
    stop_grace_ms: int = 2_000
    """How long running calls may continue after a stop is requested.

    Costs: a stop takes longer.
    """
    etcd: EtcdConfig = field(default_factory=EtcdConfig)
    topics: TopicPolicy = field(default_factory=TopicPolicy)
    broker_lease: BrokerLeaseConfig = field(default_factory=BrokerLeaseConfig)
    log: LogConfig = field(default_factory=LogConfig)
    grpc: GrpcConfig = field(default_factory=GrpcConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    rocketmq: RocketmqConfig = field(default_factory=RocketmqConfig)
    remoting: RemotingConfig = field(default_factory=RemotingConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    audit_log: AuditLogConfig = field(default_factory=AuditLogConfig)
    tls: NodeTlsConfig = field(default_factory=NodeTlsConfig)
    outside: OutsideConfig = field(default_factory=OutsideConfig)
    unclean_election: bool = False
    """Let a replica that lacks acknowledged messages become master when no other replica is alive.

    Costs: acknowledged messages; see [unclean election](failover.md#unclean-election).
    """

    def __post_init__(self) -> None:
        require(
            _CLUSTER_NAME.fullmatch(self.cluster) is not None,
            "cluster must be 1 to 64 letters, digits, '_' and '-'",
            self.cluster,
        )
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
        require(self.stop_grace_ms >= 0, "stop_grace_ms must be >= 0", self.stop_grace_ms)

    def risks(self) -> list[Risk]:
        """Which of these settings are risky, alone or together."""
        secrets = {
            "access.cluster_secret_file": self.access.cluster_secret_file,
            "etcd.tls.key": self.etcd.tls.key,
            "outside.tls.key": self.outside.tls.key,
        }
        found = [
            *common_risks(self),
            *outside_risks(self),
            *open_door(self.access, self.listen),
            *exposed_secrets(secrets),
        ]
        if self.topics.auto_create and not is_loopback(self.listen):
            found.append(
                Risk(
                    ("topics.auto_create", "listen"),
                    "topics.auto_create is true and other machines can ask: a misspelt name "
                    "becomes a topic with the default number of queues",
                )
            )
        if self.unclean_election:
            found.append(
                Risk(
                    ("unclean_election",),
                    "unclean_election is true: when no replica in sync is alive, one that lacks "
                    "acknowledged messages becomes master, and they are lost",
                )
            )
        if self.etcd.call_timeout_ms >= self.broker_lease.default_ms:
            found.append(
                Risk(
                    ("etcd.call_timeout_ms", "broker_lease.default_ms"),
                    f"one call to an etcd member that hangs lasts {self.etcd.call_timeout_ms} "
                    f"ms, but brokers' registrations only {self.broker_lease.default_ms} ms: "
                    "they end before another member is asked",
                )
            )
        return found
