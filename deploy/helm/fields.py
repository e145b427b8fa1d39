"""Which field of the objects comes from which value of the chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from outside import outside, outside_addresses
from rendered import GROUP
from template_tree import (
    Block,
    Entry,
    If,
    Nested,
    Object,
    Optional,
    Raw,
    Text,
    child,
    put,
    substitute,
)

POD = ("spec", "template", "spec")
JOB_POD = ("spec", "jobTemplate", "spec", "template", "spec")
PODS = {"Deployment": POD, "StatefulSet": POD, "CronJob": JOB_POD}
CLAIM = ("spec", "volumeClaimTemplates", 0)
STAYS = {"helm.sh/resource-policy": "keep"}
"""When the release is removed, or no longer has the object."""
GROUPS = "{{- range $group := $.Values.broker.groups }}"
REPLICAS = (
    "{{- range $replica := until ($group.replicas | default $.Values.broker.replicas | int) }}"
)


def apply_values(entries: list[Entry]) -> list[Entry]:
    """The entries of the chart.

    Raises:
        Unclear: the manifests no longer have what is said of them here.
    """
    kept = [one for one in entries if not _is_repeated(one.key[1])]
    for one in kept:
        key = one.key
        _metadata(one)
        if path := PODS.get(key[0]):
            _pod_of_any(_at(one.tree, path))
        for kind, name, set_fields in FIELDS:
            if key[0] == kind and key[1].startswith(name):
                set_fields(one)
        if one.file in ("load-balancers", "node-ports"):
            one.tree = outside(one.tree, GROUP)
        if one.file == "broker":
            one.tree = substitute(one.tree, GROUP, "{{ $group.name }}")
    return kept


def loops(entry: Entry) -> Iterator[str]:
    """The lines that begin what repeats an object for each broker group, or each replica."""
    if entry.file == "broker":
        yield GROUPS
    elif entry.tree["kind"] == "Service" and "$replica" in repr(entry.tree["metadata"]["name"]):
        yield GROUPS
        yield REPLICAS


def _is_repeated(name: str) -> bool:
    """Another group, or another replica, of what the chart makes in a loop."""
    of_a_group = name.startswith("aerobee-broker-") and "-config-" not in name
    return of_a_group and (
        not name.startswith(f"aerobee-{GROUP}") or name.endswith(("-1-outside", "-2-outside"))
    )


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for at, step in enumerate(path):
        tree = child(tree, step, path[: at + 1])
    return tree


def _metadata(one: Entry) -> None:
    metadata, name = one.tree["metadata"], one.key[1]
    if one.tree["kind"] != "PriorityClass":
        metadata["namespace"] = Text("{{ $.Release.Namespace }}")
    # The overlays' labels of a release; the chart has its own.
    labels = {
        key: value
        for key, value in metadata["labels"].items()
        if key.split("/")[-1] not in ("instance", "part-of", "version")
    }
    metadata["labels"] = {**labels, "": Raw('{{- include "aerobee.labels" $ | nindent 4 }}')}
    if one.tree["kind"] == "NetworkPolicy":
        one.conditions.insert(0, "$.Values.networkPolicy.enabled")
    if name.startswith("aerobee-etcd"):
        one.conditions.insert(0, "not $.Values.etcd.external.endpoints")


def _pod_of_any(pod: Object) -> None:
    for container in pod["containers"]:
        image = "$.Values.etcd.image" if "etcd:" in container["image"] else "$.Values.image"
        container["image"] = Text(f'{{{{ include "aerobee.image" (list $ {image}) }}}}')
        container["imagePullPolicy"] = Text("{{ $.Values.image.pullPolicy }}")
    pod["imagePullSecrets"] = Optional("$.Values.image.pullSecrets")
    if "priorityClassName" in pod:
        name = "$.Values.priorityClass.name"
        pod["priorityClassName"] = If(name, Text(f"{{{{ {name} }}}}"))


def _pods_of_a_service(one: Entry, values: str, group: str = "") -> None:
    """What users set of brokers, nameservers and etcd."""
    pod = _at(one.tree, POD)
    pod["containers"][0]["resources"] = Nested(f"toYaml $.Values.{values}.resources")
    pod["nodeSelector"] = Optional(f"$.Values.{values}.nodeSelector")
    pod["tolerations"] = Optional(f"$.Values.{values}.tolerations")
    replicas = f"$.Values.{values}.replicas"
    if group:
        replicas = f"{group}.replicas | default {replicas}"
    one.tree["spec"]["replicas"] = Text(f"{{{{ {replicas} | int }}}}")


def _claim(one: Entry, path: tuple[Any, ...], storage: str, group: str = "") -> None:
    size, name = f"{storage}.size", f"{storage}.className"
    if group:
        size = f"{group}.storageSize | default {size}"
    put(one.tree, (*path, "spec", "resources", "requests", "storage"), Text(f"{{{{ {size} }}}}"))
    put(one.tree, (*path, "spec", "storageClassName"), If(name, Text(f"{{{{ {name} | quote }}}}")))


def _mounts_config(one: Entry, service: str) -> None:
    name = Text(f'{{{{ include "aerobee.{service}ConfigName" $ }}}}')
    put(one.tree, (*POD, "volumes", "config", "configMap", "name"), name)


def _broker(one: Entry) -> None:
    _pods_of_a_service(one, "broker", "$group")
    _claim(one, CLAIM, "$.Values.broker.storage", "$group")
    _mounts_config(one, "broker")
    partition = Text("{{ $group.partition | default 0 | int }}")
    put(one.tree, ("spec", "updateStrategy", "rollingUpdate", "partition"), partition)
    container = _at(one.tree, POD)["containers"][0]
    container["env"] = outside_addresses(container["env"])


def _nameserver(one: Entry) -> None:
    _pods_of_a_service(one, "nameserver")
    _mounts_config(one, "nameserver")


def _etcd(one: Entry) -> None:
    _pods_of_a_service(one, "etcd")
    _claim(one, CLAIM, "$.Values.etcd.storage")
    members = (*POD, "containers", 0, "env", "INITIAL_CLUSTER", "value")
    put(one.tree, members, Text('{{ include "aerobee.etcdInitialCluster" $ }}'))
    count = (*CLAIM, "metadata", "labels", "aerobee.dev/etcd-members")
    put(one.tree, count, Text("{{ $.Values.etcd.replicas | int | quote }}"))


def _settings(service: str, file: str) -> Callable[[Entry], None]:
    """A ConfigMap whose name changes with its content, and whose former ones stay."""

    def set_fields(one: Entry) -> None:
        one.file = file
        metadata = one.tree["metadata"]
        metadata["name"] = Text(f'{{{{ include "aerobee.{service}ConfigName" $ }}}}')
        metadata["annotations"] |= STAYS
        one.tree["data"] = {f"{service}.toml": Block(f'include "aerobee.{service}Config" $')}

    return set_fields


def _upkeep(one: Entry) -> None:
    path = (*JOB_POD, "containers", 0, "env", "ETCDCTL_ENDPOINTS", "value")
    endpoints = 'include "aerobee.etcdEndpoints" $ | fromJsonArray | join ","'
    put(one.tree, path, Text(f"{{{{ {endpoints} }}}}"))


def _backups(one: Entry) -> None:
    _claim(one, (), "$.Values.etcdUpkeep.storage")
    one.tree["metadata"]["annotations"] |= STAYS


def _volume_snapshots(one: Entry) -> None:
    environment = (*JOB_POD, "containers", 0, "env")
    for variable, value in (("KEEP", "keep"), ("SNAPSHOT_CLASS", "className")):
        text = Text(f"{{{{ $.Values.volumeSnapshots.{value} | quote }}}}")
        put(one.tree, (*environment, variable, "value"), text)
    _upkeep(one)


def _console(one: Entry) -> None:
    path = (*POD, "containers", 0, "env", "CONSOLE_NAME", "value")
    put(one.tree, path, Text("{{ $.Values.console.host | quote }}"))


def _to_external_etcd(one: Entry) -> None:
    lines = [
        "{{- range $.Values.etcd.external.networks }}",
        "- to:",
        "    - ipBlock:",
        "        cidr: {{ . }}",
        "  ports:",
        "    - protocol: TCP",
        "      port: {{ $.Values.etcd.external.port | int }}",
        "{{- end }}",
    ]
    one.tree["spec"]["egress"].append(Raw("\n".join(lines)))


def _certificate(one: Entry) -> None:
    spec = substitute(one.tree["spec"], ".aerobee.svc", ".{{ $.Release.Namespace }}.svc")
    if "dnsNames" in spec:
        names = spec["dnsNames"]
        names = _in_a_loop(names, "aerobee-broker-", GROUP, "{{ $group.name }}", GROUPS)
        members = "{{- range $member := until (int $.Values.etcd.replicas) }}"
        spec["dnsNames"] = _in_a_loop(names, "aerobee-etcd-", "0", "{{ $member }}", members)
    one.tree["spec"] = spec


def _in_a_loop(names: list[Any], part: str, first: str, template: str, loop: str) -> list[Any]:
    """The first name with `part` stands for all that have it."""
    texts = [one.text if isinstance(one, Text) else str(one) for one in names]
    repeated = [at for at, text in enumerate(texts) if part in text]
    if not repeated:
        return names
    item = texts[repeated[0]].replace(first, template)
    kept: list[Any] = [one for at, one in enumerate(names) if at not in repeated]
    kept.insert(repeated[0], Raw(f"{loop}\n- '{item}'\n{{{{- end }}}}"))
    return kept


def _labels_of_readers(values: str) -> Callable[[Entry], None]:
    """Labels that somebody's Prometheus or Grafana looks for."""

    def set_fields(one: Entry) -> None:
        lines = [
            f"{{{{- with $.Values.monitoring.{values}.labels }}}}",
            "{{- toYaml . | nindent 4 }}",
            "{{- end }}",
        ]
        one.tree["metadata"]["labels"]["labels"] = Raw("\n".join(lines))

    return set_fields


