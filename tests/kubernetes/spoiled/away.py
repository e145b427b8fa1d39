"""Too much away at once, too little given, too little time."""

from __future__ import annotations

from tests.kubernetes.policy import availability
from tests.kubernetes.spoiled.ways import (
    AUDIT,
    BROKER,
    ETCD,
    NAMESERVER,
    Spoiled,
    edit_file,
    put,
    put_in,
    put_object,
    remove,
)

ANTI_AFFINITY = ("affinity", "podAntiAffinity")
AVAILABILITY: Spoiled = [
    (availability.budgets_keep_a_quorum, remove("PodDisruptionBudget", "aerobee-broker-a")),
    *(
        (
            availability.budgets_keep_a_quorum,
            put_object(("PodDisruptionBudget", name), "spec", key, value=value),
        )
        for name, key, value in (
            ("aerobee-etcd", "maxUnavailable", 2),
            ("aerobee-broker-a", "maxUnavailable", 2),
            ("aerobee-broker-a", "maxUnavailable", 0),
            ("aerobee-nameserver", "maxUnavailable", 2),
            ("aerobee-broker-b", "unhealthyPodEvictionPolicy", "AlwaysAllow"),
        )
    ),
    (
        availability.budgets_keep_a_quorum,
        edit_file(
            "aerobee-broker-config",
            "broker.toml",
            "min_insync_replicas = 2",
            "min_insync_replicas = 3",
        ),
    ),
    (availability.replicas_are_spread, put(BROKER, "affinity", value=None)),
    (availability.replicas_are_spread, put(ETCD, "affinity", value=None)),
    (availability.replicas_are_spread, put(NAMESERVER, "affinity", value=None)),
    (availability.replicas_are_spread, put(ETCD, "topologySpreadConstraints", value=None)),
    (
        availability.replicas_are_spread,
        put(
            NAMESERVER,
            *ANTI_AFFINITY,
            "requiredDuringSchedulingIgnoredDuringExecution",
            value=[{"topologyKey": "kubernetes.io/hostname"}],
        ),
    ),
    *(
        (availability.stateful_sets_start_in_any_order, put_object(which, *path, value=value))
        for which, path, value in (
            (BROKER, ("spec", "podManagementPolicy"), None),
            (BROKER, ("spec", "minReadySeconds"), None),
            (ETCD, ("spec", "podManagementPolicy"), "OrderedReady"),
            (BROKER, ("spec", "updateStrategy", "type"), "OnDelete"),
            (BROKER, ("spec", "updateStrategy", "rollingUpdate"), {"maxUnavailable": 2}),
            (BROKER, ("spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"), "Delete"),
            (("Service", "aerobee-etcd"), ("spec", "publishNotReadyAddresses"), None),
            (NAMESERVER, ("spec", "strategy", "rollingUpdate", "maxUnavailable"), 1),
        )
    ),
    (
        availability.memory_pressure_evicts_others_first,
        put_in(BROKER, "resources", "requests", "memory", value="1Gi"),
    ),
    (
        availability.memory_pressure_evicts_others_first,
        put(ETCD, "priorityClassName", value=None),
    ),
    *(
        (availability.resources_are_said, put_in(which, "resources", *path, value=value))
        for which, path, value in (
            (BROKER, ("requests", "cpu"), None),
            (AUDIT, ("requests", "memory"), None),
            (ETCD, ("limits", "memory"), None),
            (ETCD, ("limits", "cpu"), "1"),
        )
    ),
    (
        availability.memory_budgets_follow_the_limit,
        put_in(BROKER, "resources", "limits", value={}),
    ),
    (
        availability.memory_budgets_follow_the_limit,
        edit_file(
            "aerobee-broker-config",
            "broker.toml",
            "[replication]",
            "[replication]\nslave_read_bytes = 8",
        ),
    ),
    (
        availability.etcd_has_memory_for_its_file,
        put_in(ETCD, "resources", "limits", "memory", value="256Mi"),
    ),
    (availability.etcd_has_memory_for_its_file, put_in(ETCD, "args", value=[])),
    (availability.ends_are_waited_for, put(BROKER, "terminationGracePeriodSeconds", value=60)),
    (availability.ends_are_waited_for, put(NAMESERVER, "terminationGracePeriodSeconds", value=6)),
    (availability.ends_are_waited_for, put(ETCD, "terminationGracePeriodSeconds", value=5)),
    (availability.ends_are_waited_for, put_in(BROKER, "lifecycle", value=None)),
]
