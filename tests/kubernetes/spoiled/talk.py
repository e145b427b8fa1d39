"""Network policies that let too many talk, or too few."""

from __future__ import annotations

from tests.kubernetes.policy import network
from tests.kubernetes.spoiled.ways import (
    Spoiled,
    policy,
    remove,
)

NETWORK: Spoiled = [
    (network.only_intended_pairs_talk, one)
    for one in (
        *(
            remove("NetworkPolicy", name)
            for name in (
                "aerobee-default-deny",
                "aerobee-dns",
                "aerobee-metrics",
                "aerobee-etcd",
                "aerobee-nameserver",
                "aerobee-broker",
                "aerobee-tools",
                "aerobee-audit",
            )
        ),
        policy("aerobee-broker", "ingress", 0, "ports", value=None),
        policy("aerobee-etcd", "ingress", 0, "from", value=None),
        policy("aerobee-etcd", "ingress", 1, "from", 0, value={"podSelector": {}}),
        policy("aerobee-broker", "ingress", 0, "from", 2, value={"namespaceSelector": {}}),
        policy("aerobee-broker", "ingress", 0, "ports", 1, value={"protocol": "TCP", "port": 5557}),
        policy("aerobee-broker", "egress", 1, value={}),
        policy("aerobee-broker", "policyTypes", value=["Ingress"]),
        policy("aerobee-nameserver", "egress", 0, "ports", 0, "port", value="peer"),
        policy("aerobee-dns", "egress", 0, "ports", 0, "protocol", value="TCP"),
        policy("aerobee-metrics", "ingress", 0, "from", 0, "namespaceSelector", value=None),
        policy(
            "aerobee-dns",
            "egress",
            0,
            "to",
            1,
            "ipBlock",
            "cidr",
            value="0.0.0.0/0",
        ),
    )
]