def _dashboard(one: Entry) -> None:
    one.tree["data"] = {"aerobee.json": Block('$.Files.Get "files/dashboard.json"')}


def _snapshots_script(one: Entry) -> None:
    one.tree["data"] = {"snapshots.py": Block('$.Files.Get "files/snapshots.txt"')}


def _role_binding(one: Entry) -> None:
    for subject in one.tree["subjects"]:
        subject["namespace"] = Text("{{ $.Release.Namespace }}")


def _rules(one: Entry) -> None:
    one.tree["spec"] = Nested('include "aerobee.rules" $')


def _priority_class(one: Entry) -> None:
    one.tree["metadata"]["name"] = Text("{{ $.Values.priorityClass.name }}")


FIELDS: tuple[tuple[str, str, Callable[[Entry], None]], ...] = (
    ("PriorityClass", "", _priority_class),
    ("StatefulSet", "aerobee-broker-", _broker),
    ("StatefulSet", "aerobee-etcd", _etcd),
    ("Deployment", "aerobee-nameserver", _nameserver),
    ("Deployment", "aerobee-console", _console),
    ("ConfigMap", "aerobee-broker-config-", _settings("broker", "broker-config")),
    ("ConfigMap", "aerobee-nameserver-config-", _settings("nameserver", "nameserver")),
    ("NetworkPolicy", "aerobee-nameserver", _to_external_etcd),
    ("PersistentVolumeClaim", "aerobee-backups", _backups),
    ("CronJob", "aerobee-etcd-", _upkeep),
    ("CronJob", "aerobee-volume-snapshots", _volume_snapshots),
    ("Certificate", "", _certificate),
    ("ServiceMonitor", "", _labels_of_readers("serviceMonitor")),
    ("PrometheusRule", "", _labels_of_readers("prometheusRule")),
    ("PrometheusRule", "", _rules),
    ("RoleBinding", "", _role_binding),
    ("ConfigMap", "aerobee-volume-snapshots", _snapshots_script),
    ("NetworkPolicy", "aerobee-volume-snapshots", _to_external_etcd),
    ("ConfigMap", "aerobee-dashboard", _labels_of_readers("dashboard")),
    ("ConfigMap", "aerobee-dashboard", _dashboard),
)
"""By kind, and how the name begins."""
