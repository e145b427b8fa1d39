"""Names that objects call each other by: each one exists, and means what was meant.

Each check takes the manifests and yields a sentence for everything that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.kubernetes.manifests import Manifests, Object, PodTemplate, command_line, references

FROM_A_CLUSTER = {"aerobee-nameserver"}
"""Services that the audit's overlays find in the cluster beside which they are applied."""
NOT_OURS = (
    {"aerobee.dev/client": "true"},
    {"app.kubernetes.io/name": "prometheus"},
    {"k8s-app": "kube-dns"},
)
"""Labels of pods that the manifests let in or out and do not make."""
STANDALONE = "Namespace"
"""A rendering without it is applied beside a cluster, which has what it lacks."""


def matches(selector: Object | None, labels: Any) -> bool:
    """Whether a label selector picks something with these labels; None picks nothing."""
    if selector is None:
        return False
    if not selector.get("matchLabels", {}).items() <= dict(labels).items():
        return False
    return all(_holds(one, labels) for one in selector.get("matchExpressions", ()))


def _holds(expression: Object, labels: Any) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise AssertionError(expression)


def names_exist(manifests: Manifests) -> Iterator[str]:
    """Service accounts, roles, configurations with their files, claims, volumes, Services."""
    for pod in manifests.pods():
        account = pod.spec["serviceAccountName"]
        if manifests.find("ServiceAccount", account) is None:
            yield f"{pod}: there is no service account {account}"
        priority, is_whole = pod.spec.get("priorityClassName"), manifests.of_kind(STANDALONE)
        if priority and is_whole and manifests.find("PriorityClass", priority) is None:
            yield f"{pod}: there is no priority class {priority}"
        yield from _volumes_exist(manifests, pod)
        for container in pod.containers:
            yield from _files_exist(manifests, pod, container)
        if pod.kind == "StatefulSet":
            service = manifests.find("Service", pod.owner["spec"].get("serviceName", ""))
            if service is None or service["spec"].get("clusterIP") != "None":
                yield f"{pod}: its pods have no names: there is no headless Service for them"
    for binding in manifests.of_kind("RoleBinding"):
        if manifests.find(binding["roleRef"]["kind"], binding["roleRef"]["name"]) is None:
            yield f"there is no {binding['roleRef']['kind']} {binding['roleRef']['name']}"
        for subject in binding["subjects"]:
            if manifests.find(subject["kind"], subject["name"]) is None:
                yield f"there is no {subject['kind']} {subject['name']}"


def _volumes_exist(manifests: Manifests, pod: PodTemplate) -> Iterator[str]:
    mounted = {
        mount["name"] for container in pod.containers for mount in container.get("volumeMounts", ())
    }
    for name in mounted - pod.volume_names:
        yield f"{pod}: mounts {name}, which is no volume"
    for name in pod.volume_names - mounted:
        yield f"{pod}: nobody mounts {name}"
    for volume in pod.spec.get("volumes", ()):
        for kind, key, object_kind in (
            ("configMap", "name", "ConfigMap"),
            ("secret", "secretName", "Secret"),
            ("persistentVolumeClaim", "claimName", "PersistentVolumeClaim"),
        ):
            if kind not in volume:
                continue
            found = manifests.find(object_kind, volume[kind][key])
            if found is None:
                yield f"{pod}: there is no {object_kind} {volume[kind][key]}"
                continue
            for item in volume[kind].get("items", ()):
                if item["key"] not in found.get("data", {}):
                    yield f"{pod}: {object_kind} {volume[kind][key]} has no {item['key']}"


def _files_exist(manifests: Manifests, pod: PodTemplate, container: Object) -> Iterator[str]:
    """A file below a mounted configuration is one of its keys."""
    volumes = {one["name"]: one for one in pod.spec.get("volumes", ())}
    for mount in container.get("volumeMounts", ()):
        config = volumes.get(mount["name"], {}).get("configMap")
        found = manifests.find("ConfigMap", config["name"]) if config else None
        if found is None:
            continue
        below = re.escape(mount["mountPath"]) + r"/([\w.-]+)"
        named = {name for word in container.get("args", ()) for name in re.findall(below, word)}
        if not named:
            yield f"{pod}: nobody reads {mount['mountPath']}"
        for name in named - set(found["data"]):
            yield f"{pod}: {config['name']} has no {name}"


def services_exist(manifests: Manifests) -> Iterator[str]:
    """Every host of the form SERVICE:PORT in commands, variables and files is a Service's."""
    services = {one["metadata"]["name"]: one for one in manifests.of_kind("Service")}
    is_whole = bool(manifests.of_kind(STANDALONE))
    for where, text in _texts(manifests):
        for host, port in re.findall(r"(?<![\w.-])(aerobee-[\w.-]+):(\d+)", text):
            if host.count(".") > 1 and not host.endswith(".svc"):
                continue  # a name that others give it, for the outside
            name, instance = _service_of(host)
            service = services.get(name)
            if service is None:
                if is_whole or name not in FROM_A_CLUSTER:
                    yield f"{where}: there is no Service {name} ({host})"
                continue
            if int(port) not in {one["port"] for one in service["spec"]["ports"]}:
                yield f"{where}: {name} has no port {port}"
            if instance and instance not in _instances(manifests, name):
                yield f"{where}: {host} is no pod"


