"""Settings of access control, the same for brokers and nameservers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aerobee.rpc.tls_config import NodeTlsConfig
from aerobee.runtime.addresses import is_loopback
from aerobee.runtime.config import require
from aerobee.runtime.config_check import Risk


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Who may call."""

    enabled: bool = False
    """Refuse calls without valid credentials, and calls that no policy allows.

    Costs: clients need credentials, and an administrator must create users first; a few
    microseconds for each request.
    """
    cluster_secret_file: str = ""
    """File with the cluster secret, the same on all brokers and nameservers. They use it to prove
    that they belong to the cluster, and to seal the secrets of users in etcd. While the secret is
    being replaced, the file has two lines, and the secret to use is the first. The file is read
    again when it changes.

    Unit: path; empty: none
    Costs: a secret: only this process should be able to read it.
    """
    node_certificates: bool = False
    """Refuse nodes, and operators with the cluster secret, whose certificate does not name them
    ([how](access.md#certificates-of-nodes)). An attacker with the secret and one node's certificate
    can then act only as that node.

    Costs: a certificate for each node and each operator.
    """

    def __post_init__(self) -> None:
        require(
            bool(self.cluster_secret_file) or not self.enabled,
            "access.enabled needs access.cluster_secret_file: without it no node can prove that it "
            "is one",
            self.enabled,
        )
        require(
            self.enabled or not self.node_certificates,
            "access.node_certificates needs access.enabled: without it nobody is refused",
            self.node_certificates,
        )


def require_certificates(access: AccessConfig, tls: NodeTlsConfig) -> None:
    """For `__post_init__`: checks that TLS asks clients for certificates where nodes must show
    them.

    Raises:
        InvalidArgument: it does not.
    """
    require(
        not access.node_certificates or tls.tells_callers,
        "access.node_certificates needs tls.client_auth optional or required, and not "
        "tls.plain_text spoken: otherwise nodes show no certificates",
        tls.client_auth.value,
    )


def open_door(access: AccessConfig, listen: str) -> Iterator[Risk]:
    """Whether other machines may do everything."""
    if not access.enabled and not is_loopback(listen):
        yield Risk(
            ("access.enabled", "listen"),
            "access.enabled is false and other machines can connect: every one of them may read, "
            "send and delete everything, and pass for a broker",
        )
