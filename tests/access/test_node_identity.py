"""A node speaks for itself alone; and where its certificate must name it, who has the cluster
secret is no other node by that."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from aerobee.access.book import AccessBook
from aerobee.access.callers import Callers
from aerobee.access.config import AccessConfig
from aerobee.access.guard import CallGuard
from aerobee.access.node_certificates import NodeCertificates
from aerobee.access.nodes import NAMESERVER, OPERATOR, NodeName, NodeSigner, NodeVerifier
from aerobee.access.recorder import Recorder
from aerobee.broker.config import BrokerConfig
from aerobee.nameserver.config import NameserverConfig
from aerobee.rpc.core.tls import ClientAuth
from aerobee.rpc.tls_config import NodeTlsConfig, PlainText
from aerobee.runtime.errors import AccessDenied, InvalidArgument, Unauthenticated
from aerobee.v1 import common_pb2, nameserver_pb2, replication_pb2
from tests.access.test_gate import CLUSTER
from tests.access.test_needs import TABLE

REGISTER = "/aerobee.v1.NameserverService/Register"
ALTER_IN_SYNC_SET = "/aerobee.v1.NameserverService/AlterInSyncSet"
REPLICATE = "/aerobee.v1.ReplicationService/Replicate"
DESCRIBE = "/aerobee.v1.NameserverService/DescribeCluster"
NOW_MS = 1_000_000_000_000
MASTER = NodeName.broker("hive", "broker-a", 0)


class Call:
    """A node's, whose connection shows a certificate with these URIs; None: it shows none."""

    def __init__(self, node: NodeName, path: str, uris: tuple[str, ...] | None = None) -> None:
        signer = NodeSigner(node, lambda: CLUSTER, lambda: NOW_MS, secrets.randbits(64))
        self._metadata = signer.metadata(path)
        self._uris = uris

    def peer(self) -> str:
        return "ipv4:10.0.0.7:5000"

    def invocation_metadata(self) -> Any:
        return self._metadata

    def peer_certificate(self) -> dict[str, Any] | None:
        if self._uris is None:
            return None
        names = [("DNS", "mq-1"), *(("URI", uri) for uri in self._uris)]
        return {"subject": ((("commonName", "mq-1"),),), "subjectAltName": tuple(names)}


def guard(certificates: NodeCertificates | None = None) -> CallGuard:
    verifier = NodeVerifier("hive", lambda: CLUSTER, lambda: NOW_MS)
    callers = Callers(AccessBook(None), verifier, certificates=certificates)
    return CallGuard(TABLE, callers, Recorder())


def says(path: str, cluster: str, broker_name: str, broker_id: int) -> Message | bytes:
    """A request of a broker with this identity."""
    if path == ALTER_IN_SYNC_SET:
        return nameserver_pb2.AlterInSyncSetRequest(
            cluster=cluster, broker_name=broker_name, master_id=broker_id
        )
    if path == REGISTER:
        identity = common_pb2.BrokerIdentity(
            cluster=cluster, broker_name=broker_name, broker_id=broker_id
        )
        return nameserver_pb2.BrokerHeartbeat(identity=identity)
    hello = replication_pb2.ReplicaHello(replica=nameserver_pb2.ReplicaName(broker_id=broker_id))
    header = replication_pb2.FrameHeader(cluster=cluster, broker_name=broker_name)
    return replication_pb2.ReplicaEvent(header=header, hello=hello).SerializeToString()


@pytest.mark.parametrize("path", [REGISTER, ALTER_IN_SYNC_SET, REPLICATE])
@pytest.mark.parametrize(
    "other", [("hive", "broker-a", 1), ("hive", "broker-b", 0), ("swarm", "broker-a", 0)]
)
def test_no_broker_speaks_for_another(path: str, other: tuple[str, str, int]) -> None:
    method = guard().method(path)
    assert method is not None
    method.admit(Call(MASTER, path)).check(says(path, "hive", "broker-a", 0))
    visit = method.admit(Call(MASTER, path))
    visit.check(says(path, "hive", "broker-a", 0))
    # Not even later on a stream that began well.
    with pytest.raises(AccessDenied) as refused:
        visit.check(says(path, *other))
    assert str(MASTER) in str(refused.value)
    assert str(NodeName.broker(*other)) in str(refused.value)


def test_what_follows_a_hello_and_what_cannot_be_read_is_the_streams_affair() -> None:
    method = guard().method(REPLICATE)
    assert method is not None
    visit = method.admit(Call(MASTER, REPLICATE))
    visit.check(replication_pb2.ReplicaEvent(ack=replication_pb2.ReplicaAck()).SerializeToString())
    visit.check(b"\xff" * 9)


def test_a_node_of_another_cluster_with_the_same_secret_is_refused() -> None:
    method = guard().method(DESCRIBE)
    assert method is not None
    for node in (NodeName.broker("swarm", "broker-a", 0), NodeName(NAMESERVER, "swarm")):
        with pytest.raises(Unauthenticated, match="is of cluster swarm, and this node of hive"):
            method.admit(Call(node, DESCRIBE))
    method.admit(Call(NodeName(OPERATOR, "command"), DESCRIBE))


NODES = {
    MASTER: "aerobee://hive/broker/broker-a/0",
    NodeName(NAMESERVER, "hive"): "aerobee://hive/nameserver",
    NodeName(OPERATOR, "command"): "aerobee://hive/operator",
}


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.role)
def test_a_certificate_must_name_the_node_that_proves_itself(node: NodeName) -> None:
    """A node that was taken over has the secret, and so can prove to be any; its certificate it
    cannot change."""
    asks = guard(NodeCertificates("hive")).method(DESCRIBE)
    assert asks is not None
    own = NODES[node]
    asks.admit(Call(node, DESCRIBE, (own,)))
    asks.admit(Call(node, DESCRIBE, ("spiffe://elsewhere/x", own)))
    others = [uri for uri in NODES.values() if uri != own]
    others += ["aerobee://hive/broker/broker-a/1", own + "/", own.replace("hive", "swarm")]
    for uri in others:
        with pytest.raises(Unauthenticated) as refused:
            asks.admit(Call(node, DESCRIBE, (uri,)))
        assert f"{node} must show a certificate with the URI {own}" in str(refused.value)
        assert uri in str(refused.value)
    for uris, shown in (((), "shows no such name"), (None, "shows no certificate")):
        with pytest.raises(Unauthenticated, match=shown):
            asks.admit(Call(node, DESCRIBE, uris))


def test_certificates_of_nodes_need_tls_that_asks_for_them() -> None:
    access = AccessConfig(enabled=True, cluster_secret_file="s", node_certificates=True)
    asks = NodeTlsConfig(certificate="c", key="k", ca="a", client_auth=ClientAuth.OPTIONAL)
    spoken = NodeTlsConfig(
        certificate="c", key="k", ca="a", client_auth=ClientAuth.REQUIRED,
        plain_text=PlainText.SPOKEN,
    )  # fmt: skip
    for tls in (NodeTlsConfig(), NodeTlsConfig(certificate="c", key="k", ca="a"), spoken):
        for config in (partial(BrokerConfig, store_root=Path("s")), NameserverConfig):
            with pytest.raises(InvalidArgument, match=r"access\.node_certificates needs tls"):
                config(access=access, tls=tls)
    NameserverConfig(access=access, tls=asks)
    with pytest.raises(InvalidArgument, match=r"needs access\.enabled"):
        AccessConfig(cluster_secret_file="s", node_certificates=True)
