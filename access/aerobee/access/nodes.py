"""How a node of the cluster, or an operator with the cluster secret, proves itself in each call.

    aerobee-node: broker:hive/broker-a/0 1732651200000 5f3a9c12a1b2c3d4 17 9d05...

Role and name, the time in Unix ms, a random id of the process, a number that rises with each call,
and an HMAC-SHA256 of all of that and of the method's path. A verifier accepts a proof once: it
remembers which numbers each process has used for as long as a proof's time is valid. It cannot know
what other verifiers accepted: without TLS, someone who sees a proof on the network can use it at
another node within that time.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from aerobee.access.sealing import ClusterSecrets
from aerobee.runtime.errors import Busy, Unauthenticated

NODE_KEY: Final = "aerobee-node"
TIME_TOLERANCE_MS: Final = 120_000
"""How far the clocks of two nodes may differ."""
_PURPOSE: Final = b"node proof"
_WINDOW: Final = 4_096
"""Calls on several connections overtake one another, but by fewer numbers than this."""
_PROCESSES_MAX: Final = 10_000
_LENGTH_MAX: Final = 512

BROKER: Final = "broker"
NAMESERVER: Final = "nameserver"
OPERATOR: Final = "operator"
_ROLES: Final = frozenset((BROKER, NAMESERVER, OPERATOR))


class NodeName(NamedTuple):
    """Who a node says it is."""

    role: str
    name: str
    """A node's name begins with the cluster: `hive/broker-a/0`, `hive`."""

    @classmethod
    def broker(cls, cluster: str, broker_name: str, broker_id: int) -> NodeName:
        return cls(BROKER, f"{cluster}/{broker_name}/{broker_id}")

    @property
    def cluster(self) -> str:
        """Empty: an operator, whose proof is valid for any cluster with its secret."""
        return "" if self.role == OPERATOR else self.name.partition("/")[0]

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


class NodeSigner:
    """Makes the proofs of one process."""

    def __init__(
        self,
        node: NodeName,
        secrets: Callable[[], ClusterSecrets],
        now_ms: Callable[[], int],
        process_id: int,
    ) -> None:
        """`process_id`: 64 random bits. `node` has no spaces."""
        self._node = str(node)
        self._secrets = secrets
        self._now_ms = now_ms
        self._process = f"{process_id:016x}"
        self._number = 0

    def metadata(self, path: str) -> tuple[tuple[str, str], ...]:
        """The metadata of one call."""
        self._number += 1
        claim = f"{self._node} {self._now_ms()} {self._process} {self._number}"
        key = self._secrets().keys(_PURPOSE)[0]
        return ((NODE_KEY, f"{claim} {_mac(key, path, claim).hex()}"),)


class _Process:
    """Which numbers of one process have been used."""

    __slots__ = ("heard_ms", "highest", "seen")

    def __init__(self) -> None:
        self.highest = 0
        self.seen = 0
        """Bit n: `highest - n` was used."""
        self.heard_ms = 0

    def take(self, number: int) -> bool:
        """Accept `number`; whether it is new."""
        ahead = number - self.highest
        if ahead > 0:
            self.seen = ((self.seen << min(ahead, _WINDOW)) | 1) & ((1 << _WINDOW) - 1)
            self.highest = number
            return True
        if -ahead >= _WINDOW or self.seen >> -ahead & 1:
            return False
        self.seen |= 1 << -ahead
        return True


class NodeVerifier:
    """Checks the proofs that come to one process."""

    def __init__(
        self, cluster: str, secrets: Callable[[], ClusterSecrets | None], now_ms: Callable[[], int]
    ) -> None:
        self._cluster = cluster
        self._secrets = secrets
        self._now_ms = now_ms
        self._processes: dict[str, _Process] = {}

    def check(self, proof: str | bytes, path: str) -> NodeName:
        """Who made the proof. Raises Unauthenticated."""
        secrets, now_ms = self._secrets(), self._now_ms()
        if secrets is None:
            raise Unauthenticated(
                "this node has no cluster secret to check others' by; set "
                "access.cluster_secret_file"
            )
        words = proof.split(" ") if isinstance(proof, str) and len(proof) <= _LENGTH_MAX else []
        if len(words) != 5:
            raise Unauthenticated(f"the call's {NODE_KEY} is not a proof of a node")
        claim, _, digest = str(proof).rpartition(" ")
        try:
            mac, time_ms, number = bytes.fromhex(digest), int(words[1]), int(words[3])
        except ValueError:
            raise Unauthenticated(f"the call's {NODE_KEY} is not a proof of a node") from None
        keys = secrets.keys(_PURPOSE)
        if not any(hmac.compare_digest(_mac(key, path, claim), mac) for key in keys):
            raise Unauthenticated(
                "the call's proof of a node was made with another cluster secret; give all nodes "
                "the same file"
            )
        # From here on, what is claimed was said by someone who has the secret.
        if abs(time_ms - now_ms) > TIME_TOLERANCE_MS:
            raise Unauthenticated(
                f"the call's proof of a node is {abs(time_ms - now_ms) // 1_000} s away from this "
                "node's time; set the clocks of all nodes"
            )
        if not self._process(words[2], now_ms).take(number):
            raise Unauthenticated("the call's proof of a node was used before")
        role, _, name = words[0].partition(":")
        if role not in _ROLES:
            raise Unauthenticated(f"the call's {NODE_KEY} names no role that is known")
        node = NodeName(role, name)
        if role != OPERATOR and node.cluster != self._cluster:
            raise Unauthenticated(
                f"{node} is of cluster {node.cluster}, and this node of {self._cluster}; give each "
                "cluster a secret of its own"
            )
        return node

    def _process(self, process_id: str, now_ms: int) -> _Process:
        process = self._processes.get(process_id)
        if process is None:
            if len(self._processes) >= _PROCESSES_MAX:
                self._forget(now_ms)
            process = self._processes[process_id] = _Process()
        process.heard_ms = now_ms
        return process

    def _forget(self, now_ms: int) -> None:
        """Forget processes whose proofs have all expired. Raises Busy: there are none."""
        # A proof may be as far in the future as in the past.
        before_ms = now_ms - 2 * TIME_TOLERANCE_MS
        self._processes = {
            key: each for key, each in self._processes.items() if each.heard_ms >= before_ms
        }
        if len(self._processes) >= _PROCESSES_MAX:
            raise Busy("too many processes prove to be nodes; try again in some minutes")


def _mac(key: bytes, path: str, claim: str) -> bytes:
    return hmac.digest(key, f"{path} {claim}".encode("utf-8", "surrogateescape"), "sha256")
