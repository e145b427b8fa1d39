"""Sentences and commands of findings, as texts of SQL: their wording, and how values are formatted.

Expressions are texts of Spark's SQL: building one from columns, node by node, costs the driver
hundreds of JVM calls for each sentence. And texts can be evaluated without Spark: see
`expressions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999."""
_UNSAFE: Final = "[^A-Za-z0-9_@%+=:,./-]"
"""Characters that have, or may have, a meaning in a shell."""
_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_MOMENTS: Final = {
    "moment": ("yyyy-MM-dd HH:mm:ss", " UTC"),
    "instant": ("yyyy-MM-dd'T'HH:mm:ss.SSS", "Z"),
}
_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_COUNTED: Final = re.compile(r"([^|]+)\|([^|]+)\|([^|]+)")
_SPEC: Final = re.compile(r"(.*)\|([a-z]+)", re.DOTALL)

QUEUE: Final = "concat_ws(':', worst.broker_name, worst.queue_id)"
"""The worst queue of a finding, in the form of the option `--queue`."""
SHOW_GROUP: Final = "aerobee group show {group}"


def phrase(template: str, **parts: str) -> str:
    """SQL of a text.

    `{expression}` is a column, an SQL expression or one of `parts`; unknown values read `?`, so
    that no sentence is lost. `{expression|spec}`: `n` 12,345; `rate` 12.3; `duration` of
    milliseconds; `moment` of Unix milliseconds, `instant` with its milliseconds; any plural noun
    counts: 1 message, 2,000 messages. `{expression|one|many}` counts without separators: 1 record,
    2000 records.
    """
    pieces = []
    for index, piece in enumerate(_FIELD.split(template)):
        if index % 2 == 1:
            pieces.append(parts[piece] if piece in parts else _value(piece))
        elif piece:
            pieces.append(sql_text(piece))
    return f"concat({', '.join(pieces)})" if pieces else "''"


def either(condition: str, yes: str, no: str = "", **parts: str) -> str:
    """SQL of one of two texts; the second also if the condition is unknown."""
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


def reset_to(offset: str) -> str:
    """The command that would reset the worst queue to an offset, without doing it yet."""
    return (
        f"aerobee offset reset {{group}} {{worst.topic}} --queue {{{QUEUE}}} "
        f"--to-offset {{{offset}}} --dry-run"
    )


def command_text(
    template: str, commands: Mapping[str, str] | None = None, otherwise: str = ""
) -> str:
    """SQL of a command in which each value becomes a single shell word; of `commands`, by
    conditions, the first that holds comes before it. `otherwise`: if a value is not known."""
    if commands:
        (held, first), *others = commands.items()
        rest = command_text(template, dict(others), otherwise)
        return f"if({held}, {command_text(first)}, {rest})"
    pieces = []
    for index, piece in enumerate(_FIELD.split(template)):
        if index % 2 == 1:
            pieces.append(shell_word(piece))
        elif piece:
            pieces.append(sql_text(piece))
    if len(pieces) <= 1:
        return sql_text(template)
    return f"coalesce(concat({', '.join(pieces)}), {sql_text(otherwise)})"


def _value(field: str) -> str:
    if (counted := _COUNTED.fullmatch(field)) is not None:
        number, one, many = f"cast(({counted[1]}) as string)", counted[2], counted[3]
        return either(
            f"({counted[1]}) = 1",
            f"{{number}} {one}",
            f"{{number}} {many}",
            number=f"coalesce({number}, '?')",
        )
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
    if spec in _MOMENTS:
        form, end = _MOMENTS[spec]
        is_date = f"{expression} between 0 and {TIME_MS_MAX}"
        date = f"timestamp_millis(if({is_date}, {expression}, null))"
        return (
            f"if({is_date}, concat(date_format({date}, {sql_text(form)}), '{end}'),"
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


def shell_word(expression: str) -> str:
    """SQL of a value quoted as by `shlex.quote`: names and paths are arbitrary."""
    word = f"cast({expression} as string)"
    quote, inner = sql_text("'"), sql_text("""'"'"'""")
    return (
        f"if({word} = '' or {word} rlike {sql_text(_UNSAFE)}, "
        f"concat({quote}, replace({word}, {quote}, {inner}), {quote}), {word})"
    )


def sql_text(text: str) -> str:
    """A literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
