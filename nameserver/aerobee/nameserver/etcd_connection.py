"""One connection to one member of etcd: how it is opened, whose it is, and what its errors mean.

The package etcd3 blocks, so all of this runs on the threads of `etcd.Etcd`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc

from aerobee.nameserver.etcd3_loader import load_etcd3
from aerobee.nameserver.key_values import LeaseNotFound
from aerobee.runtime.errors import RegistryUnavailable

_ANSWER_BYTES_MAX = 64 * 1024 * 1024


class OtherCluster(RegistryUnavailable):
    """An endpoint belongs to another etcd cluster than the one that was used so far."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An etcd3 client and the endpoint it talks to."""

    endpoint: str
    etcdrpc: Any
    client: Any


def open_connection(endpoint: str, timeout_s: float) -> Connection:
    etcd3 = load_etcd3()
    host, _, port = endpoint.rpartition(":")
    options = (
        ("grpc.max_receive_message_length", _ANSWER_BYTES_MAX),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 3_000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # As in runtime.rpc: a member may come back at another address behind its name.
        ("grpc.min_reconnect_backoff_ms", 3_000),
        ("grpc.dns_min_time_between_resolutions_ms", 500),
    )
    client = etcd3.client(host=host, port=int(port), timeout=timeout_s, grpc_options=options)
    return Connection(endpoint, etcd3.etcdrpc, client)


def cluster_of(connection: Connection, timeout_s: float) -> int:
    """The id of the cluster; each member knows it, with or without a quorum."""
    request = connection.etcdrpc.RangeRequest(key=b"\0", count_only=True, serializable=True)
    return int(connection.client.kvstub.Range(request, timeout_s).header.cluster_id)


def has_no_connection(error: Exception) -> bool:
    """Whether nobody answered; etcd itself begins what it says with its name."""
    if not isinstance(error, grpc.Call):
        return False
    is_etcds_own = (error.details() or "").startswith("etcdserver:")
    return error.code() is grpc.StatusCode.UNAVAILABLE and not is_etcds_own


def error_of(error: Exception, endpoint: str) -> Exception:
    """What an error of the call means for us."""
    if not isinstance(error, grpc.Call):
        return RegistryUnavailable(f"the connection to etcd at {endpoint} was lost: {error}")
    status, details = error.code(), error.details() or ""
    if status is grpc.StatusCode.NOT_FOUND and "lease" in details:
        return LeaseNotFound(details)
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return RegistryUnavailable(f"etcd at {endpoint} did not answer in time")
    if status is grpc.StatusCode.UNAVAILABLE:
        return RegistryUnavailable(f"etcd at {endpoint} cannot be reached: {details}")
    return RegistryUnavailable(f"etcd at {endpoint} refused with {status.name}: {details}")
