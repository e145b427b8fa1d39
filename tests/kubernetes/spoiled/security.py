"""Pods that may do more than they should."""

from __future__ import annotations

from tests.kubernetes.policy import pod_security
from tests.kubernetes.spoiled.ways import (
    AUDIT,
    BROKER,
    ETCD,
    NAMESERVER,
    TOOLS,
    Spoiled,
    put,
    put_in,
    put_object,
)

SECURITY: Spoiled = [
    *(
        (pod_security.host_is_out_of_reach, put(TOOLS, one, value=True))
        for one in ("hostNetwork", "hostPID", "hostIPC")
    ),
    (
        pod_security.host_is_out_of_reach,
        put(ETCD, "volumes", 0, value={"name": "tmp", "hostPath": {"path": "/tmp"}}),
    ),
    (pod_security.host_is_out_of_reach, put_in(BROKER, "ports", 0, "hostPort", value=10911)),
    (
        pod_security.host_is_out_of_reach,
        put_in(ETCD, "livenessProbe", "httpGet", "host", value="10.0.0.1"),
    ),
    (
        pod_security.host_is_out_of_reach,
        put_in(AUDIT, "securityContext", "procMount", value="Unmasked"),
    ),
    (
        pod_security.host_is_out_of_reach,
        put(TOOLS, "securityContext", "windowsOptions", value={"hostProcess": True}),
    ),
    (pod_security.nobody_is_root, put(AUDIT, "securityContext", "runAsNonRoot", value=None)),
    (pod_security.nobody_is_root, put(AUDIT, "securityContext", "runAsUser", value=0)),
    (pod_security.nobody_is_root, put(ETCD, "securityContext", "fsGroup", value=None)),
    (pod_security.nobody_is_root, put(ETCD, "securityContext", "runAsGroup", value=0)),
    (
        pod_security.nobody_is_root,
        put(ETCD, "securityContext", "supplementalGroups", value=[0]),
    ),
    (pod_security.nobody_is_root, put_in(BROKER, "securityContext", "runAsUser", value=0)),
    (
        pod_security.nobody_is_root,
        put_in(BROKER, "securityContext", "runAsNonRoot", value=False),
    ),
    (
        pod_security.no_container_has_privileges,
        put(NAMESERVER, "securityContext", "seccompProfile", value=None),
    ),
    (
        pod_security.no_container_has_privileges,
        put(TOOLS, "securityContext", "sysctls", value=[{"name": "kernel.msgmax", "value": "1"}]),
    ),
    (
        pod_security.no_container_has_privileges,
        put(TOOLS, "securityContext", "appArmorProfile", value={"type": "Unconfined"}),
    ),
    *(
        (
            pod_security.no_container_has_privileges,
            put_in(which, "securityContext", key, value=value),
        )
        for which, key, value in (
            (BROKER, "privileged", True),
            (BROKER, "allowPrivilegeEscalation", None),
            (ETCD, "capabilities", None),
            (ETCD, "capabilities", {"drop": ["ALL"], "add": ["SYS_RESOURCE"]}),
            (AUDIT, "seccompProfile", {"type": "Unconfined"}),
            (AUDIT, "seLinuxOptions", {"type": "spc_t"}),
        )
    ),
    (
        pod_security.only_volumes_are_written,
        put_in(TOOLS, "securityContext", "readOnlyRootFilesystem", value=False),
    ),
    (
        pod_security.only_volumes_are_written,
        put_in(BROKER, "volumeMounts", 0, "readOnly", value=None),
    ),
    (
        pod_security.only_volumes_are_written,
        put_in(ETCD, "volumeMounts", 1, "mountPath", value="/etc"),
    ),
    (
        pod_security.only_volumes_are_written,
        put(ETCD, "volumes", 0, "emptyDir", "sizeLimit", value=None),
    ),
    (pod_security.no_pod_has_rights, put(BROKER, "automountServiceAccountToken", value=True)),
    (pod_security.no_pod_has_rights, put(BROKER, "serviceAccountName", value="default")),
    (pod_security.no_pod_has_rights, put(BROKER, "enableServiceLinks", value=None)),
    (
        pod_security.no_pod_has_rights,
        lambda manifests: manifests.objects.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "more"},
                "subjects": [{"kind": "ServiceAccount", "name": "aerobee"}],
            }
        ),
    ),
    (
        pod_security.the_namespace_enforces_it,
        put_object(
            ("Namespace", "aerobee"),
            "metadata",
            "labels",
            "pod-security.kubernetes.io/enforce",
            value="baseline",
        ),
    ),
    (pod_security.images_are_pinned, put_in(AUDIT, "image", value="aerobee-audit")),
    (pod_security.images_are_pinned, put_in(ETCD, "image", value="registry.k8s.io/etcd:latest")),
]
