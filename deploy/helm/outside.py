"""Addresses of brokers for clients outside, for all groups: components have one as an example."""

from __future__ import annotations

from typing import Any

from template_tree import Choice, Nested, Object, Raw, Text, Unclear, substitute

DOMAIN, CLIENTS, OTHERS = "mq.example.net", "192.0.2.0/24", "198.51.100.0/24"
"""The examples of the components."""
BY_PORT = "$(NODE_IP):3091$(POD_INDEX)"
TENS = '{{ include "aerobee.nodePortTens" (list $ $group) }}'
NAMESERVER_PORT = 8081


def outside_address(address: Any) -> Choice:
    """AEROBEE_BROKER_ADDRESS of any group.

    Raises:
        Unclear: the component for node ports has another one.
    """
    if not isinstance(address, Choice) or address.yes != BY_PORT:
        raise Unclear("AEROBEE_BROKER_ADDRESS of outside-node-ports")
    by_port = Text(BY_PORT.replace("3091", TENS))
    by_name = substitute(address.no, DOMAIN, "{{ $.Values.outside.domain }}")
    return Choice(address.condition, by_port, by_name)


def outside(tree: Object, group: str) -> Object:
    """A Service of replica 0 of `group`, or of nameservers, or a policy, for the chart's values."""
    tree = substitute(tree, DOMAIN, "{{ $.Values.outside.domain }}")
    tree = substitute(tree, f"{group}-0", "{{ $group.name }}-{{ $replica }}")
    if tree["kind"] == "Service":
        _service(tree["spec"])
    else:
        for rule in tree["spec"].get("ingress", ()):
            rule["from"] = _networks(rule["from"], CLIENTS, "clientNetworks")
        for rule in tree["spec"].get("egress", ()):
            rule["to"] = _networks(rule["to"], OTHERS, "networks")
            if "endPort" in rule["ports"][0]:
                rule["ports"] = [_ports_of_groups()]
    return tree


def _service(spec: Object) -> None:
    if "loadBalancerSourceRanges" in spec:
        spec["loadBalancerSourceRanges"] = Nested("toYaml $.Values.outside.clientNetworks")
    (port,) = spec["ports"]
    if "nodePort" in port:
        is_nameserver = port["port"] == NAMESERVER_PORT
        of_nameserver = "{{ $.Values.outside.nameserverNodePort | int }}"
        port["nodePort"] = Text(of_nameserver if is_nameserver else TENS + "{{ $replica }}")


def _networks(peers: Any, example: str, values: str) -> list[Raw]:
    if peers != [{"ipBlock": {"cidr": example}}]:
        raise Unclear(f"networks of clients outside: {peers}")
    lines = [
        f"{{{{- range $.Values.outside.{values} }}}}",
        "- ipBlock:",
        "    cidr: {{ . }}",
        "{{- end }}",
    ]
    return [Raw("\n".join(lines))]


def _ports_of_groups() -> Raw:
    lines = [
        "{{- range $group := $.Values.broker.groups }}",
        "- protocol: TCP",
        f"  port: {TENS}0",
        f"  endPort: {TENS}9",
        "{{- end }}",
    ]
    return Raw("\n".join(lines))
