"""`aerobee audit-log`: who changed what, and whether the files that say so are as they were
written. Not the audit of offsets, which is `aerobee audit`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.failures import NEGATIVE, EnvironmentFailure
from aerobee.cli.moments import time_argument
from aerobee.cli.options import json_option
from aerobee.cli.output import counted, print_json, remark, remark_unanswered, say
from aerobee.cli.target import Target, target_options
from aerobee.runtime.printable import printable_json

if TYPE_CHECKING:
    from aerobee import AdminClient
    from aerobee.client_core.audit_logs import AuditLines
    from aerobee.runtime.audit_log.chain import Key, Place
    from aerobee.runtime.audit_log.verification import Verdict

PAGE_LINES = 200
files_argument = click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)


@click.group("audit-log")
def audit_log() -> None:
    """Check and show audit logs: who changed what, and who was refused.

    `last` asks the nodes of a cluster. `show` and `verify` read files: FILE is a node's
    audit_log.file; older files beside it are read too.
    """


def _place(_: click.Context, __: click.Parameter, text: str | None) -> Place | None:
    from aerobee.runtime.audit_log.chain import Place

    try:
        return None if text is None else Place.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@audit_log.command()
@files_argument
@click.option(
    "--key-file",
    "key_files",
    multiple=True,
    metavar="FILE",
    help="A cluster secret, present or former: checks that nodes wrote the lines; repeatable.",
)
@click.option(
    "--expect",
    metavar="SEQUENCE:HASH",
    callback=_place,
    help="A `place` from the node's ordinary log: checks that the lines up to it are still there.",
)
@json_option
def verify(
    files: tuple[Path, ...], key_files: tuple[str, ...], expect: Place | None, as_json: bool
) -> None:
    """Check that no line was changed, removed, inserted or moved.

    Exit code 1: a line was, the last one has no end, or a file is empty; prints the first such
    lines.
    """
    from aerobee.runtime.audit_log import verification

    logs = verification.logs_of(files)
    if expect is not None and len(logs) > 1:
        raise click.UsageError("--expect is about one log; give the files of one node")
    try:
        keys = [key for file in key_files for key in _keys(file)]
        verdicts = [verification.verify(log, keys, expect) for log in logs]
        if any(verdict.is_torn for verdict in verdicts):  # perhaps a line was just being written
            verdicts = [verification.verify(log, keys, expect) for log in logs]
    except OSError as error:
        raise EnvironmentFailure(f"cannot read {error.filename}: {error.strerror}") from None
    if as_json:
        print_json([_document(verdict, is_keyed=bool(keys)) for verdict in verdicts])
    for verdict in () if as_json else verdicts:
        for finding in verdict.findings:
            say(str(finding))
        _summarize(verdict, is_keyed=bool(keys))
    if any(verdict.findings for verdict in verdicts):
        sys.exit(NEGATIVE)


def _keys(file: str) -> list[Key]:
    from aerobee.access.recording import audit_log_keys
    from aerobee.access.sealing import ClusterSecrets

    return audit_log_keys(ClusterSecrets.parse(Path(file).read_text()))


def _document(verdict: Verdict, *, is_keyed: bool) -> dict[str, Any]:
    first, last = verdict.first, verdict.last
    return {
        "intact": not verdict.findings,
        "lines": verdict.lines,
        "nodes": verdict.nodes,
        "firstSequence": first.place.sequence if first else None,
        "lastSequence": last.place.sequence if last else None,
        "place": str(last.place) if last else None,
        "endsWithinLine": verdict.is_torn,
        "keysChecked": is_keyed,
        "findings": [
            {"file": str(each.path), "line": each.number, "why": each.why}
            for each in verdict.findings
        ],
    }


def _summarize(verdict: Verdict, *, is_keyed: bool) -> None:
    first, last = verdict.first, verdict.last
    if verdict.findings or first is None or last is None:
        say(f"broken: {counted(len(verdict.findings), 'finding')}")
        return
    range_ = f"{first.place.sequence:,} to {last.place.sequence:,}"
    say(f"intact: lines {range_} of {', '.join(verdict.nodes)}")
    say(f"from {first.content.get('time')} to {last.content.get('time')}")
    say(f"place={last.place}")
    if first.place.sequence > 1:
        remark(f"earlier lines than {first.place.sequence:,} are not in these files")
    if not is_keyed:
        why = "give --key-file" if verdict.has_macs else "its node has no cluster secret"
        remark(f"whether nodes made these lines was not checked: {why}")


caller_option = click.option(
    "--caller", metavar="TEXT", default="", help="Only lines whose caller contains this text."
)
method_option = click.option(
    "--method", metavar="TEXT", default="", help="Only lines whose method contains this text."
)
on_option = click.option(
    "--on",
    metavar="TEXT",
    default="",
    help="Only lines whose needed rights or request contain this text.",
)
refused_option = click.option("--refused", is_flag=True, help="Only refusals.")


@audit_log.command()
@files_argument
@caller_option
@method_option
@on_option
@refused_option
@click.option("--json", "as_json", is_flag=True, help="Print the lines as they are in the file.")
def show(
    files: tuple[Path, ...], caller: str, method: str, on: str, refused: bool, as_json: bool
) -> None:
    """Print lines, oldest first, without checking them."""
    from aerobee.runtime.audit_log import verification
    from aerobee.runtime.audit_log.chain import UnreadableLine, read_line
    from aerobee.runtime.audit_log.reading import WantedLines

    wanted = WantedLines(caller=caller, method=method, about=on, only_refusals=refused)
    try:
        paths = [path for log in verification.logs_of(files) for path in log]
        for raw in verification.raw_lines(paths):
            try:
                line = read_line(raw.data).content
            except UnreadableLine:
                what = f"line {raw.number} cannot be read" if raw.number else "is empty"
                remark(f"{raw.path} {what}")
                continue
            if wanted.take(line):
                say(printable_json(raw.data.decode()) if as_json else _text(line))
    except OSError as error:
        raise EnvironmentFailure(f"cannot read {error.filename}: {error.strerror}") from None


@audit_log.command()
@caller_option
@method_option
@on_option
@refused_option
@click.option(
    "--since",
    "since_ms",
    metavar="TIME",
    callback=time_argument,
    help="Only lines from this time on, such as 2026-01-31T12:00.",
)
@click.option(
    "--until",
    "until_ms",
    metavar="TIME",
    callback=time_argument,
    help="Only lines up to this time.",
)
@click.option(
    "--lines",
    "lines_max",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many lines at most.",
)
@json_option
@target_options
def last(
    target: Target,
    caller: str,
    method: str,
    on: str,
    refused: bool,
    since_ms: int | None,
    until_ms: int | None,
    lines_max: int,
    as_json: bool,
) -> None:
    """Print the last lines of all nodes, the newest first.

    Asks every broker, and the nameservers of --nameserver: name them all. With access control,
    this needs Get on AuditLog:CLUSTER.
    """

    async def ask(admin: AdminClient) -> list[AuditLines]:
        pages: list[AuditLines] = []
        left, older = lines_max, None
        while left > 0 and (older is None or older):
            page = await admin.audit_log.last(
                caller=caller,
                method=method,
                about=on,
                only_refusals=refused,
                begin_ms=since_ms or 0,
                end_ms=until_ms or 0,
                older=older,
                max_lines=min(left, PAGE_LINES),
            )
            pages.append(page)
            left -= len(page.lines)
            older = page.older
        return pages

    pages = target.administer(ask)
    found = [line for page in pages for line in page.lines]
    silent = {node: why for page in reversed(pages) for node, why in page.unanswered.items()}
    damaged = {node for page in pages for node in page.damaged}
    if as_json:
        print_json(
            {
                "lines": [line.content for line in found],
                "more": bool(pages[-1].older),
                "unanswered": silent,
                "withoutLog": list(pages[0].without_log),
                "damaged": sorted(damaged),
            }
        )
    for line in () if as_json else found:
        say(f"{line.node} {_text(line.content)}")
    if pages[0].without_log:
        remark(f"no audit log (audit_log.file): {', '.join(pages[0].without_log)}")
    if damaged:
        who = ", ".join(sorted(damaged))
        remark(f"{who}: lines were changed or damaged; see `aerobee audit-log verify`", always=True)
    for node, why in silent.items():
        remark(f"{node}: {why}", always=True)
    remark_unanswered(list(silent))


def _text(line: Mapping[str, Any]) -> str:
    """Without what is the same for all, or is said otherwise."""
    head = [line.get("time"), line.get("seq"), line.get("event")]
    if "method" in line:
        name = str(line["method"]).rpartition("/")[2]
        head += [line.get("result"), line.get("caller"), "from", line.get("from"), name]
    rest = [line.get(name) for name in ("needs", "request", "refused_parts", "refusals", "why")]
    told = [each if isinstance(each, str) else json.dumps(each) for each in rest if each]
    return " ".join([*map(str, head), *told])
