"""What the kubelet makes of a pod, written down for `podman kube play`: pure.

Left to podman are the users, capabilities, seccomp, the read-only root, limits of memory and
command lines, as the manifests have them. Made here is what podman does not do: variables that
refer to the pod, claims and configuration files as folders of this machine, the DNS settings of a
cluster. Probes and hooks are taken out: prober.py and kubelet.py do them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes.manifests import Manifests, Object, PodTemplate, command_line

CLUSTER_DOMAIN = "cluster.local"
OF_THE_KUBELET = ("startupProbe", "livenessProbe", "readinessProbe", "lifecycle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What a pod is given where it runs."""

    name: str
    """Of the pod in podman."""
    address: str
    dns_server: str
    folders: Mapping[str, Path]
    """By volume."""


def play_document(pod: PodTemplate, ordinal: int, sandbox: Sandbox) -> Object:
    """The pod, as `podman kube play` takes it."""
    spec = copy.deepcopy(pod.spec)
    # Placement has nothing to place here.
    for key in ("affinity", "topologySpreadConstraints", "serviceAccountName"):
        spec.pop(key, None)
    spec["hostname"] = f"{pod.name}-{ordinal}"
    spec["restartPolicy"] = "Never"
    spec["dnsPolicy"] = "None"
    spec["dnsConfig"] = {
        "nameservers": [sandbox.dns_server],
        "searches": [
            f"{pod.namespace}.svc.{CLUSTER_DOMAIN}",
            f"svc.{CLUSTER_DOMAIN}",
            CLUSTER_DOMAIN,
        ],
        "options": [{"name": "ndots", "value": "5"}],
    }
    spec["volumes"] = [
        {"name": name, "hostPath": {"path": str(folder), "type": "Directory"}}
        for name, folder in sandbox.folders.items()
    ]
    spec["containers"] = [
        _container(pod, container, ordinal, sandbox) for container in spec["containers"]
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": sandbox.name, "labels": dict(pod.labels)},
        "spec": spec,
    }


def _container(pod: PodTemplate, container: Object, ordinal: int, sandbox: Sandbox) -> Object:
    environment = pod.environment(container, ordinal, sandbox.address)
    made = {key: value for key, value in container.items() if key not in OF_THE_KUBELET}
    made["imagePullPolicy"] = "Never"
    # Podman would open them on this machine, too, where only one pod can have them.
    made.pop("ports", None)
    made["env"] = [{"name": name, "value": value} for name, value in environment.items()]
    for key in ("command", "args"):
        if key in container:
            made[key] = command_line({"args": container[key]}, environment)
    return made


def pod_names(manifests: Manifests, pod: PodTemplate, ordinal: int) -> list[str]:
    """The names under which a cluster's DNS gives the pod's address, ready or not.

    Members of headless Services that publish addresses that are not ready.
    """
    names = []
    for service in manifests.of_kind("Service"):
        spec = service["spec"]
        if not _is_of_all(spec) or not spec["selector"].items() <= pod.labels.items():
            continue
        domain = f"{service['metadata']['name']}.{pod.namespace}.svc.{CLUSTER_DOMAIN}"
        names.append(domain)
        if pod.owner["spec"].get("serviceName") == service["metadata"]["name"]:
            names.append(f"{pod.name}-{ordinal}.{domain}")
    return names


def service_names(manifests: Manifests, pod: PodTemplate) -> list[str]:
    """The names of Services that lead to the pod while it is ready."""
    return [
        f"{service['metadata']['name']}.{pod.namespace}.svc.{CLUSTER_DOMAIN}"
        for service in manifests.of_kind("Service")
        if not _is_of_all(service["spec"])
        and service["spec"]["selector"].items() <= pod.labels.items()
    ]


def _is_of_all(service: Mapping[str, Any]) -> bool:
    """Whether its name stands for pods that are not ready, too."""
    is_headless = service.get("clusterIP") == "None"
    return is_headless and bool(service.get("publishNotReadyAddresses"))
