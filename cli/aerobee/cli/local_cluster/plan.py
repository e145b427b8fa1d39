"""What a local cluster consists of: processes, ports and folders. Values only, nothing is started.

Layout of the data folder: `etcd/`, `brokers/NAME/` (one store each), `logs/NAME.log`, `up.lock`,
`store-sizes.json`, `tls/`, with access control `access/cluster-secret` and `audit-log/NAME.log`.
Starting again on the same folder continues with its messages. The first replica of a group has the
group's name, the others a number after it; so replicas can be added to a cluster that had none.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aerobee.access.node_certificates import certificate_uri
from aerobee.access.nodes import NAMESERVER, OPERATOR, NodeName
from aerobee.rpc.tls_config import TlsConfig

HOST = "127.0.0.1"
NAMESERVER_PORT = 8081
BROKER_PORT_FIRST = 10911
BROKER_PORT_STEP = 10
ETCD_PORT = 2379
BROKERS_MAX = 64
REPLICAS_MAX = 5
"""Of one group; their ports are side by side, before the next group's."""
OUTSIDE_STEP = REPLICAS_MAX
"""From a broker's port to its port for clients outside: after its group's last replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Every port that the cluster listens on."""

    nameserver: int
    etcd_client: int
    brokers: tuple[tuple[int, ...], ...]
    """By broker group, one for each replica."""
    outside: tuple[int, ...] = ()
    """Of second listeners: the nameserver's, then those of the brokers as they are named."""
    metrics: tuple[int, ...] = ()
    """In the same order."""

    def named(self) -> dict[str, int]:
        """Each port with what it is for."""
        services = self._services()
        return {
            **services,
            "etcd": self.etcd_client,
            **{
                f"{name} for clients outside": port
                for name, port in zip(services, self.outside, strict=False)
            },
            **{
                f"the metrics of {name}": port
                for name, port in zip(services, self.metrics, strict=False)
            },
        }

    def _services(self) -> dict[str, int]:
        return {
            "the nameserver": self.nameserver,
            **{
                Replica(broker_name(group), broker_id).name: port
                for group, ports in enumerate(self.brokers)
                for broker_id, port in enumerate(ports)
            },
        }


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker process of the cluster."""

    broker_name: str
    broker_id: int

    @property
    def name(self) -> str:
        """Of the process, its folder and its log."""
        return self.broker_name if self.broker_id == 0 else f"{self.broker_name}-{self.broker_id}"


@dataclass(frozen=True, slots=True)
class LocalTls:
    """PEM files in one folder."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """Of every process of the cluster."""
        return self.folder / "node.crt"

    @property
    def key(self) -> Path:
        return self.folder / "node.key"

    @property
    def client_certificate(self) -> Path:
        return self.folder / "client.crt"

    @property
    def client_key(self) -> Path:
        return self.folder / "client.key"


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """The same for etcd, whose authority signs nothing else: no certificate of a node or a client
    opens it."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "etcd-ca.crt"

    @property
    def certificate(self) -> Path:
        """Of etcd."""
        return self.folder / "etcd.crt"

    @property
    def key(self) -> Path:
        return self.folder / "etcd.key"

    @property
    def client_certificate(self) -> Path:
        """Of the nameserver."""
        return self.folder / "etcd-client.crt"

    @property
    def client_key(self) -> Path:
        return self.folder / "etcd-client.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """One local cluster. `broker_settings` are broker configuration keys and their values."""

    data: Path
    cluster: str
    ports: Ports
    grpc_engine: str | None = None
    """Of the nameserver and the brokers; None: their default."""
    is_encrypted: bool = False
    """Everything speaks TLS, with the certificates of `tls`."""
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    access: bool = False
    """Access control is on."""
    host: str = ""
    """By which clients reach this machine, where they may be on others: nameserver and brokers
    listen on all its addresses then. Empty: clients are on this machine."""
    outside_host: str = ""
    """By which clients reach the second listeners, if there are any."""
    broker_sizes: Mapping[Replica, Mapping[str, int]] = field(default_factory=dict)
    """Sizes of each broker's files, as configuration keys; see `sizes`."""

    @property
    def cluster_secret_file(self) -> Path:
        return self.data / "access" / "cluster-secret"

    def audit_log(self, node: str) -> Path:
        return self.data / "audit-log" / f"{node}.log"

    @property
    def nameserver_address(self) -> str:
        return f"{HOST}:{self.ports.nameserver}"

    @property
    def etcd_address(self) -> str:
        return f"{HOST}:{self.ports.etcd_client}"

    @property
    def brokers(self) -> dict[Replica, str]:
        """Every broker process and its address, group by group."""
        return {
            Replica(broker_name(group), broker_id): f"{HOST}:{port}"
            for group, ports in enumerate(self.ports.brokers)
            for broker_id, port in enumerate(ports)
        }

    def listening(self, address: str) -> str:
        """Where the process with this address listens."""
        return f"0.0.0.0:{_port(address)}" if self.host else address

    def announced(self, address: str) -> str:
        """What clients are told instead of this address of a process."""
        return f"{self.host}:{_port(address)}" if self.host else address

    def outside(self, address: str) -> tuple[str, str] | None:
        """Where the process with this address listens for clients outside, and what they are told;
        None without such a listener."""
        port = self._port_beside(address, self.ports.outside)
        return None if port is None else (f"0.0.0.0:{port}", f"{self.outside_host}:{port}")

    def metrics(self, address: str) -> str | None:
        """Where the process with this address shows its metrics."""
        port = self._port_beside(address, self.ports.metrics)
        return None if port is None else f"{HOST}:{port}"

    def _port_beside(self, address: str, ports: tuple[int, ...]) -> int | None:
        services = (self.nameserver_address, *self.brokers.values())
        return dict(zip(services, ports, strict=False)).get(address)

    @property
    def groups(self) -> dict[str, list[Replica]]:
        """The replicas of each broker group."""
        groups: dict[str, list[Replica]] = {}
        for replica in self.brokers:
            groups.setdefault(replica.broker_name, []).append(replica)
        return groups

    @property
    def tls(self) -> LocalTls:
        """Where certificates are, if it is encrypted."""
        return LocalTls(self.data / "tls")

    @property
    def etcd_tls(self) -> EtcdTls:
        return EtcdTls(self.data / "tls")

    @property
    def etcd_peer_folder(self) -> Path:
        """Where etcd listens for members that it does not have, on a socket that only its owner
        can reach."""
        return self.data / "etcd-peer"

    def node_uris(self) -> list[str]:
        """What the nodes' certificate names: they share one."""
        brokers = [
            NodeName.broker(self.cluster, replica.broker_name, replica.broker_id)
            for replica in self.brokers
        ]
        nodes = [NodeName(NAMESERVER, self.cluster), *brokers]
        return [certificate_uri(node, self.cluster) for node in nodes]

    def operator_uri(self) -> str:
        """The same of an operator; clients show it."""
        return certificate_uri(NodeName(OPERATOR, ""), self.cluster)

    @property
    def client_tls(self) -> TlsConfig | bool:
        """What clients of the cluster need, at most."""
        if not self.is_encrypted:
            return False
        tls = self.tls
        return TlsConfig(ca=tls.ca, certificate=tls.client_certificate, key=tls.client_key)

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    def broker_folder(self, replica: Replica) -> Path:
        return self.data / "brokers" / replica.name


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def broker_name(index: int) -> str:
    """broker-a, broker-b, ..., broker-z, broker-aa, ..."""
    letters = ""
    index += 1
    while index > 0:
        index, letter = divmod(index - 1, len(string.ascii_lowercase))
        letters = string.ascii_lowercase[letter] + letters
    return f"broker-{letters}"


def brokers_of_cores(cores: int, replicas: int) -> int:
    """One broker process per core but one, in groups of `replicas`; at least one group.

    >>> brokers_of_cores(16, 1), brokers_of_cores(16, 3), brokers_of_cores(1, 1)
    (15, 5, 1)
    """
    return min(max(1, (cores - 1) // replicas), BROKERS_MAX)


def default_ports(
    *,
    brokers: int,
    nameserver: int,
    broker_first: int,
    etcd: int,
    replicas: int = 1,
    with_outside: bool = False,
    metrics_first: int | None = None,
) -> Ports:
    """The documented ports: the first broker's and every tenth after it, further replicas' right
    after each, and etcd's."""
    groups = tuple(
        tuple(broker_first + BROKER_PORT_STEP * group + number for number in range(replicas))
        for group in range(brokers)
    )
    outside = (nameserver + 1, *(port + OUTSIDE_STEP for group in groups for port in group))
    services = range(brokers * replicas + 1)
    return Ports(
        nameserver=nameserver,
        etcd_client=etcd,
        brokers=groups,
        outside=outside if with_outside else (),
        metrics=() if metrics_first is None else tuple(metrics_first + each for each in services),
    )
