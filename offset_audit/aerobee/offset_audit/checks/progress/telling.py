"""How findings of progress are put: which queues make one finding, and their sentence.

One cause is one finding: the queues of a topic on which one group has the same trouble are told
together, with the worst of them by name. A finding on a single queue names its broker and queue.

Expressions are texts of Spark's SQL: one that is built from columns, node by node, costs the driver
some hundred calls of the JVM for each sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Severity
from aerobee.offset_audit.checks.finding_rows import (
    TIME_MS_MAX,
    finding_rows,
    shell_word,
    sql_text,
)

_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_SPEC: Final = re.compile(r"(.*)\|([a-z]+)", re.DOTALL)
_PLACE: Final = ("broker_name", "broker_id", "role", "epoch", "topic", "queue_id", "state")

QUEUE: Final = "concat_ws(':', worst.broker_name, worst.queue_id)"
"""The worst queue of a finding, as the option `--queue` takes it."""
SHOW_GROUP: Final = "aerobee group show {group}"


def phrase(template: str, **parts: str) -> str:
    """SQL of a text.

    `{expression}` is a column, an SQL expression or one of `parts`; unknown values read `?`, so
    that no sentence gets lost. `{expression|spec}`: `n` 12,345; `rate` 12.3; `duration` of
    milliseconds; `moment` of Unix milliseconds; any plural noun counts: 1 message, 2 messages.
    """
    pieces = []
    for index, piece in enumerate(_FIELD.split(template)):
        if index % 2 == 1:
            pieces.append(parts[piece] if piece in parts else _value(piece))
        elif piece:
            pieces.append(sql_text(piece))
    return f"concat({', '.join(pieces)})" if pieces else "''"


def either(condition: str, yes: str, no: str = "", **parts: str) -> str:
    """SQL of one of two texts; the second also where the condition is not known."""
    return f"if({condition}, {phrase(yes, **parts)}, {phrase(no, **parts)})"


def where(measured: str | None = None) -> str:
    """SQL of the place of a gathered row: "queue b:1" or "3 queues (most: 900 on b:1)"; without
    `measured` the worst queue is only named."""
    most = "worst: {queue}" if measured is None else f"most: {{{measured}|n}} on {{queue}}"
    return either("queues = 1", "queue {queue}", f"{{queues|n}} queues ({most})", queue=QUEUE)


def in_topic() -> str:
    """SQL of the topic of a gathered row that has `topics`, their number."""
    return either("topics = 1", "topic {worst.topic}", "{topics} topics")


def have_waited() -> str:
    """SQL of the number of messages that wait."""
    return either("affected = 1", "1 message waits", "{affected|n} messages wait")


def gather(
    rows: DataFrame,
    measure: str,
    *,
    keep: Sequence[str] = (),
    by: Sequence[str] = ("cluster", "group", "topic"),
    **sums: str,
) -> DataFrame:
    """One row for each `by`: the number of `queues`, the `worst` by `measure` (its place and the
    columns `keep`), the aggregates `sums`, and the place as far as there is only one.

    `seen_by` ends the sentence, and says so if no master was asked.
    """
    names = [name for name in (*_PLACE, *keep) if name in rows.columns]
    order = f"struct({measure}, queue_id, broker_name)"
    worst = f"max_by(struct({', '.join(dict.fromkeys(names))}), {order}) worst"
    only_broker = "min(broker_name) = max(broker_name)"
    told = rows.groupBy(*by).agg(
        F.expr("count(1) queues"),
        F.expr(worst),
        F.expr("if(count(1) = 1, min(queue_id), null) queue_id"),
        *(
            F.expr(f"if({only_broker}, min({name}), null) {name}")
            for name in ("broker_name", "broker_id", "role", "epoch")
        ),
        F.expr("if(bool_or(role = 'SLAVE'), ', as a slave saw it.', '.') seen_by"),
        *(F.expr(f"{expression} {name}") for name, expression in sums.items()),
    )
    return told


def findings(
    rows: DataFrame,
    check: str,
    severity: Severity | str,
    *,
    evidence: str,
    command: str = SHOW_GROUP,
    commands: Mapping[str, str] | None = None,
    **columns: str,
) -> DataFrame:
    """Gathered rows as FINDINGS.

    Args:
        severity: or SQL of it.
        evidence: SQL of the sentence.
        command: a template whose values become one word of a shell each.
        commands: by SQL conditions, templates that come before it; the first that holds counts.
        columns: SQL of further columns of FINDINGS.
    """
    given = {name: F.expr(expression) for name, expression in columns.items()}
    return finding_rows(
        rows.withColumns(given) if given else rows,
        check,
        severity=severity if isinstance(severity, Severity) else F.expr(severity),
        evidence=F.expr(evidence),
        affected=F.col("affected"),
        command=F.expr(
            "".join(f"if({held}, {_command(one)}, " for held, one in (commands or {}).items())
            + _command(command)
            + ")" * len(commands or {})
        ),
    )


def reset_to(offset: str) -> str:
    """The command that would reset the worst queue to an offset, without doing it yet."""
    return (
        f"aerobee offset reset {{group}} {{worst.topic}} --queue {{{QUEUE}}} "
        f"--to-offset {{{offset}}} --dry-run"
    )


def _command(template: str) -> str:
    """SQL of a command."""
    pieces = []
    for index, piece in enumerate(_FIELD.split(template)):
        if index % 2 == 1:
            pieces.append(shell_word(piece))
        elif piece:
            pieces.append(sql_text(piece))
    return f"concat({', '.join(pieces)})"


def _value(field: str) -> str:
    found = _SPEC.fullmatch(field)
    expression, spec = (found[1], found[2]) if found else (field, "")
    return f"coalesce({_formatted(f'({expression})', spec)}, '?')"


def _formatted(expression: str, spec: str) -> str:
    if spec == "":
        return f"cast({expression} as string)"
    if spec == "n":
        return f"format_number({expression}, 0)"
    if spec == "rate":
        return f"format_number({expression}, 1)"
    if spec == "duration":
        return _duration(expression)
    if spec == "moment":
        is_date = f"{expression} between 0 and {TIME_MS_MAX}"
        date = f"timestamp_millis(if({is_date}, {expression}, null))"
        return (
            f"if({is_date}, concat(date_format({date}, 'yyyy-MM-dd HH:mm:ss'), ' UTC'),"
            f" concat({expression}, ' ms'))"
        )
    return (
        f"if({expression} = 1, '1 {spec[:-1]}', concat(format_number({expression}, 0), ' {spec}'))"
    )


def _duration(ms: str) -> str:
    """Two digits or so, rounded down."""
    return (
        f"case when {ms} < {2 * _MINUTE} then concat(floor({ms} / 1000), ' s') "
        f"when {ms} < {2 * _HOUR} then concat(floor({ms} / {_MINUTE}), ' min') "
        f"when {ms} < {2 * _DAY} then concat(floor({ms} / {_HOUR}), ' h') "
        f"else concat(format_number(floor({ms} / {_DAY}), 0), ' days') end"
    )
