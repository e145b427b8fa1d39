"""All that the ports of a cluster serve, and who knocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from aerobee.access.credentials import KeyPair, UserCredentials
from aerobee.access.needs import Who
from aerobee.access.nodes import BROKER, OPERATOR, NodeName, NodeSigner
from aerobee.access.sealing import ClusterSecrets
from aerobee.runtime.clock import SystemClock
from aerobee.v1 import (
    access_pb2,
    audit_log_pb2,
    audit_pb2,
    broker_pb2,
    nameserver_pb2,
    replication_pb2,
)
from apache.rocketmq.v2 import service_pb2
from tests.access.test_needs import TABLE
from tests.support.costly_requests import methods_of
from tests.support.v2_calls import METADATA

Metadata = tuple[tuple[str, str], ...]

_STANDARD: Final = (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
AT_NAMESERVERS: Final = methods_of(
    nameserver_pb2.DESCRIPTOR,
    access_pb2.DESCRIPTOR,
    audit_log_pb2.DESCRIPTOR,
    service_pb2.DESCRIPTOR,
    *_STANDARD,
)
AT_BROKERS: Final = methods_of(
    broker_pb2.DESCRIPTOR,
    audit_log_pb2.DESCRIPTOR,
    audit_pb2.DESCRIPTOR,
    replication_pb2.DESCRIPTOR,
    service_pb2.DESCRIPTOR,
    *_STANDARD,
)
AT_HEALTH: Final = methods_of(health_pb2.DESCRIPTOR)

UPHEAVALS: Final = frozenset(
    {"Register", "AlterInSyncSet", "RemoveReplica", "HandOver", "Replicate"}
)
"""What changes who is master or in sync: everybody would feel it, which is no attack when one who
may do it does it."""


class Kind(StrEnum):
    """Who a caller is."""

    STRANGER = "unsigned"
    NOISE = "signed by noise"
    FORGER = "signed by a wrong secret"
    USER = "signed by a user with few rights"
    ROOT = "signed by a super user"
    NODE = "with a node's proof"
    REPLAYED = "with a proof that was used before"
    FOREIGN = "with another cluster's proof"
    OPERATOR = "with an operator's proof"


_MAY_UPHEAVE: Final = {
    Kind.ROOT: frozenset({Who.ANYONE, Who.USERS, Who.SUPER_USERS}),
    Kind.OPERATOR: frozenset({Who.ANYONE, Who.USERS, Who.SUPER_USERS}),
    Kind.NODE: frozenset({Who.ANYONE, Who.USERS, Who.BROKERS}),
    # Once for each path and port it is good.
    Kind.REPLAYED: frozenset({Who.ANYONE, Who.USERS, Who.BROKERS}),
}


@dataclass(frozen=True)
class Ports:
    """Where a cluster listens."""

    nameserver: str
    brokers: tuple[str, ...]
    health: tuple[str, ...]
    metrics: tuple[str, ...]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Ports:
        """From its own JSON."""
        lists = {name: tuple(document[name]) for name in ("brokers", "health", "metrics")}
        return cls(document["nameserver"], **lists)

    @property
    def grpc(self) -> tuple[str, ...]:
        return (self.nameserver, *self.brokers, *self.health)

    def methods(self, address: str) -> Sequence[MethodDescriptor]:
        if address == self.nameserver:
            return AT_NAMESERVERS
        return AT_BROKERS if address in self.brokers else AT_HEALTH


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


class Callers:
    """Metadata of calls by each kind of caller."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: of `credentials.prepare`; None: the cluster has no access control."""
        clock = SystemClock()
        self._made: dict[Kind, Callable[[str], Metadata]] = {Kind.STRANGER: lambda path: ()}
        self.is_guarded = folder is not None
        if folder is None:
            return
        few = KeyPair.parse((folder / "few").read_text())
        root = KeyPair.parse((folder / "root").read_text())
        wrong = KeyPair(few.access_key, b"not-its-secret")
        secrets = ClusterSecrets.parse((folder / "cluster-secret").read_text())
        foreign = ClusterSecrets.parse("f" * 64)

        def signer(secrets: ClusterSecrets, name: NodeName) -> Callable[[str], Metadata]:
            process_id = random.SystemRandom().getrandbits(64)
            return NodeSigner(name, lambda: secrets, clock.now_ms, process_id).metadata

        node = signer(secrets, NodeName(BROKER, "broker-a/0"))
        self._made |= {
            Kind.FORGER: UserCredentials(wrong, clock).metadata,
            Kind.USER: UserCredentials(few, clock).metadata,
            Kind.ROOT: UserCredentials(root, clock).metadata,
            Kind.NODE: node,
            Kind.REPLAYED: self._replayed(node),
            Kind.FOREIGN: signer(foreign, NodeName(BROKER, "broker-a/0")),
            Kind.OPERATOR: signer(secrets, NodeName(OPERATOR, "admin")),
        }

    @staticmethod
    def _replayed(node: Callable[[str], Metadata]) -> Callable[[str], Metadata]:
        """Each proof is made once for a path, and goes on in use when its time is over."""
        proofs: dict[str, Metadata] = {}

        def metadata(path: str) -> Metadata:
            return proofs.get(path) or proofs.setdefault(path, node(path))

        return metadata

    def kinds(self) -> list[Kind]:
        return [Kind.NOISE, *self._made]

    def metadata(self, kind: Kind, path: str, chance: random.Random) -> Metadata:
        if kind is not Kind.NOISE:
            return self._made[kind](path)
        words = ("", "MQv2-HMAC-SHA1", "Credential=few", "Signature=00", ",", "=", "a" * 600, "0 1")
        noise = " ".join(chance.choices(words, k=chance.randrange(6)))
        return (
            (chance.choice(("authorization", "aerobee-node", "x-mq-forwarded")), noise),
            ("x-mq-date-time", chance.choice(("", "20240101T000000Z", "now"))),
        )

    def may_upheave(self, kind: Kind, path: str) -> bool:
        """Whether the door is open to this caller, whose call would then be an upheaval."""
        if path.rpartition("/")[2] not in UPHEAVALS:
            return False
        if not self.is_guarded:
            return True
        return TABLE[path].who in _MAY_UPHEAVE.get(kind, frozenset())


def client_metadata(path: str, chance: random.Random) -> Metadata:
    """What official clients say beside it, or nearly."""
    if "rocketmq" not in path:
        return ()
    metadata = dict(METADATA)
    if chance.random() < 0.02:
        del metadata["x-mq-client-id"]
    elif chance.random() < 0.15:
        metadata["x-mq-client-id"] = f"odd-{chance.randrange(300)}"
    return tuple(metadata.items())
