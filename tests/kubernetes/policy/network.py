"""Who may talk to whom: the pairs that a rendering's network policies allow.

Kubernetes' rules, as its documentation has them: a pod that no policy selects is free in that
direction; one that some select may do what any of them allows; both ends must allow it. Probes of
the kubelet always pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.kubernetes.manifests import Manifests, Object
from tests.kubernetes.policy.references import matches
from tests.kubernetes.policy.serving import ports_of

HERE = "aerobee"
UNDECLARED = 4444
"""A port that nobody declares."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A kind of pod, or an address outside; ours, or whoever else is there."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    namespace: str = HERE
    address: str = ""
    ports: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Name -> protocol and number."""
    is_ours: bool = False

    @property
    def namespace_labels(self) -> dict[str, str]:
        return {"kubernetes.io/metadata.name": self.namespace}


CLIENT = {"aerobee.dev/client": "true"}
OTHERS = (
    Peer("client here", {"app": "shop", **CLIENT}),
    Peer("client elsewhere", {"app": "shop", **CLIENT}, "shop"),
    Peer("proxy of the console", {"aerobee.dev/console-proxy": "true"}, "ingress"),
    Peer("prometheus", {"app.kubernetes.io/name": "prometheus"}, "monitoring"),
    Peer("stranger here", {"app": "shop"}, ports={"any": ("TCP", UNDECLARED)}),
    Peer("stranger elsewhere", {"app": "shop"}, "shop", ports={"any": ("TCP", UNDECLARED)}),
    Peer(
        "dns",
        {"k8s-app": "kube-dns"},
        "kube-system",
        ports={"dns": ("UDP", 53), "dns-tcp": ("TCP", 53)},
    ),
    Peer("dns of the node", address="169.254.20.10", ports={"dns": ("UDP", 53)}),
    Peer("internet", address="203.0.113.5", ports={"https": ("TCP", 443), "dns": ("UDP", 53)}),
)


def peers(manifests: Manifests) -> list[Peer]:
    """The pods of a rendering, named after their group or component, and everybody else."""
    found: dict[str, Peer] = {}
    for pod in manifests.pods():
        name = pod.labels.get("aerobee.dev/broker-group") or pod.component
        if "spark-role" in pod.labels:
            name = pod.labels["spark-role"]
        ports = {key: ("TCP", number) for key, number in ports_of(pod).items()}
        ports["undeclared"] = ("TCP", UNDECLARED)
        found[name] = Peer(name, dict(pod.labels), ports=ports, is_ours=True)
    return [*found.values(), *OTHERS]


def allowed(manifests: Manifests) -> set[tuple[str, str, str]]:
    """(from, to, port's name) of everything that may be done where one end is ours."""
    policies = manifests.of_kind("NetworkPolicy")
    everybody = peers(manifests)
    return {
        (source.name, target.name, port)
        for source in everybody
        for target in everybody
        if source.is_ours or target.is_ours
        for port in target.ports
        if _may(policies, "Egress", source, target, port)
        and _may(policies, "Ingress", target, source, port)
    }


def _may(policies: list[Object], direction: str, own: Peer, other: Peer, port: str) -> bool:
    """Whether `own` may send to (Egress) or hear from (Ingress) `other`."""
    if not own.is_ours:
        return True
    rules, is_selected = [], False
    for policy in policies:
        spec = policy["spec"]
        if direction in spec["policyTypes"] and matches(spec["podSelector"], own.labels):
            is_selected = True
            rules += spec.get(direction.lower(), [])
    target = other if direction == "Egress" else own
    side = "to" if direction == "Egress" else "from"
    return not is_selected or any(
        _is_peer(rule.get(side), other) and _is_port(rule.get("ports"), target, port)
        for rule in rules
    )


def _is_peer(named: list[Object] | None, other: Peer) -> bool:
    if not named:
        return True
    return any(_is_one(one, other) for one in named)


def _is_one(one: Object, other: Peer) -> bool:
    if "ipBlock" in one:
        # Only addresses outside are compared: those of pods are not known before they run.
        return bool(other.address) and one["ipBlock"]["cidr"] == f"{other.address}/32"
    if other.address:
        return False
    if "namespaceSelector" in one:
        if not matches(one["namespaceSelector"], other.namespace_labels):
            return False
    elif other.namespace != HERE:
        return False
    return "podSelector" not in one or matches(one["podSelector"], other.labels)


def _is_port(named: list[Object] | None, target: Peer, port: str) -> bool:
    if not named:
        return True
    protocol, number = target.ports[port]
    return any(
        one.get("protocol", "TCP") == protocol
        and (
            one["port"] == port
            or (
                isinstance(one["port"], int)
                and one["port"] <= number <= one.get("endPort", one["port"])
            )
        )
        for one in named
    )


def intended(manifests: Manifests) -> set[tuple[str, str, str]]:
    """The table of who is meant to talk to whom, for the parts that a rendering has."""
    names = {peer.name for peer in peers(manifests)}
    groups = {one for one in names if one.startswith("broker-")}
    auditors = names & {"audit", "driver", "executor"}
    services = names & {"nameserver", "etcd"} | groups
    pairs: set[tuple[str, str, str]] = {("etcd", "etcd", "peer"), ("etcd", "etcd", "client")}
    pairs.add(("nameserver", "etcd", "client"))
    for group in groups:
        # Slaves copy, and each node passes calls of Apache's clients on.
        pairs |= {(group, one, "grpc") for one in groups | {"nameserver"}}
        pairs.add(("nameserver", group, "grpc"))
    for asking in {"client here", "client elsewhere", *auditors, *(names & {"tools", "apply"})}:
        pairs |= {(asking, one, "grpc") for one in groups | {"nameserver"}}
    pairs |= {("prometheus", one, "metrics") for one in services}
    for one in services | auditors | (names & {"tools", "apply"}):
        pairs |= {(one, "dns", "dns"), (one, "dns", "dns-tcp"), (one, "dns of the node", "dns")}
    for one in names & {"etcd-upkeep", "volume-snapshots"}:
        pairs |= {(one, "etcd", "client"), (one, "dns", "dns"), (one, "dns", "dns-tcp")}
        pairs.add((one, "dns of the node", "dns"))
    if "volume-snapshots" in names:
        pairs.add(("volume-snapshots", "internet", "https"))
    if "driver" in names:
        spark = {"driver", "executor"}
        pairs |= {(one, other, "undeclared") for one in spark for other in spark}
        pairs.add(("driver", "internet", "https"))
    return pairs


def only_intended_pairs_talk(manifests: Manifests) -> Iterator[str]:
    """Allowed is what is meant, no more and no less."""
    may, should = allowed(manifests), intended(manifests)
    for source, target, port in sorted(may - should):
        yield f"{source} may talk to {target} ({port})"
    for source, target, port in sorted(should - may):
        yield f"{source} cannot talk to {target} ({port})"
