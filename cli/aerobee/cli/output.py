"""What commands print: tables for people, JSON for programs.

Standard output carries the answer only; progress and remarks go to standard error, so that a pipe
gets clean data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """Adds --json (parameter `as_json`) to a listing."""
    option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    return option(command)


def print_json(value: object) -> None:
    """One document, indented, on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = ""
) -> None:
    """Columns with headers. On a terminal with rules; in a pipe plain aligned text, never cut."""
    texts = [[_cell(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[i]) for row in rows) and bool(rows) for i in range(len(headers))]
    if sys.stdout.isatty():
        _print_rich(headers, texts, numeric, title)
        return
    widths = [
        max(len(headers[i]), *(len(row[i]) for row in texts)) if texts else len(headers[i])
        for i in range(len(headers))
    ]
    if title:
        click.echo(title)
    for row in [list(headers), *texts]:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def remark(text: str) -> None:
    """A line for the person at the terminal, on standard error."""
    click.echo(text, err=True)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _print_rich(
    headers: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool], title: str
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title or None, box=SIMPLE_HEAD, title_justify="left")
    for header, right in zip(headers, numeric, strict=True):
        table.add_column(header, justify="right" if right else "left", overflow="fold")
    for row in texts:
        table.add_row(*(escape(text) for text in row))
    Console().print(table)
