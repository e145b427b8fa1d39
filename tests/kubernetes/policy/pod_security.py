"""What a pod may do: the restricted pod security standard, written out, and what we ask beyond it.

Each check takes the manifests and yields a sentence for everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.kubernetes.manifests import Manifests, Object, PodTemplate

USER = 10001
VOLUMES_ALLOWED = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SYSCTLS_ALLOWED = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
MAY_TALK_TO_THE_API_SERVER = {"aerobee-audit-driver", "aerobee-volume-snapshots"}
"""Service accounts with a token: Spark's driver starts its own executors, and only the API server
makes snapshots of volumes."""


def host_is_out_of_reach(manifests: Manifests) -> Iterator[str]:
    """No namespace, port, path, device or process of the node."""
    for pod in manifests.pods():
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.spec.get(key):
                yield f"{pod}: {key}"
        for volume in pod.spec.get("volumes", ()):
            kinds = set(volume) - {"name"}
            if not kinds <= VOLUMES_ALLOWED:
                yield f"{pod}: volume {volume['name']} is {kinds}"
        windows = pod.spec.get("securityContext", {}).get("windowsOptions", {})
        if windows.get("hostProcess"):
            yield f"{pod}: a process of the host"
        for container in pod.containers:
            yield from _container_stays_off_the_host(pod, container)


def _container_stays_off_the_host(pod: PodTemplate, container: Object) -> Iterator[str]:
    for port in container.get("ports", ()):
        if port.get("hostPort"):
            yield f"{pod}: port {port['hostPort']} of the node"
    if container.get("securityContext", {}).get("procMount", "Default") != "Default":
        yield f"{pod}: all of /proc"
    hooks = [
        *(container.get(f"{one}Probe", {}) for one in ("startup", "liveness", "readiness")),
        *container.get("lifecycle", {}).values(),
    ]
    for hook in hooks:
        for action in ("httpGet", "tcpSocket"):
            if hook.get(action, {}).get("host"):
                yield f"{pod}: {container['name']} probes another host"


def nobody_is_root(manifests: Manifests) -> Iterator[str]:
    """The same user everywhere, and never root, whatever an image says."""
    for pod in manifests.pods():
        context = pod.spec.get("securityContext", {})
        if context.get("runAsNonRoot") is not True:
            yield f"{pod}: runAsNonRoot is not set"
        for key in ("runAsUser", "runAsGroup", "fsGroup"):
            if context.get(key) != USER:
                yield f"{pod}: {key} is {context.get(key)}, not {USER}"
        if 0 in context.get("supplementalGroups", ()):
            yield f"{pod}: in root's group"
        for container in pod.containers:
            own = container.get("securityContext", {})
            if own.get("runAsNonRoot") is False:
                yield f"{pod}: {container['name']} may be root"
            if own.get("runAsUser", USER) != USER or own.get("runAsGroup", USER) != USER:
                yield f"{pod}: {container['name']} is another user"


def no_container_has_privileges(manifests: Manifests) -> Iterator[str]:
    """No capability, no way to get one, and the runtime's filter of system calls."""
    for pod in manifests.pods():
        context = pod.spec.get("securityContext", {})
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{pod}: system calls are not filtered"
        if context.get("appArmorProfile", {}).get("type") == "Unconfined":
            yield f"{pod}: AppArmor is off"
        if context.get("seLinuxOptions"):
            yield f"{pod}: sets SELinux options"
        for one in context.get("sysctls", ()):
            if one["name"] not in SYSCTLS_ALLOWED:
                yield f"{pod}: sets {one['name']}"
        for container in pod.containers:
            own = container.get("securityContext", {})
            yield from (f"{pod}: {container['name']} {wrong}" for wrong in _privileges(own))


def _privileges(context: Object) -> Iterator[str]:
    if context.get("privileged"):
        yield "is privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    capabilities = context.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"]:
        yield "keeps capabilities"
    if capabilities.get("add"):
        yield f"adds {capabilities['add']}"
    if context.get("seccompProfile", {}).get("type") == "Unconfined":
        yield "may call what it wants"
    if context.get("seLinuxOptions"):
        yield "sets SELinux options"


def only_volumes_are_written(manifests: Manifests) -> Iterator[str]:
    """The root file system is read-only; a claim and /tmp are all that can be written."""
    for pod in manifests.pods():
        volumes = {one["name"]: one for one in pod.spec.get("volumes", ())}
        for container in pod.containers:
            if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
                yield f"{pod}: the root of {container['name']} can be written"
            for mount in container.get("volumeMounts", ()):
                volume = volumes.get(mount["name"], {})
                path, is_config = mount["mountPath"], "configMap" in volume or "secret" in volume
                if is_config and not mount.get("readOnly"):
                    yield f"{pod}: {path} is a configuration that can be written"
                if not is_config and path != "/tmp" and not path.startswith("/var/lib/"):
                    yield f"{pod}: {path} can be written"
                if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                    yield f"{pod}: {path} may fill the node's disk"


def no_pod_has_rights(manifests: Manifests) -> Iterator[str]:
    """No token of the API server, but for the one that needs it, and no surprise variables."""
    for pod in manifests.pods():
        account = pod.spec.get("serviceAccountName", "default")
        found = manifests.find("ServiceAccount", account)
        has_token = found is None or found.get("automountServiceAccountToken", True)
        has_token = pod.spec.get("automountServiceAccountToken", has_token)
        if has_token and account not in MAY_TALK_TO_THE_API_SERVER:
            yield f"{pod}: has a token of the API server"
        if account == "default":
            yield f"{pod}: shares its identity with whatever has none"
        if pod.kind != "SparkApplication" and pod.spec.get("enableServiceLinks") is not False:
            yield f"{pod}: every Service of the namespace becomes a variable"
    bindings = manifests.of_kind("RoleBinding", "ClusterRoleBinding")
    if manifests.of_kind("ClusterRole", "ClusterRoleBinding"):
        yield "rights beyond the namespace are asked for"
    for binding in bindings:
        for subject in binding["subjects"]:
            if subject["name"] not in MAY_TALK_TO_THE_API_SERVER:
                yield f"{subject['name']} gets rights"


def the_namespace_enforces_it(manifests: Manifests) -> Iterator[str]:
    """So that what somebody adds later obeys, too."""
    for one in manifests.of_kind("Namespace"):
        for mode in ("enforce", "warn", "audit"):
            if one["metadata"]["labels"].get(f"pod-security.kubernetes.io/{mode}") != "restricted":
                yield f"pods of the namespace may do more than `restricted` ({mode})"


def images_are_pinned(manifests: Manifests) -> Iterator[str]:
    """A tag that says which version, never whatever is newest."""
    for pod in manifests.pods():
        for container in pod.containers:
            tag = container["image"].rpartition("/")[2].partition(":")[2]
            if "@sha256:" not in container["image"] and tag in ("", "latest"):
                yield f"{pod}: {container['image']} may be anything"
