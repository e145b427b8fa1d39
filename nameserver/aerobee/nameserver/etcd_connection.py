"""One connection to one member of etcd: how it is opened, which cluster it belongs to, and what its
errors mean.

The package etcd3 blocks, so all of this runs on the threads of `etcd.Etcd`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

from aerobee.nameserver.config import EtcdConfig
from aerobee.nameserver.etcd3_loader import load_etcd3
from aerobee.nameserver.key_values import LeaseNotFound
from aerobee.runtime.errors import RegistryUnavailable

_ANSWER_BYTES_MAX = 64 * 1024 * 1024
NO_SPACE = "database space exceeded"


class OtherCluster(RegistryUnavailable):
    """An endpoint belongs to another etcd cluster than the one used so far, or the endpoints belong
    to several."""


class OutOfSpace(RegistryUnavailable):
    """etcd has reached its quota: it reads, keeps leases alive and deletes, but stores nothing
    more."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An etcd3 client and the endpoint it talks to."""

    endpoint: str
    etcdrpc: Any
    client: Any


def open_connection(endpoint: str, config: EtcdConfig) -> Connection:
    """A connection, made on its first call. Reads the certificates, which may have been replaced
    since the last one was opened.

    Raises:
        RegistryUnavailable: a certificate cannot be read.
    """
    etcd3 = load_etcd3()
    host, _, port = endpoint.rpartition(":")
    options = (
        ("grpc.max_receive_message_length", _ANSWER_BYTES_MAX),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 3_000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # As in runtime.rpc: a member may come back at another address under the same name.
        ("grpc.min_reconnect_backoff_ms", 3_000),
        ("grpc.dns_min_time_between_resolutions_ms", 500),
        # A new connection must really be new, even while somebody still holds the one given up.
        ("grpc.use_local_subchannel_pool", 1),
    )
    try:
        client = etcd3.client(
            host=host,
            port=int(port),
            ca_cert=config.tls.ca or None,
            cert_cert=config.tls.certificate or None,
            cert_key=config.tls.key or None,
            timeout=config.call_timeout_ms / 1_000,
            grpc_options=options,
        )
    except OSError as error:
        raise RegistryUnavailable(
            f"a certificate for etcd cannot be read: {error}; correct etcd.tls.ca, "
            "etcd.tls.certificate, etcd.tls.key, or the files"
        ) from error
    return Connection(endpoint, etcd3.etcdrpc, client)


def cluster_of(connection: Connection, timeout_s: float) -> int:
    """The id of the cluster; each member knows it, with or without a quorum."""
    request = connection.etcdrpc.RangeRequest(key=b"\0", count_only=True, serializable=True)
    return int(connection.client.kvstub.Range(request, timeout_s).header.cluster_id)


def check_same(connection: Connection, cluster_id: int, used_id: int) -> None:
    """Raises OtherCluster unless the connection leads to the cluster used so far."""
    if cluster_id != used_id:
        raise OtherCluster(
            f"etcd at {connection.endpoint} belongs to cluster {cluster_id:x}, but this "
            f"nameserver uses {used_id:x}: correct etcd.endpoints; if etcd was restored from a "
            "backup, restart all nameservers"
        )


def check_endpoints(used: Connection, cluster_id: int, config: EtcdConfig) -> None:
    """Before the first answer is trusted: only an operator knows which of several clusters is
    meant. An endpoint that does not answer is checked when it is used.

    Raises:
        OtherCluster: an endpoint that answers belongs to another cluster than `used`.
    """
    others = [endpoint for endpoint in config.endpoints if endpoint != used.endpoint]
    if not others:
        return
    with ThreadPoolExecutor(len(others), "etcd-check") as threads:
        found = threads.map(lambda endpoint: _cluster_at(endpoint, config), others)
        for endpoint, other in zip(others, found, strict=True):
            if other not in (None, cluster_id):
                raise OtherCluster(
                    f"etcd at {used.endpoint} belongs to cluster {cluster_id:x}, at {endpoint} to "
                    f"{other:x}: all of etcd.endpoints must be members of one cluster"
                )


def _cluster_at(endpoint: str, config: EtcdConfig) -> int | None:
    """None: no answer, or one from an etcd that does not accept our calls."""
    try:
        connection = open_connection(endpoint, config)
    except RegistryUnavailable:
        return None
    try:
        return cluster_of(connection, config.call_timeout_ms / 1_000)
    except (grpc.RpcError, ValueError):
        return None
    finally:
        connection.client.close()


def has_no_connection(error: Exception) -> bool:
    """Whether nobody answered; etcd itself starts its messages with its name."""
    if not isinstance(error, grpc.Call):
        return False
    is_etcds_own = (error.details() or "").startswith("etcdserver:")
    return error.code() is grpc.StatusCode.UNAVAILABLE and not is_etcds_own


def is_unanswered(error: Exception) -> bool:
    """Whether the call's time ran out."""
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def error_of(error: Exception, endpoint: str) -> Exception:
    """What an error of the call means for callers."""
    if not isinstance(error, grpc.Call):
        return RegistryUnavailable(f"the connection to etcd at {endpoint} was lost: {error}")
    status, details = error.code(), error.details() or ""
    if status is grpc.StatusCode.NOT_FOUND and "lease" in details:
        return LeaseNotFound(details)
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and NO_SPACE in details:
        return OutOfSpace(
            f"etcd at {endpoint} has no space left: compact and defragment it, or raise its quota, "
            "and then disarm its alarm"
        )
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return RegistryUnavailable(f"etcd at {endpoint} did not answer in time")
    if status is grpc.StatusCode.UNAVAILABLE:
        return RegistryUnavailable(f"etcd at {endpoint} cannot be reached: {details}")
    if status is grpc.StatusCode.CANCELLED:
        # Nobody cancels calls, but the connection may have been given up for another.
        return RegistryUnavailable(f"the connection to etcd at {endpoint} was lost: {details}")
    return RegistryUnavailable(f"etcd at {endpoint} refused with {status.name}: {details}")
