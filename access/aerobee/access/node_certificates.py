"""Certificates that name a node: with them, the cluster secret alone is not enough to act as a
broker.

All nodes have the same secret, so a proof made with it can claim to be any of them. A certificate
belongs to one node: a URI among its alternative names says which.

    aerobee://hive/broker/broker-a/0
    aerobee://hive/nameserver
    aerobee://hive/operator
"""

from __future__ import annotations

from typing import Any

from aerobee.access.nodes import OPERATOR, NodeName
from aerobee.runtime.errors import Unauthenticated


def certificate_uri(node: NodeName, cluster: str) -> str:
    """The URI that names a node in its certificate."""
    if node.role == OPERATOR:
        return f"aerobee://{cluster}/{OPERATOR}"
    _, slash, name = node.name.partition("/")
    return f"aerobee://{node.cluster}/{node.role}{slash}{name}"


class NodeCertificates:
    """Requires nodes, and operators with the cluster secret, to show a certificate of their own."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def check(self, node: NodeName, context: Any) -> None:
        """Raises Unauthenticated: the call's connection shows no certificate of this node."""
        told = getattr(context, "peer_certificate", None)
        certificate = (told() if told is not None else None) or {}
        uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
        needed = certificate_uri(node, self._cluster)
        if needed not in uris:
            shown = ", ".join(uris) if uris else "no such name" if certificate else "no certificate"
            raise Unauthenticated(
                f"{node} must show a certificate with the URI {needed}, and shows {shown}; issue "
                "one, or set access.node_certificates to false"
            )
