"""Users whose rights a test changes at once, for nodes that it runs in its own process."""

from __future__ import annotations

from pathlib import Path

from aerobee.access.book import AccessBook
from aerobee.access.config import AccessConfig
from aerobee.access.node import NodeAccess
from aerobee.access.nodes import NAMESERVER, NodeName
from aerobee.access.policies import Policy
from aerobee.access.records import encode_policy, encode_user
from aerobee.access.sealing import NONCE_BYTES, ClusterSecrets, seal
from aerobee.access.signature import sign
from aerobee.access.table import Record, Records
from aerobee.access.users import User
from aerobee.runtime.clock import SystemClock

_SECRET = "a-secret-of-any-user"
_CLUSTER = "aerobee"


class KnownUsers:
    """What nameservers would tell the nodes of one cluster."""

    def __init__(self, folder: Path, **policies: tuple[str, ...]) -> None:
        """By user, policies such as `Allow Topic:orders Pub,Sub`."""
        self._file = folder / "cluster-secret"
        self._file.write_text("ab" * 32)
        self._secrets = ClusterSecrets.parse(self._file.read_text())
        self._policies = dict(policies)
        self._books: list[AccessBook] = []

    @property
    def config(self) -> AccessConfig:
        return AccessConfig(enabled=True, cluster_secret_file=str(self._file))

    def node(self) -> NodeAccess:
        """Access control of a node without a store, which knows the users."""
        access = NodeAccess(self.config, NodeName(NAMESERVER, _CLUSTER), clock=SystemClock())
        self.tell(access.book)
        return access

    def tell(self, book: AccessBook) -> None:
        """From now on this node knows every change at once."""
        self._books.append(book)
        self._tell()

    def may(self, user: str, *policies: str) -> None:
        """Replaces all policies of the user."""
        self._policies[user] = policies
        self._tell()

    def proof(self, user: str) -> dict[str, str]:
        """Metadata of a call by the user."""
        return dict(sign(user, _SECRET.encode(), "20240101T000000Z"))

    def key(self, user: str) -> tuple[str, bytes]:
        """Access key and secret."""
        return user, _SECRET.encode()

    def _tell(self) -> None:
        users = [
            User(name, sealed=(seal(_SECRET, name, self._secrets, bytes(NONCE_BYTES)),))
            for name in self._policies
        ]
        records = Records.of(
            [Record(user.name, encode_user(user)) for user in users],
            [
                Record(user, encode_policy(_policy(user, policy)))
                for user, policies in self._policies.items()
                for policy in policies
            ],
        )
        for book in self._books:
            book.hear(records)


def _policy(user: str, text: str) -> Policy:
    decision, resource, actions = text.split()
    return Policy.parse(user, resource, actions, decision)
