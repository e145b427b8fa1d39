"""Ports, probes and addresses that nobody serves."""

from __future__ import annotations

from tests.kubernetes.policy import serving
from tests.kubernetes.spoiled.ways import (
    BROKER,
    ETCD,
    NAMESERVER,
    Spoiled,
    argument,
    edit_file,
    put_in,
    put_object,
    variable,
)

SERVING: Spoiled = [
    (
        serving.ports_are_those_of_the_product,
        put_in(BROKER, "ports", 0, "containerPort", value=10910),
    ),
    (
        serving.ports_are_those_of_the_product,
        edit_file("aerobee-broker-config", "broker.toml", "0.0.0.0:10912", "0.0.0.0:10913"),
    ),
    (
        serving.ports_are_those_of_the_product,
        edit_file("aerobee-nameserver-config", "nameserver.toml", "0.0.0.0:8081", "127.0.0.1:8081"),
    ),
    (serving.ports_are_those_of_the_product, argument(ETCD, "0.0.0.0:2381", "127.0.0.1:2381")),
    *(
        (serving.nameservers_ask_etcd_as_it_listens, argument(ETCD, old, new))
        for old, new in (
            ("--listen-client-urls=http:", "--listen-client-urls=https:"),
            ("--auto-compaction-mode=periodic", "--client-cert-auth=true"),
        )
    ),
    (
        serving.nameservers_ask_etcd_as_it_listens,
        variable(NAMESERVER, "HOME", None, rename="AEROBEE_NAMESERVER_ETCD_TLS_CA"),
    ),
    (
        serving.services_lead_to_ports,
        put_object(
            ("Service", "aerobee-nameserver"), "spec", "ports", 0, "targetPort", value="http"
        ),
    ),
    (
        serving.services_lead_to_ports,
        put_object(("Service", "aerobee-broker-b"), "spec", "ports", 0, "port", value=80),
    ),
    (
        serving.probes_ask_what_is_served,
        put_in(BROKER, "readinessProbe", "grpc", "service", value="ready"),
    ),
    (
        serving.probes_ask_what_is_served,
        put_in(BROKER, "livenessProbe", "grpc", "service", value="readiness"),
    ),
    (
        serving.probes_ask_what_is_served,
        put_in(NAMESERVER, "livenessProbe", "grpc", "port", value=8081),
    ),
    (serving.probes_ask_what_is_served, put_in(NAMESERVER, "startupProbe", value=None)),
    (
        serving.probes_ask_what_is_served,
        put_in(NAMESERVER, "readinessProbe", "initialDelaySeconds", value=30),
    ),
    (
        serving.probes_ask_what_is_served,
        put_in(ETCD, "livenessProbe", "httpGet", "path", value="/readyz"),
    ),
    (
        serving.probes_ask_what_is_served,
        put_in(ETCD, "image", value="registry.k8s.io/etcd:3.5.9-0"),
    ),
    (
        serving.metrics_are_found,
        put_object(
            NAMESERVER,
            "spec",
            "template",
            "metadata",
            "annotations",
            "prometheus.io/port",
            value="9090",
        ),
    ),
    (
        serving.metrics_are_found,
        put_object(("Service", "aerobee-broker-a"), "spec", "ports", 1, "name", value="other"),
    ),
    (
        serving.brokers_are_who_they_are_for_ever,
        variable(BROKER, "AEROBEE_BROKER_BROKER_NAME", "broker-a"),
    ),
    (
        serving.brokers_are_who_they_are_for_ever,
        variable(BROKER, "AEROBEE_BROKER_BROKER_ID", "0"),
    ),
    (
        serving.brokers_are_who_they_are_for_ever,
        variable(BROKER, "AEROBEE_BROKER_ADDRESS", "$(POD_IP):10911"),
    ),
    (
        serving.brokers_keep_messages_on_their_claims,
        edit_file("aerobee-broker-config", "broker.toml", "/var/lib/aerobee/store", "/tmp/store"),
    ),
    *(
        (
            serving.brokers_are_reached_while_they_are_not_ready,
            put_object(("Service", name), "spec", "publishNotReadyAddresses", value=value),
        )
        for name, value in (("aerobee-broker-b", None), ("aerobee-nameserver", True))
    ),
    (serving.etcd_members_know_each_other, put_object(ETCD, "spec", "replicas", value=5)),
    (
        serving.etcd_members_know_each_other,
        put_object(
            ETCD,
            *("spec", "volumeClaimTemplates", 0, "metadata", "labels", serving.ETCD_MEMBERS),
            value="1",
        ),
    ),
    (
        serving.etcd_members_know_each_other,
        variable(ETCD, "INITIAL_CLUSTER", "aerobee-etcd-0=http://$(POD_IP):2380"),
    ),
    *(
        (serving.etcd_members_know_each_other, argument(ETCD, old, new))
        for old, new in (
            ("--auto-compaction-retention", "--snapshot-count"),
            ("--quota-backend-bytes", "--snapshot-count"),
            ("--data-dir=/var/lib/etcd", "--data-dir=/tmp"),
            ("--name=$(POD_NAME)", "--name=etcd"),
        )
    ),
    (
        serving.etcd_members_know_each_other,
        edit_file(
            "aerobee-nameserver-config",
            "nameserver.toml",
            '  "aerobee-etcd-2.aerobee-etcd:2379",\n',
            "",
        ),
    ),
]
