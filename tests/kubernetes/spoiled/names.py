"""Names, selectors and variables that lead nowhere, or elsewhere."""

from __future__ import annotations

from tests.kubernetes.policy import references
from tests.kubernetes.spoiled.ways import (
    AUDIT,
    BROKER,
    ETCD,
    NAMESERVER,
    Spoiled,
    argument,
    container,
    edit_file,
    peer,
    policy,
    put,
    put_in,
    put_object,
    remove,
    rename,
    variable,
)

NAMES: Spoiled = [
    (references.names_exist, remove("ServiceAccount", "aerobee-audit")),
    (references.names_exist, put_object(BROKER, "spec", "serviceName", value="aerobee-broker")),
    (
        references.names_exist,
        put_object(("Service", "aerobee-broker-b"), "spec", "clusterIP", value=None),
    ),
    (references.names_exist, put(NAMESERVER, "volumes", 0, "configMap", "name", value="other")),
    (references.names_exist, remove("PersistentVolumeClaim", "aerobee-audit")),
    (references.names_exist, put_in(BROKER, "volumeMounts", 1, "name", value="messages")),
    (references.names_exist, argument(BROKER, "broker.toml", "brokers.toml")),
    (references.services_exist, rename("Service", "aerobee-nameserver")),
    (
        references.services_exist,
        edit_file(
            "aerobee-broker-config", "broker.toml", "aerobee-nameserver:8081", "aerobee-names:8081"
        ),
    ),
    (references.services_exist, argument(AUDIT, ":8081", ":8082")),
    (
        references.services_exist,
        edit_file(
            "aerobee-nameserver-config", "nameserver.toml", "aerobee-etcd-2", "aerobee-etcd-3"
        ),
    ),
    (references.variables_are_known, variable(BROKER, "POD_IP", None)),
    (references.variables_are_known, variable(ETCD, "INITIAL_CLUSTER", None)),
    (
        references.variables_are_known,
        lambda manifests: container(manifests, BROKER)["env"].reverse(),
    ),
    (references.variables_are_known, variable(BROKER, "POD_NAMESPACE", "", rename="POD_NAME")),
    (
        references.selectors_match,
        put_object(
            BROKER, "spec", "selector", "matchLabels", "aerobee.dev/broker-group", value="broker-c"
        ),
    ),
    (
        references.selectors_match,
        put_object(
            BROKER, "spec", "selector", "matchLabels", "aerobee.dev/broker-group", value=None
        ),
    ),
    (
        references.selectors_match,
        put_object(
            ("Service", "aerobee-broker-a"),
            "spec",
            "selector",
            "aerobee.dev/broker-group",
            value=None,
        ),
    ),
    (
        references.selectors_match,
        put_object(
            ("PodDisruptionBudget", "aerobee-etcd"),
            "spec",
            "selector",
            "matchLabels",
            "app.kubernetes.io/component",
            value="etc",
        ),
    ),
    (
        references.selectors_match,
        put(
            BROKER,
            "affinity",
            "podAntiAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            0,
            "labelSelector",
            "matchLabels",
            "aerobee.dev/broker-group",
            value="broker-a",
        ),
    ),
    (
        references.selectors_match,
        put_object(
            BROKER,
            "spec",
            "volumeClaimTemplates",
            0,
            "metadata",
            "labels",
            value={"app.kubernetes.io/version": "0.1.0"},
        ),
    ),
    (
        references.selectors_match,
        policy("aerobee-etcd", "podSelector", value={"matchLabels": {"app": "etcd"}}),
    ),
    (
        references.selectors_match,
        policy("aerobee-etcd", "ingress", 0, "from", 0, value=peer(component="nameserver")),
    ),
]
