"""What a local cluster consists of: processes, ports and folders. Values only, nothing is started.

Layout of the data folder: `etcd/`, `brokers/NAME/` (one store each), `logs/NAME.log`, `up.lock`.
Starting again on the same folder continues with its messages.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
NAMESERVER_PORT = 8081
BROKER_PORT_FIRST = 10911
BROKER_PORT_STEP = 10
ETCD_PORT = 2379
BROKERS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Every port that the cluster listens on, all on the loopback address."""

    nameserver: int
    etcd_client: int
    etcd_peer: int
    brokers: tuple[int, ...]

    def named(self) -> dict[str, int]:
        """Each port with what it is for."""
        brokers = {broker_name(index): port for index, port in enumerate(self.brokers)}
        return {
            "the nameserver": self.nameserver,
            "etcd": self.etcd_client,
            "etcd's peer port": self.etcd_peer,
            **brokers,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """One local cluster. `broker_settings` are broker configuration keys and their values."""

    data: Path
    cluster: str
    ports: Ports
    broker_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def nameserver_address(self) -> str:
        return f"{HOST}:{self.ports.nameserver}"

    @property
    def etcd_address(self) -> str:
        return f"{HOST}:{self.ports.etcd_client}"

    @property
    def brokers(self) -> dict[str, str]:
        """Broker name -> address."""
        return {
            broker_name(index): f"{HOST}:{port}" for index, port in enumerate(self.ports.brokers)
        }

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    def broker_folder(self, name: str) -> Path:
        return self.data / "brokers" / name


def broker_name(index: int) -> str:
    """broker-a, broker-b, ..., broker-z, broker-aa, ..."""
    letters = ""
    index += 1
    while index > 0:
        index, letter = divmod(index - 1, len(string.ascii_lowercase))
        letters = string.ascii_lowercase[letter] + letters
    return f"broker-{letters}"


def default_ports(*, brokers: int, nameserver: int, broker_first: int, etcd: int) -> Ports:
    """The documented ports: the first broker's and every tenth above it, etcd's and the next."""
    return Ports(
        nameserver=nameserver,
        etcd_client=etcd,
        etcd_peer=etcd + 1,
        brokers=tuple(broker_first + BROKER_PORT_STEP * index for index in range(brokers)),
    )
