"""From the results of a check to rows of FINDINGS, so that all checks fill the columns alike."""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Severity
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.columns_of_tables import columns_of
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.rules.texts import TIME_MS_MAX, shell_word, sql_text
from aerobee.offset_audit.tables import FINDINGS


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


def sentence(*parts: Column | str) -> Column:
    """Text with values in it; an unknown value reads `?`."""
    return F.concat(
        *(
            F.lit(part) if isinstance(part, str) else F.coalesce(part.cast("string"), F.lit("?"))
            for part in parts
        )
    )


def count_text(value: Column, one: str, many: str) -> Column:
    """`1 record` or `12345 records`."""
    number = value.cast("string")
    return F.when(value == 1, F.concat(number, F.lit(f" {one}"))).otherwise(
        F.concat(F.coalesce(number, F.lit("?")), F.lit(f" {many}"))
    )


def replica_name(broker_name: str = "broker_name", broker_id: str = "broker_id") -> Column:
    """`broker-a:1`: how evidence names one replica of a group."""
    return sentence(F.col(broker_name), ":", F.col(broker_id))


def utc_time(milliseconds: Column) -> Column:
    """Unix milliseconds as text, to the millisecond, with a `Z`; a value outside any calendar (from
    damaged bytes) as the plain number."""
    is_date = milliseconds.between(0, TIME_MS_MAX)
    moment = F.timestamp_millis(F.when(is_date, milliseconds))
    return F.when(is_date, F.date_format(moment, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")).otherwise(
        F.concat(milliseconds.cast("string"), F.lit(" ms"))
    )
