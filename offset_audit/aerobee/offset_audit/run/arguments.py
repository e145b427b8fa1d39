"""The arguments of an audit, once for `aerobee audit` and for `spark-submit`.

Owns their names and help; imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from aerobee.offset_audit.run.request import (
    DEFAULT_WATCH_S,
    FORMATS,
    AuditRequest,
    request_of,
)
from aerobee.runtime.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Argument:
    """One option; `name` is its key for `request_of`, with `--` in front on a command line."""

    name: str
    help: str
    metavar: str | None = None
    """None: a switch without a value."""
    is_repeatable: bool = False
    choices: tuple[str, ...] = ()
    is_number: bool = False


ARGUMENTS = (
    Argument(
        "nameserver",
        "Where a live cluster is; with no source named, AEROBEE_NAMESERVER or 127.0.0.1:8081.",
        "HOST:PORT[,...]",
    ),
    Argument("cluster", "The live cluster's name (AEROBEE_CLUSTER, or aerobee).", "NAME"),
    Argument("brokers", "Only these live brokers, without a nameserver.", "HOST:PORT[,...]"),
    Argument(
        "store",
        "A store's folder or a pattern of many, on any file system that Spark mounts; repeatable.",
        "PATH[=NAME[:ID]]",
        is_repeatable=True,
    ),
    Argument(
        "deep",
        "Read all bytes of what --store names: log, queue files, indexes, bodies. Of live brokers "
        "compare checksums of their logs.",
    ),
    Argument("group", "Only this consumer group; repeatable.", "GROUP", is_repeatable=True),
    Argument("topic", "Only this topic; repeatable.", "TOPIC", is_repeatable=True),
    Argument(
        "history",
        "Where the tables of all runs lie, as Parquet; this run is compared with them and added.",
        "DIR",
    ),
    Argument(
        "out",
        "Leave summary.json, metrics.prom and report.html here, and without --history the tables; "
        "like --history and --report on any file system that Spark reaches.",
        "DIR",
    ),
    Argument("report", "Write the HTML report to this file.", "FILE"),
    Argument("format", f"What standard output gets ({FORMATS[0]}).", "FORMAT", choices=FORMATS),
    Argument(
        "limit",
        "When something is worth a finding, such as lag-messages=1000; repeatable.",
        "KEY=NUMBER",
        is_repeatable=True,
    ),
    Argument("watch", "Audit again and again, on one screen, until Ctrl-C."),
    Argument(
        "interval", f"Seconds between looks with --watch ({DEFAULT_WATCH_S}).", "N", is_number=True
    ),
    Argument("master", "Spark's master; local[2] if not said.", "URL"),
    Argument("spark", "A setting of Spark's own; repeatable.", "KEY=VALUE", is_repeatable=True),
    Argument(
        "option",
        "Handed to the sources, such as timeoutMs=5000 or tls.ca=FILE; repeatable.",
        "KEY=VALUE",
        is_repeatable=True,
    ),
    Argument("options", "A file of such lines, for what no process list shall show.", "FILE"),
)


class _Parser(argparse.ArgumentParser):
    """Wrong usage is an error that the caller shows, not an exit code that means a finding."""

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(message)


def parse_arguments(arguments: Sequence[str], *, program: str) -> AuditRequest:
    """The request of a command line, for programs without click.

    Raises:
        InvalidArgument: an argument cannot be understood.
        SystemExit: `--help` was asked for and printed.
    """
    parser = _Parser(prog=program, description="Audit offsets, stores and replicas on Spark.")
    for one in ARGUMENTS:
        parser.add_argument(f"--{one.name}", **_argparse_of(one))
    return request_of(vars(parser.parse_args(list(arguments))))


def _argparse_of(one: Argument) -> dict[str, Any]:
    # argparse takes % as the start of a field.
    found: dict[str, Any] = {"help": one.help.replace("%", "%%")}
    if one.metavar is None:
        return {**found, "action": "store_true"}
    if one.choices:
        found["choices"] = one.choices
    else:
        found["metavar"] = one.metavar
    if one.is_repeatable:
        found["action"] = "append"
    if one.is_number:
        found["type"] = int
    return found
