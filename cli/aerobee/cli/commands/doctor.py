"""`aerobee doctor`: what the audit says of this moment, in a second and without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.commands.audit import AuditCommand
from aerobee.cli.completion import group_names, topic_names
from aerobee.cli.failures import ENVIRONMENT, USAGE, Failure, failure_from
from aerobee.cli.options import json_option
from aerobee.cli.output import counted, print_json, remark, say
from aerobee.cli.target import Target, target_options
from aerobee.offset_audit.run import exit_codes

if TYPE_CHECKING:
    from aerobee import ClusterConnection

SHOWN_MAX = 50
COLOURS = {"CRITICAL": "red", "ERROR": "red", "WARNING": "yellow", "INFO": "cyan"}
EXIT_CODES = {"INFO": 0, "WARNING": 1, "ERROR": 2, "CRITICAL": 3}
_CODES = {USAGE: exit_codes.USAGE, ENVIRONMENT: exit_codes.UNAVAILABLE}


class DoctorCommand(AuditCommand):
    """Leaves with the audit's codes, so that no failure is taken for a finding."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.__dict__["exit_code"] = exit_codes.USAGE
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            failure = failure_from(error)
            if failure is None:
                raise
            code = _CODES.get(failure.exit_code, exit_codes.BROKE_OFF)
            raise Failure(failure.format_message(), exit_code=code) from error


@click.command(cls=DoctorCommand)
@click.option(
    "--group",
    "groups",
    multiple=True,
    shell_complete=group_names,
    help="Only this consumer group; repeatable.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=topic_names,
    help="Only this topic; repeatable.",
)
@json_option
@target_options
def doctor(target: Target, groups: tuple[str, ...], topics: tuple[str, ...], as_json: bool) -> None:
    """Ask each broker once; print what is wrong with groups, offsets, leases, brokers and clocks.

    Applies rules of `aerobee audit`, in the same words, to one reading: no earlier runs, no
    journals, no stored bytes. Changes nothing; needs neither Spark nor Java.

    \b
    Exit codes by the worst finding:
      0 INFO or none, 1 WARNING, 2 ERROR, 3 CRITICAL
    Others:
      64 wrong usage, 69 no answer from the cluster, 70 failed, 130 interrupted
    """
    found, brokers, answered = target.administer(
        lambda admin: _examined(target, admin.connection, groups, topics)
    )
    _print(found, brokers, answered, as_json=as_json)
    worst = max((EXIT_CODES[each["severity"]] for each in found), default=0)
    raise click.exceptions.Exit(worst)


async def _examined(
    target: Target,
    connection: ClusterConnection,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
) -> tuple[list[dict[str, Any]], int, int]:
    """Findings, brokers that were asked, and those that answered."""
    from aerobee.offset_audit.checks.limits import Limits
    from aerobee.offset_audit.doctor.asking import read_cluster
    from aerobee.offset_audit.doctor.examining import examined
    from aerobee.runtime.clock import SystemClock

    tables = await read_cluster(
        connection, groups=groups, topics=topics, timeout_ms=round(target.timeout_s * 1_000)
    )
    found = examined(tables, Limits(now_ms=SystemClock().now_ms()))
    brokers = tables["brokers"]
    return found, len(brokers), sum(each["answered"] for each in brokers)


def _print(found: list[dict[str, Any]], brokers: int, answered: int, *, as_json: bool) -> None:
    from aerobee.offset_audit.doctor.examining import CHECKED
    from aerobee.offset_audit.outputs.verdict import effect_of
    from aerobee.offset_audit.outputs.verdict import found as found_text

    counts = dict.fromkeys(EXIT_CODES, 0)
    for each in found:
        counts[each["severity"]] += 1
    if as_json:
        print_json(
            {
                "brokers": brokers,
                "answered": answered,
                "checked": list(CHECKED),
                "counts": counts,
                "findings": found,
            }
        )
        return
    for each in found[:SHOWN_MAX]:
        severity = each["severity"]
        say(each["check"], label=f"{severity} ", colour=COLOURS[severity])
        say(f"  {each['evidence']}")
        say(f"  run ({effect_of(each['command'])}): {each['command']}")
    if len(found) > SHOWN_MAX:
        remark(f"and {len(found) - SHOWN_MAX:,} more: --json has all of them")
    say(
        f"{found_text(counts)}. {answered} of {counted(brokers, 'broker')} answered. "
        "Stored bytes, journals and earlier runs were not read: see `aerobee audit`."
    )
