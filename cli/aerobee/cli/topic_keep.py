"""How long a topic keeps its messages, as a user writes it: a time, a size, or `all`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from aerobee.cli.moments import parse_delay_ms
from aerobee.domain.topic_attributes import KEEP_BYTES, KEEP_MS

Command = TypeVar("Command", bound=Callable[..., Any])

ALL: Final = "all"
"""Everything that the log has: the attribute is removed."""

_SIZE = re.compile(r"(\d{1,15})(B|KiB|MiB|GiB|TiB)?", re.ASCII)
_UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_keep(text: str) -> str:
    """The attribute's value. Raises ValueError."""
    return "" if text == ALL else str(parse_delay_ms(text))


def parse_keep_bytes(text: str) -> str:
    """The attribute's value. Raises ValueError."""
    if text == ALL:
        return ""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no size: write a number of bytes, or one and KiB, MiB, GiB or TiB"
        )
    return str(int(match[1]) * _UNITS[match[2] or ""])


def keep_options(command: Command) -> Command:
    """Adds --keep and --keep-bytes (parameters `keep` and `keep_bytes`), values of attributes;
    None: not given."""
    for name, metavar, parse, help in (
        (
            "--keep-bytes",
            "SIZE|all",
            parse_keep_bytes,
            "The most bytes that each of its queues keeps, such as 1GiB.",
        ),
        (
            "--keep",
            "TIME|all",
            parse_keep,
            "How long it keeps its messages, such as 6h; not longer than the brokers' log.",
        ),
    ):
        command = click.option(name, metavar=metavar, callback=_parsed(parse), help=help)(command)
    return command


def with_kept(
    attributes: Mapping[str, str], keep: str | None, keep_bytes: str | None
) -> dict[str, str]:
    """The attributes, and what the options say. Raises click.UsageError if they differ."""
    merged = dict(attributes)
    for option, name, value in (
        ("--keep", KEEP_MS, keep),
        ("--keep-bytes", KEEP_BYTES, keep_bytes),
    ):
        if value is None:
            continue
        if merged.get(name, value) != value:
            raise click.UsageError(f"{option} and --attribute {name} differ: name one")
        merged[name] = value
    return merged


def _parsed(
    parse: Callable[[str], str],
) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    def parsed(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return parsed
