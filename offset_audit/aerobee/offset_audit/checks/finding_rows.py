"""From the results of a check to rows of FINDINGS, so that all checks fill the columns alike."""

from __future__ import annotations

import re
from typing import Final

from aerobee.offset_audit.checks.check import Severity
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.columns_of_tables import columns_of
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.rules.texts import phrase, shell_word, sql_text
from aerobee.offset_audit.tables import FINDINGS

_COUNTED: Final = re.compile(r"\{([^{}|]+)\|([^{}|]+)\|([^{}|]+)\}")


def finding_rows(
    found: Frame,
    check: str,
    *,
    severity: Column | Severity,
    evidence: Column,
    affected: Column | None = None,
    command: Column | str = "",
) -> Frame:
    """One row of FINDINGS for each row of `found`.

    The columns of `found` that FINDINGS has too (broker, topic, queue, group, ...) are copied;
    missing ones are null: a finding about a broker has no topic.
    """
    given: dict[str, Column] = {
        "check": F.lit(check),
        "severity": severity if isinstance(severity, Column) else F.lit(severity.value),
        "evidence": evidence,
        "affected": F.lit(None) if affected is None else affected,
        "command": F.lit(command) if isinstance(command, str) else command,
    }
    return found.select(
        *(
            given.get(name, F.col(name) if name in found.columns else F.lit(None))
            .cast(kind)
            .alias(name)
            for name, kind in columns_of(FINDINGS)
        )
    )


def command_line(text: str, word: str, *, otherwise: str = "") -> Column:
    """A command to paste: `text` followed by the SQL expression `word` as a single shell word, or
    by the given replacement if it is unknown."""
    return F.expr(
        f"coalesce(concat({sql_text(text + ' ')}, {shell_word(word)}), {sql_text(otherwise)})"
    )


def sentence(template: str, **parts: Column | str) -> Column:
    """Text with values in it, as by `texts.phrase`; an unknown value reads `?`.
    `{n|record|records}` counts: `1 record`, `12345 records`."""
    told = {
        name: f"coalesce(cast({F.lit(part).sql} as string), '?')" for name, part in parts.items()
    }

    def counted(match: re.Match[str]) -> str:
        name = f"counted_{len(told)}"
        told[name] = count_text(F.expr(match[1]), match[2], match[3]).sql
        return f"{{{name}}}"

    return F.expr(phrase(_COUNTED.sub(counted, template), **told))


def count_text(value: Column, one: str, many: str) -> Column:
    """`1 record` or `12345 records`."""
    number = value.cast("string")
    return F.when(value == 1, F.concat(number, F.lit(f" {one}"))).otherwise(
        F.concat(F.coalesce(number, F.lit("?")), F.lit(f" {many}"))
    )
