"""The arguments of an audit, shared by `aerobee audit` and `spark-submit`.

Owns their names and help; imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from aerobee.offset_audit.run.request import (
    DEFAULT_WATCH_S,
    ENGINES,
    FORMATS,
    AuditRequest,
    request_of,
)
from aerobee.runtime.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Argument:
    """One option; `name` is its key for `request_of`, prefixed with `--` on a command line."""

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
        "A live cluster's nameservers. Without any source: AEROBEE_NAMESERVER or 127.0.0.1:8081.",
        "HOST:PORT[,...]",
    ),
    Argument("cluster", "The live cluster's name (AEROBEE_CLUSTER, or aerobee).", "NAME"),
    Argument("brokers", "Only these live brokers, without a nameserver.", "HOST:PORT[,...]"),
    Argument(
        "store",
        "A store folder, or a pattern for several, on a file system that Spark reads; repeatable.",
        "PATH[=NAME[:ID]]",
        is_repeatable=True,
    ),
    Argument(
        "deep",
        "Read every byte of the stores in --store: log, queue files, indexes, bodies. For live "
        "brokers, compare the checksums of their logs.",
    ),
    Argument("group", "Only this consumer group; repeatable.", "GROUP", is_repeatable=True),
    Argument("topic", "Only this topic; repeatable.", "TOPIC", is_repeatable=True),
    Argument(
        "history",
        "The folder of all runs' tables, as Parquet. Compares this run with them and adds it.",
        "DIR",
    ),
    Argument(
        "out",
        "Write summary.json, metrics.prom and report.html here, and the tables unless --history is "
        "given; on any file system that Spark reaches, as for --history and --report.",
        "DIR",
    ),
    Argument("report", "Write the HTML report to this file.", "FILE"),
    Argument(
        "after",
        "Say what is new since an earlier run, and which of its findings are cured; FILE is its "
        "summary.json.",
        "FILE",
    ),
    Argument("format", f"The format of standard output ({FORMATS[0]}).", "FORMAT", choices=FORMATS),
    Argument(
        "limit",
        "A threshold for findings, for example lag-messages=1000; repeatable.",
        "KEY=NUMBER",
        is_repeatable=True,
    ),
    Argument(
        "watch",
        "Repeat the audit on one screen until Ctrl-C. Without Spark, a run reads only what is new, "
        "and once an hour everything.",
    ),
    Argument(
        "interval", f"Seconds between runs with --watch ({DEFAULT_WATCH_S}).", "N", is_number=True
    ),
    Argument(
        "engine",
        "Where the rules run: in this process (local) or on Spark. Without it, small audits run in "
        "this process.",
        "ENGINE",
        choices=ENGINES,
    ),
    Argument("master", "Spark's master (local[2]).", "URL"),
    Argument("spark", "A Spark setting; repeatable.", "KEY=VALUE", is_repeatable=True),
    Argument(
        "option",
        "An option for the sources, for example timeoutMs=5000 or tls.ca=FILE; repeatable.",
        "KEY=VALUE",
        is_repeatable=True,
    ),
    Argument(
        "options",
        "A file with one such option a line, for values that must not appear in a process list.",
        "FILE",
    ),
)


class _Parser(argparse.ArgumentParser):
    """Wrong usage is an error that the caller shows, not an exit code that looks like a finding."""

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(message)


def parse_arguments(arguments: Sequence[str], *, program: str) -> AuditRequest:
    """The request of a command line, for programs without click.

    Raises:
        InvalidArgument: an argument cannot be understood.
        SystemExit: `--help` was requested and printed.
    """
    parser = _Parser(prog=program, description="Audit offsets, stores and replicas on Spark.")
    for one in ARGUMENTS:
        parser.add_argument(f"--{one.name}", **_argparse_of(one))
    return request_of(vars(parser.parse_args(list(arguments))))


def _argparse_of(one: Argument) -> dict[str, Any]:
    # argparse treats % as the start of a field.
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
