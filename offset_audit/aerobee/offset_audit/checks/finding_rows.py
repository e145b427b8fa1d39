"""From the results of a check to rows of FINDINGS, so that all checks fill the columns alike."""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.offset_audit.checks.check import Severity
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.columns_of_tables import columns_of
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.rules.texts import command_text
from aerobee.offset_audit.tables import FINDINGS


def finding_rows(
    found: Frame,
    check: str,
    *,
    severity: Severity | str,
    evidence: str,
    affected: str = "null",
    command: str = "",
    commands: Mapping[str, str] | None = None,
    otherwise: str = "",
) -> Frame:
    """One row of FINDINGS for each row of `found`.

    The columns of `found` that FINDINGS has too (broker, topic, queue, group, ...) are copied;
    missing ones are null: a finding about a broker has no topic.

    Args:
        severity: one for all, or SQL.
        evidence: SQL of the sentence.
        affected: SQL.
        command: of an operator, a template whose values become one word of a shell each.
        commands: by SQL conditions, templates that come before it; the first that holds counts.
        otherwise: a command if a value of `command` is not known.
    """
    given: dict[str, Column] = {
        "check": F.lit(check),
        "severity": F.lit(severity.value) if isinstance(severity, Severity) else F.expr(severity),
        "evidence": F.expr(evidence),
        "affected": F.expr(affected),
        "command": F.expr(command_text(command, commands, otherwise)),
    }
    return found.select(
        *(
            given.get(name, F.col(name) if name in found.columns else F.lit(None))
            .cast(kind)
            .alias(name)
            for name, kind in columns_of(FINDINGS)
        )
    )
