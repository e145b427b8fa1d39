"""What kustomize makes of deploy/k8s, one component after the other, as objects with conditions."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from template_tree import Entry, Object, merge

MANIFESTS = Path(__file__).resolve().parent.parent / "k8s"
CLUSTER = "overlays/ha"
GROUP = "broker-a"
"""The group of the manifests of which the chart makes every group."""
RENDER_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Feature:
    """A component, the condition under which the chart has it, and the file of its own objects."""

    component: str
    """With a `+`: and its folder for the group of which the chart makes all."""
    condition: str
    file: str = ""
    contains: str = ""
    """A component of which it consists in part."""
    excludes: str = ""
    """A component that nobody has beside it."""


# In the order that the components ask for: jobs before what gives them certificates and secrets.
FEATURES = (
    Feature("zones", "$.Values.zones.required"),
    Feature("etcd-upkeep", "$.Values.etcdUpkeep.enabled", "etcd-upkeep"),
    Feature("volume-snapshots", "$.Values.volumeSnapshots.enabled", "volume-snapshots"),
    Feature("apply", "$.Values.apply.enabled", "apply"),
    Feature("console", "$.Values.console.enabled", "console"),
    Feature("etcd-tls", "$.Values.etcd.tls.enabled"),
    Feature("etcd-peer-tls", "$.Values.etcd.tls.peers"),
    Feature("tls", "$.Values.tls.enabled"),
    Feature("cluster-secret", "or $.Values.access.enabled $.Values.access.clusterSecret"),
    Feature("access", "$.Values.access.enabled", contains="cluster-secret"),
    Feature("cert-manager", "$.Values.certManager.enabled", "cert-manager"),
    Feature("service-monitors", "$.Values.monitoring.serviceMonitor.enabled", "monitoring"),
    Feature("prometheus-rules", "$.Values.monitoring.prometheusRule.enabled", "monitoring"),
    Feature("dashboard", "$.Values.monitoring.dashboard.enabled", "monitoring"),
    Feature("outside-load-balancers+", 'eq $.Values.outside.type "loadBalancer"', "load-balancers"),
    Feature(
        "outside-node-ports+",
        'eq $.Values.outside.type "nodePort"',
        "node-ports",
        excludes="outside-load-balancers+",
    ),
)


def everything(kustomize: Sequence[str]) -> list[Entry]:
    """All objects: those of a cluster, and what each component adds and changes."""
    entries = [
        Entry(one, "priority-class", ["$.Values.priorityClass.create"])
        for one in _render(kustomize, "namespace", [])
        if one["kind"] == "PriorityClass"
    ]
    entries += [Entry(one, _file_of(one)) for one in _render(kustomize, CLUSTER, [])]
    conditions = {one.component: one.condition for one in FEATURES}
    components: list[str] = []
    active: set[str] = set()
    for feature in FEATURES:
        components = [
            one for one in components if one not in (feature.contains, feature.excludes)
        ] + [feature.component]
        active -= {conditions.get(feature.excludes, "")}
        objects = _render(kustomize, CLUSTER, components)
        merge(entries, objects, feature.file, feature.condition, active)
        active.add(feature.condition)
    return entries


def _file_of(one: Object) -> str:
    if one["kind"] == "NetworkPolicy":
        return "network-policies"
    if one["kind"] == "ServiceAccount":
        return "service-account"
    return str(one["metadata"]["labels"]["app.kubernetes.io/component"])


def _folders(components: list[str]) -> Iterator[str]:
    for name in components:
        yield name.removesuffix("+")
        if name.endswith("+"):
            yield f"{name[:-1]}/{GROUP}"


def _render(kustomize: Sequence[str], folder: str, components: list[str]) -> list[Object]:
    with tempfile.TemporaryDirectory() as place:
        relative = os.path.relpath(MANIFESTS, os.path.realpath(place))
        kustomization = {
            "resources": [f"{relative}/{folder}"],
            "components": [f"{relative}/components/{one}" for one in _folders(components)],
        }
        (Path(place) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), "utf-8")
        done = subprocess.run(
            [*kustomize, place], check=True, stdout=subprocess.PIPE, timeout=RENDER_TIMEOUT_S
        )
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))
