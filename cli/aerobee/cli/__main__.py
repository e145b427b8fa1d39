"""The entry point of the command `aerobee`: the table of its commands.

Each command lives in its own module and is imported only when it runs, so that help is quick and a
client command does not load the broker.
"""

from __future__ import annotations

import click

from aerobee.cli.lazy_group import LazyCommand, RootGroup

COMMANDS = (
    LazyCommand("up", "aerobee.cli.commands.up:up", "Run a local cluster until Ctrl-C."),
    LazyCommand("demo", "aerobee.cli.demo.command:demo", "Prove that a cluster loses nothing."),
    LazyCommand("produce", "aerobee.cli.commands.produce:produce", "Send lines as messages."),
    LazyCommand(
        "consume", "aerobee.cli.commands.consume:consume", "Print the messages of a topic."
    ),
    LazyCommand("message", "aerobee.cli.commands.message:message", "Find single messages."),
    LazyCommand(
        "schedule",
        "aerobee.cli.commands.schedule:schedule",
        "Find and change messages that arrive later.",
    ),
    LazyCommand(
        "transaction",
        "aerobee.cli.commands.transaction:transaction",
        "Find, commit, roll back transactions.",
    ),
    LazyCommand(
        "outbox", "aerobee.cli.commands.outbox:outbox", "Send what a database's outbox has."
    ),
    LazyCommand(
        "topic", "aerobee.cli.commands.topic:topic", "Create, show, change, delete topics."
    ),
    LazyCommand("group", "aerobee.cli.commands.group:group", "Show, set, delete consumer groups."),
    LazyCommand("apply", "aerobee.cli.commands.apply:apply", "Apply a file of topics and groups."),
    LazyCommand(
        "dead-letter",
        "aerobee.cli.commands.dead_letter:dead_letter",
        "Find, resend, drop dead letters.",
    ),
    LazyCommand(
        "offset", "aerobee.cli.commands.offset:offset", "Move or delete a group's offsets."
    ),
    LazyCommand("user", "aerobee.cli.commands.user:user", "Create, change, delete users."),
    LazyCommand("acl", "aerobee.cli.commands.acl:acl", "Set and test what users may do."),
    LazyCommand("quota", "aerobee.cli.commands.quota:quota", "Set how much users may use."),
    LazyCommand(
        "audit-log",
        "aerobee.cli.commands.audit_log:audit_log",
        "Show and verify who changed what.",
    ),
    LazyCommand("cluster", "aerobee.cli.commands.cluster:cluster", "Show brokers and their state."),
    LazyCommand(
        "broker-group",
        "aerobee.cli.commands.broker_group:broker_group",
        "Close and remove a broker group.",
    ),
    LazyCommand(
        "console", "aerobee.cli.commands.console:console", "Show a cluster in a browser.", True
    ),
    LazyCommand("health", "aerobee.cli.commands.health:health", "Check the health of a process."),
    LazyCommand("store", "aerobee.cli.commands.store:store", "Inspect, check, repair stores."),
    LazyCommand("tier", "aerobee.cli.commands.tier:tier", "Check and restore segments elsewhere."),
    LazyCommand(
        "doctor", "aerobee.cli.commands.doctor:doctor", "Find what is wrong now, without Spark."
    ),
    LazyCommand("audit", "aerobee.cli.commands.audit:audit", "Audit offsets, stores, replicas."),
    LazyCommand(
        "nameserver", "aerobee.cli.commands.nameserver:nameserver", "Run one nameserver.", True
    ),
    LazyCommand("broker", "aerobee.cli.commands.broker:broker", "Run one broker."),
    LazyCommand("etcd", "aerobee.cli.commands.etcd:etcd", "Look after etcd: space, snapshots."),
    LazyCommand("config", "aerobee.cli.commands.config:config", "Check configuration files."),
    LazyCommand(
        "completion", "aerobee.cli.commands.completion:completion", "Print a shell's completions."
    ),
    LazyCommand(
        "version", "aerobee.cli.commands.version:version", "Print versions, those of brokers too."
    ),
    LazyCommand("bench", "aerobee.bench.command:bench", "Measure this machine."),
)


@click.command(
    cls=RootGroup,
    lazy_commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="aerobee", message="%(prog)s %(version)s")
def main() -> None:
    """A message-queue cluster with Apache RocketMQ's semantics and file formats.

    \b
    Start here:
      aerobee up                                  a cluster on this machine
      echo hello | aerobee produce trial          send
      aerobee consume trial --group readers --count 1

    \b
    Exit codes (`audit` and `doctor` have their own, see their help):
      0    success
      1    the answer is no: unknown topic, nothing found
      2    wrong usage
      3    the environment prevents it: no cluster, port in use, folder locked
      4    the operation failed
      5    a part of the answer is missing: brokers do not answer
      130  interrupted
    """


if __name__ == "__main__":
    main(prog_name="aerobee")
