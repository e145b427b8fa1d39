"""`aerobee doctor`: what the audit says of this moment, in a second and without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aerobee.cli.commands.audit import AuditCommand
from aerobee.cli.completion import group_names, topic_names
from aerobee.cli.failures import ENVIRONMENT, NEGATIVE, USAGE, Failure, failure_from
from aerobee.cli.options import json_option
from aerobee.cli.output import counted, print_json, remark, say
from aerobee.cli.target import Target, target_options
from aerobee.offset_audit.run import exit_codes

if TYPE_CHECKING:
    from aerobee import AdminClient

SHOWN_MAX = 50
COLOURS = {"CRITICAL": "red", "ERROR": "red", "WARNING": "yellow", "INFO": "cyan"}
EXIT_CODES = {"INFO": 0, "WARNING": 1, "ERROR": 2, "CRITICAL": 3}
_CODES = {NEGATIVE: exit_codes.USAGE, USAGE: exit_codes.USAGE, ENVIRONMENT: exit_codes.UNAVAILABLE}


class _Asked(NamedTuple):
    """How many brokers should have answered, how many did, and the groups of the others."""

    brokers: int
    answered: int
    unanswered: list[str]


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
    found, asked = target.administer(lambda admin: _examined(target, admin, groups, topics))
    _print(found, asked, as_json=as_json)
    worst = max((EXIT_CODES[each["severity"]] for each in found), default=0)
    raise click.exceptions.Exit(worst)


async def _examined(
    target: Target,
    admin: AdminClient,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
) -> tuple[list[dict[str, Any]], _Asked]:
    from aerobee.offset_audit.doctor.asking import read_cluster
    from aerobee.offset_audit.doctor.examining import examined
    from aerobee.offset_audit.rules.limits import Limits
    from aerobee.runtime.clock import SystemClock

    await _check_known(admin, groups, topics)
    tables = await read_cluster(
        admin.connection, groups=groups, topics=topics, timeout_ms=round(target.timeout_s * 1_000)
    )
    found = examined(tables, Limits(now_ms=SystemClock().now_ms()))
    live = {
        (each["broker_name"], each["broker_id"]): each["answered"] for each in tables["brokers"]
    }
    # A broker whose registration is over has to answer all the same.
    registered = {
        (each["broker_name"], broker_id)
        for each in tables["registry_groups"]
        for broker_id in each["replicas"] or [0]
    }
    silent = [place for place in registered | live.keys() if not live.get(place)]
    return found, _Asked(
        len(registered | live.keys()),
        sum(live.values()),
        sorted({name for name, _ in silent}),
    )


async def _check_known(
    admin: AdminClient, groups: tuple[str, ...], topics: tuple[str, ...]
) -> None:
    """Raises GroupNotFound, TopicNotFound: nothing can be said of it, which is not that all is
    well."""
    from aerobee.client_core.admin_groups import unknown_group

    if groups:
        known = await admin.groups.list(with_own=True)
        if missing := [] if known.unanswered else sorted({*groups} - {*known}):
            raise unknown_group(missing[0])
    for topic in topics:
        await admin.topics.get(topic)


def _camel(name: str) -> str:
    """A column of the audit as a member of a document."""
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _print(found: list[dict[str, Any]], asked: _Asked, *, as_json: bool) -> None:
    from aerobee.offset_audit.doctor.examining import CHECKED
    from aerobee.offset_audit.outputs.verdict import effect_of
    from aerobee.offset_audit.outputs.verdict import found as found_text

    counts = dict.fromkeys(EXIT_CODES, 0)
    for each in found:
        counts[each["severity"]] += 1
    if as_json:
        print_json(
            {
                "brokers": asked.brokers,
                "answered": asked.answered,
                "unanswered": asked.unanswered,
                "checked": list(CHECKED),
                "counts": counts,
                "findings": [{_camel(name): each[name] for name in each} for each in found],
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
        f"{found_text(counts)}. {asked.answered} of {counted(asked.brokers, 'broker')} "
        "answered. "
        "Stored bytes, journals and earlier runs were not read: see `aerobee audit`."
    )
