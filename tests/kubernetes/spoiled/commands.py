"""Command lines, files and variables that the program refuses."""

from __future__ import annotations

from tests.kubernetes.policy import command_lines
from tests.kubernetes.spoiled.ways import (
    AUDIT,
    BROKER,
    NAMESERVER,
    Spoiled,
    argument,
    edit_file,
    put_in,
    variable,
)

DRAIN = ["aerobee", "broker", "drain"]
COMMANDS: Spoiled = [
    (command_lines.command_lines_are_accepted, one)
    for one in (
        argument(NAMESERVER, "nameserver", "nameservers"),
        argument(BROKER, "--config", "--configuration"),
        argument(AUDIT, "--history", "--hystory"),
        argument(AUDIT, "--master=", "--interval="),
        put_in(BROKER, "args", 3, value="--store-flush-mode=sometimes"),
        put_in(BROKER, "args", value=["broker"]),
        put_in(BROKER, "lifecycle", "preStop", "exec", "command", value=[*DRAIN, "--brokers"]),
        put_in(BROKER, "lifecycle", "preStop", "exec", "command", value=["sh", "-c", "sleep 5"]),
        put_in(NAMESERVER, "command", value=["aerobee-nameserver"]),
        variable(BROKER, "AEROBEE_BROKER_ADDRESS", "", rename="AEROBEE_BROKER_ADRESS"),
        variable(BROKER, "AEROBEE_BROKER_BROKER_ID", "first"),
        variable(BROKER, "AEROBEE_BROKER_STORE_HOST", "$(POD_NAME):10911"),
        variable(NAMESERVER, "AEROBEE_LOG_FORMAT", "xml"),
        edit_file("aerobee-broker-config", "broker.toml", "[replication]", "[replicas]"),
        edit_file("aerobee-broker-config", "broker.toml", "sync_master", "synchronous"),
        edit_file("aerobee-broker-config", "broker.toml", 'cluster = "', 'cluster = "two words '),
        edit_file("aerobee-nameserver-config", "nameserver.toml", "auto_create", "autocreate"),
        edit_file("aerobee-nameserver-config", "nameserver.toml", ":2379", ""),
        lambda manifests: manifests.objects.remove(manifests.config("aerobee-broker-config")),
    )
]
