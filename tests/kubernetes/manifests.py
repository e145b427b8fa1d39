"""Rendered objects, and the pods that controllers will make of them.

Owns no judgement: what is right or wrong is in `policy/`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
EXAMPLE_POD_IP = "192.0.2.7"
EXAMPLE_NODE_IP = "198.51.100.7"
ZONE_LABEL = "topology.kubernetes.io/zone"
EXAMPLE_ZONE = "zone-1"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"


class Manifests:
    """What one rendering gave, in its order."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self.objects = list(objects)

    def __add__(self, other: Manifests) -> Manifests:
        """Both applied; an object of both is that of `other`."""
        by_key = {_key(one): one for one in (*self.objects, *other.objects)}
        return Manifests(by_key.values())

    def copy(self) -> Manifests:
        """Another one, to be spoiled."""
        return Manifests(copy.deepcopy(self.objects))

    def of_kind(self, *kinds: str) -> list[Object]:
        return [one for one in self.objects if one["kind"] in kinds]

    def find(self, kind: str, name: str) -> Object | None:
        for one in self.of_kind(kind):
            if one["metadata"]["name"] == name:
                return one
        return None

    def get(self, kind: str, name: str) -> Object:
        """Raises KeyError if there is none."""
        found = self.find(kind, name)
        if found is None:
            raise KeyError(f"{kind} {name}")
        return found

    def config(self, mounted: str) -> Object:
        """The ConfigMap that a volume names, whatever hash its name ends in."""
        for one in self.of_kind("ConfigMap"):
            if re.fullmatch(rf"{re.escape(mounted)}(-[a-z0-9]{{10}})?", one["metadata"]["name"]):
                return one
        raise KeyError(f"ConfigMap {mounted}")

    def pods(self) -> list[PodTemplate]:
        """Every pod template, those of Spark's driver and executor included."""
        return [pod for one in self.objects for pod in _pods_of(one)]

    def pods_of(self, component: str) -> list[PodTemplate]:
        return [pod for pod in self.pods() if pod.component == component]


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """One template, and how many pods are made of it."""

    kind: str
    """Of the object that makes the pods."""
    name: str
    namespace: str
    labels: Mapping[str, str]
    """Of the pods; of a stateful set without the label that differs from pod to pod."""
    spec: Object
    replicas: int
    owner: Object

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def component(self) -> str:
        return self.labels.get("app.kubernetes.io/component", "")

    @property
    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]

    @property
    def instances(self) -> list[str]:
        """The pods' names, where they are known before there are any."""
        if self.kind != "StatefulSet":
            return []
        return [f"{self.name}-{ordinal}" for ordinal in range(self.replicas)]

    @property
    def volume_names(self) -> set[str]:
        claims = self.owner["spec"].get("volumeClaimTemplates", ())
        return {one["name"] for one in self.spec.get("volumes", ())} | {
            one["metadata"]["name"] for one in claims
        }

    def environment(
        self, container: Object, ordinal: int = 0, pod_ip: str = EXAMPLE_POD_IP
    ) -> dict[str, str]:
        """What the kubelet gives the container of the pod with that ordinal."""
        found: dict[str, str] = {}
        for one in container.get("env", ()):
            if "value" in one:
                # Only those before it are known; what is not stays as it is written.
                found[one["name"]] = expand(one["value"], found)
            else:
                path = one["valueFrom"]["fieldRef"]["fieldPath"]
                found[one["name"]] = self._field(path, ordinal, pod_ip)
        return found

    def _field(self, path: str, ordinal: int, pod_ip: str) -> str:
        fields = {
            "metadata.name": f"{self.name}-{ordinal}",
            "metadata.namespace": self.namespace,
            "status.podIP": pod_ip,
            "status.hostIP": EXAMPLE_NODE_IP,
        }
        labels = dict(self.labels)
        if self.kind == "StatefulSet":
            labels[POD_INDEX_LABEL] = str(ordinal)
        # Copied from the node, once there is one.
        labels[ZONE_LABEL] = EXAMPLE_ZONE
        fields |= {f"metadata.labels['{name}']": value for name, value in labels.items()}
        return fields[path]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` replaced as the kubelet does; unknown names stay."""
    return _REFERENCE.sub(lambda found: environment.get(found[1], found[0]), text)


def references(text: str) -> list[str]:
    """Names in `$(NAME)`."""
    return _REFERENCE.findall(text)


def command_line(container: Object, environment: Mapping[str, str]) -> list[str]:
    """Command and arguments of a container, expanded."""
    words = [*container.get("command", ()), *container.get("args", ())]
    return [expand(str(word), environment) for word in words]


def _key(one: Object) -> tuple[str, str, str]:
    return one["apiVersion"], one["kind"], one["metadata"]["name"]


def _pods_of(one: Object) -> Iterator[PodTemplate]:
    kind, spec = one["kind"], one.get("spec", {})
    if kind in ("Deployment", "StatefulSet", "Job"):
        yield _pod(one, spec["template"], spec.get("replicas", 1))
    elif kind == "Pod":
        yield _pod(one, one, 1)
    elif kind == "CronJob":
        yield _pod(one, spec["jobTemplate"]["spec"]["template"], 1)
    elif kind == "SparkApplication":
        for role in ("driver", "executor"):
            yield _spark_pod(one, role)


def _pod(one: Object, template: Object, replicas: int) -> PodTemplate:
    metadata = one["metadata"]
    return PodTemplate(
        one["kind"],
        metadata["name"],
        metadata.get("namespace", ""),
        template["metadata"].get("labels", {}),
        template["spec"],
        replicas,
        one,
    )


def _spark_pod(one: Object, role: str) -> PodTemplate:
    """What the operator and Spark make of it, as far as it is written there."""
    spec, part = one["spec"], one["spec"][role]
    container = {
        "name": f"spark-kubernetes-{role}",
        "image": spec["image"],
        "securityContext": part.get("securityContext", {}),
        "env": part.get("env", []),
        "volumeMounts": part.get("volumeMounts", []),
        "resources": {
            "requests": {"cpu": str(part["cores"]), "memory": part["memory"]},
            "limits": {"memory": part["memory"]},
        },
    }
    pod_spec = {
        "serviceAccountName": part["serviceAccount"],
        "securityContext": part.get("podSecurityContext", {}),
        "volumes": spec.get("volumes", []),
        "containers": [container],
    }
    metadata = one["metadata"]
    return PodTemplate(
        "SparkApplication",
        f"{metadata['name']}-{role}",
        metadata.get("namespace", ""),
        # Spark itself adds the role.
        {**part.get("labels", {}), "spark-role": role},
        pod_spec,
        part.get("instances", 1),
        one,
    )
