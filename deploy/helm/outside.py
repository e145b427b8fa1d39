"""Addresses of brokers for clients outside, for all groups: components have one as an example."""

from __future__ import annotations

from typing import Any

from template_tree import If, Nested, Object, Raw, Text, Unclear, substitute

DOMAIN, CLIENTS = "mq.example.net", "192.0.2.0/24"
"""The examples of the components."""
BY_NAME, BY_PORT = f"$(POD_NAME).{DOMAIN}:10911", "$(NODE_IP):3091$(AEROBEE_BROKER_BROKER_ID)"
TENS = '{{ include "aerobee.nodePortTens" (list $ $group) }}'
NAMESERVER_PORT = 8081


def outside_addresses(environment: list[Any]) -> list[Any]:
    """AEROBEE_BROKER_OUTSIDE_ADDRESS of any group.

    Raises:
        Unclear: the components have other ones.
    """
    found = [
        item.node["value"]
        for item in environment
        if isinstance(item, If) and item.node["name"] == "AEROBEE_BROKER_OUTSIDE_ADDRESS"
    ]
    if found != [BY_NAME, BY_PORT]:
        raise Unclear(f"addresses outside are {found}")
    by_port = substitute(environment, BY_PORT, BY_PORT.replace("3091", TENS))
    return list(substitute(by_port, DOMAIN, "{{ $.Values.outside.domain }}"))


def outside(tree: Object, group: str) -> Object:
    """A Service of replica 0 of `group`, or of nameservers, or a policy, for the chart's values."""
    tree = substitute(tree, DOMAIN, "{{ $.Values.outside.domain }}")
    tree = substitute(tree, f"{group}-0", "{{ $group.name }}-{{ $replica }}")
    if tree["kind"] == "Service":
        _service(tree["spec"])
    else:
        for rule in tree["spec"]["ingress"]:
            rule["from"] = _clients(rule["from"])
    return tree


def _service(spec: Object) -> None:
    if "loadBalancerSourceRanges" in spec:
        spec["loadBalancerSourceRanges"] = Nested("toYaml $.Values.outside.clientNetworks")
    (port,) = spec["ports"]
    if "nodePort" in port:
        is_nameserver = port["port"] == NAMESERVER_PORT
        of_nameserver = "{{ $.Values.outside.nameserverNodePort | int }}"
        port["nodePort"] = Text(of_nameserver if is_nameserver else TENS + "{{ $replica }}")


def _clients(peers: Any) -> list[Raw]:
    if peers != [{"ipBlock": {"cidr": CLIENTS}}]:
        raise Unclear(f"networks of clients outside are {peers}")
    lines = [
        "{{- range $.Values.outside.clientNetworks }}",
        "- ipBlock:",
        "    cidr: {{ . }}",
        "{{- end }}",
    ]
    return [Raw("\n".join(lines))]
