"""What commands print: tables for people, JSON for programs.

Standard output carries the answer only; progress and remarks go to standard error, so that a pipe
gets clean data. All that a command prints goes through here: names, properties and addresses were
written by others, and none of their characters may command the terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from aerobee.cli.moments import without_milliseconds
from aerobee.runtime.printable import printable, printable_json

QUIET: Final = "aerobee.cli.quiet"
"""In the meta data of click's context."""
PARTIAL_ANSWER: Final = "aerobee.cli.partial"
"""In the meta data of click's context: brokers did not answer, and the command told so."""
GAP: Final = "  "
"""Between the columns of a table."""
CUT_WIDTH_MIN: Final = 16
"""Of a column that may be cut; others are left out before it gets narrower."""


def say(
    text: str = "", *, keep: str = "", nl: bool = True, label: str = "", colour: str = ""
) -> None:
    """A line of the answer, on standard output; of what is not printable only `keep` stays.

    `label` goes before it, in a colour on a terminal.
    """
    label = click.style(printable(label), fg=colour) if label else ""
    click.echo(label + printable(text, keep=keep), nl=nl)


def is_quiet() -> bool:
    """Whether --quiet was given to the command that runs."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def remark(text: str, *, always: bool = False) -> None:
    """A line for the person at the terminal, on standard error; not with --quiet, unless without it
    the answer would be taken for more than it is."""
    if always or not is_quiet():
        click.echo(printable(text), err=True)


def remark_unanswered(names: Sequence[str]) -> None:
    """Of broker groups, whose part of the answer is missing: the command ends with the exit code
    that says so, whatever else it finds."""
    if not names:
        return
    remark(f"no answer from {', '.join(names)}: what is there is missing here", always=True)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[PARTIAL_ANSWER] = True


def counted(count: int, noun: str, several: str | None = None) -> str:
    """`1 broker`, `2,000 messages`; `several` where the noun takes more than an s."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def print_json(value: object) -> None:
    """One document, indented, on standard output."""
    click.echo(printable_json(json.dumps(value, indent=2, ensure_ascii=False)))


def print_documents(
    documents: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str | Callable[[Mapping[str, Any]], object]],
    **options: Any,
) -> None:
    """The parts of a JSON document as a table.

    Args:
        columns: header -> the member below it, or what makes its cell of a document.
        options: of `print_table`.
    """
    rows = [
        [each.get(cell) if isinstance(cell, str) else cell(each) for cell in columns.values()]
        for each in documents
    ]
    print_table(tuple(columns), rows, **options)


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str = "",
    empty: str = "",
    droppable: Sequence[str] = (),
    cuttable: str = "",
    times: str = "",
    wide: bool = True,
) -> None:
    """Columns with headers. On a terminal with rules; in a pipe plain aligned text, never cut.

    Cells are never folded. Where a terminal is too narrow and `wide` is not asked for, the column
    `times` loses its milliseconds, then columns of `droppable` are left out, the first one first,
    and then the texts of `cuttable` are cut.

    Args:
        title: a line above, for a table that is a part of the answer.
        empty: said on standard error where there are no rows. The headers stay only in a pipe, and
            for a table that is the whole answer.
    """
    texts = [[_cell(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[i]) for row in rows) and bool(rows) for i in range(len(headers))]
    columns = [
        _Column(_cell(header), [row[i] for row in texts], numeric[i])
        for i, header in enumerate(headers)
    ]
    on_terminal = sys.stdout.isatty()
    left_out: list[str] = []
    if on_terminal and not wide:
        width = shutil.get_terminal_size().columns
        columns, left_out = _fitting(columns, droppable, cuttable, times, width)
    if title:
        say(title)
    if empty and not rows:
        remark(empty)
        if on_terminal or title:
            return
    line, *lines = (
        _line(cells) for cells in zip(*(column.cells() for column in columns), strict=True)
    )
    click.echo(click.style(line, bold=True) if on_terminal else line)
    if on_terminal:
        click.echo(GAP.join("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * each.width for each in columns))
    for line in lines:
        click.echo(line)
    if left_out:
        remark(f"not shown, for lack of room: {', '.join(left_out)} (--wide shows all)")


class _Column:
    """Texts of one width, a header first."""

    def __init__(self, header: str, texts: Sequence[str], is_numeric: bool) -> None:
        self.header = header
        self._texts = (header, *texts)
        self._is_numeric = is_numeric
        self.width = max(map(_width, self._texts))

    def cells(self) -> Iterator[str]:
        for text in self._texts:
            room = " " * (self.width - _width(text))
            yield room + text if self._is_numeric else text + room

    def shortened(self) -> _Column:
        """The same with times to the second."""
        texts = [without_milliseconds(text) for text in self._texts[1:]]
        return _Column(self.header, texts, self._is_numeric)

    def cut(self, width: int) -> _Column:
        """The same with texts that end early where they are wider."""
        return _Column(self.header, [_cut(text, width) for text in self._texts[1:]], False)


def _fitting(
    columns: list[_Column], droppable: Sequence[str], cuttable: str, times: str, width: int
) -> tuple[list[_Column], list[str]]:
    """The columns for which there is room, and the headers of the others."""
    left_out: list[str] = []

    def missing(least: int) -> int:
        """Cells too few, if what may be cut takes no more than the least."""
        widths = (
            min(column.width, least) if column.header == cuttable else column.width
            for column in columns
        )
        return sum(widths) + len(GAP) * (len(columns) - 1) - width

    if times and missing(CUT_WIDTH_MIN) > 0:
        columns = [each.shortened() if each.header == times else each for each in columns]
    for header in droppable:
        if missing(CUT_WIDTH_MIN) <= 0:
            break
        columns = [column for column in columns if column.header != header]
        left_out.append(header)
    room = max(CUT_WIDTH_MIN, -missing(0))
    return [
        column.cut(room) if column.header == cuttable else column for column in columns
    ], left_out


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + "\N{HORIZONTAL ELLIPSIS}"


def _line(cells: Sequence[str]) -> str:
    return GAP.join(cells).rstrip()


def _width(text: str) -> int:
    """In cells of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