def _service_of(host: str) -> tuple[str, str]:
    """Service and pod of a host name: `SERVICE`, or `POD.SERVICE` and more."""
    parts = host.split(".")
    return (parts[1], parts[0]) if len(parts) > 1 else (parts[0], "")


def _instances(manifests: Manifests, service: str) -> set[str]:
    return {
        instance
        for pod in manifests.pods()
        if pod.owner["spec"].get("serviceName") == service
        for instance in pod.instances
    }


def _texts(manifests: Manifests) -> Iterator[tuple[str, str]]:
    for pod in manifests.pods():
        for container in pod.containers:
            for ordinal in range(pod.replicas):
                environment = pod.environment(container, ordinal)
                yield from ((f"{pod}: {name}", text) for name, text in environment.items())
                for word in command_line(container, environment):
                    yield str(pod), word
        for word in pod.owner["spec"].get("arguments", ()):
            yield str(pod), word
    for one in manifests.of_kind("ConfigMap"):
        yield from ((f"{one['metadata']['name']}/{key}", text) for key, text in one["data"].items())


def variables_are_known(manifests: Manifests) -> Iterator[str]:
    """The kubelet replaces $(NAME) only by variables further up; else it stays as it is."""
    for pod in manifests.pods():
        for container in pod.containers:
            known: set[str] = set()
            for one in container.get("env", ()):
                for name in references(one.get("value", "")):
                    if name not in known:
                        yield f"{pod}: {one['name']} uses $({name}) before it is there"
                if one["name"] in known:
                    yield f"{pod}: {one['name']} is there twice"
                known.add(one["name"])
            for word in [*container.get("command", ()), *container.get("args", ())]:
                for name in references(word):
                    if name not in known:
                        yield f"{pod}: an argument uses $({name}), which is not there"


def selectors_match(manifests: Manifests) -> Iterator[str]:
    """What selects pods selects those that it is for, and none else."""
    pods = manifests.pods()
    for pod in pods:
        selector = pod.owner["spec"].get("selector")
        if pod.kind in ("Deployment", "StatefulSet"):
            if not matches(selector, pod.labels):
                yield f"{pod}: does not select its own pods"
            for other in pods:
                if other is not pod and matches(selector, other.labels):
                    yield f"{pod}: also selects the pods of {other}"
            if "version" in str(selector):
                yield f"{pod}: selects by version, so it could never be upgraded"
            for claim in pod.owner["spec"].get("volumeClaimTemplates", ()):
                if "version" in str(claim["metadata"].get("labels")):
                    yield f"{pod}: its claims could never be upgraded"
        yield from _own_terms_match(pod)
    yield from _services_and_budgets_match(manifests)
    for policy in manifests.of_kind("NetworkPolicy"):
        yield from _policy_matches(manifests, policy)


def _own_terms_match(pod: PodTemplate) -> Iterator[str]:
    rules = pod.spec.get("affinity", {}).get("podAntiAffinity", {})
    terms = [
        *rules.get("requiredDuringSchedulingIgnoredDuringExecution", ()),
        *(
            one["podAffinityTerm"]
            for one in rules.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        ),
        *pod.spec.get("topologySpreadConstraints", ()),
    ]
    for term in terms:
        if not matches(term["labelSelector"], pod.labels):
            yield f"{pod}: keeps apart from others than its own kind"


def _services_and_budgets_match(manifests: Manifests) -> Iterator[str]:
    for kind in ("Service", "PodDisruptionBudget"):
        for one in manifests.of_kind(kind):
            selector = dict(one["spec"]["selector"])
            if kind == "Service":
                instance = selector.pop("statefulset.kubernetes.io/pod-name", None)
                selector = {"matchLabels": selector}
            else:
                instance = None
            found = [pod for pod in manifests.pods() if matches(selector, pod.labels)]
            if instance is not None:
                found = [pod for pod in found if instance in pod.instances]
            if len(found) != 1:
                name = one["metadata"]["name"]
                yield f"{kind} {name} selects {len(found)} kinds of pods, not one"


def _policy_matches(manifests: Manifests, policy: Object) -> Iterator[str]:
    name, spec = policy["metadata"]["name"], policy["spec"]
    pods = [pod.labels for pod in manifests.pods()]
    if not any(matches(spec["podSelector"], labels) for labels in pods):
        yield f"NetworkPolicy {name} is for no pod"
    if not manifests.of_kind(STANDALONE):
        return
    for direction, key in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction, ()):
            for peer in rule.get(key, ()):
                if "podSelector" not in peer or name == "aerobee-dns":
                    continue
                candidates = [*pods, *NOT_OURS, {**NOT_OURS[0], **_AUDIT}, _AUDIT]
                if not any(matches(peer["podSelector"], one) for one in candidates):
                    yield f"NetworkPolicy {name} names pods that nobody makes"


_AUDIT = {"app.kubernetes.io/name": "aerobee", "app.kubernetes.io/component": "audit"}
