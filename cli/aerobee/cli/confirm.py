"""Whether something that cannot be undone is really meant: one rule for every command.

`--yes` says so. Without it a person at a terminal is asked, and a program is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def yes_option(command: Command) -> Command:
    """Adds --yes (parameter `yes`) to a command that deletes something."""
    option = click.option(
        "--yes", is_flag=True, help="Do not ask; needed where there is no terminal."
    )
    return option(command)


def confirm(question: str, *, yes: bool) -> None:
    """Return if it is meant.

    Raises:
        click.Abort: the person said no.
        click.UsageError: there is no terminal and no --yes (exit code 2).
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(f'no terminal to ask "{question}": say --yes to do it')
    click.confirm(question, abort=True, err=True)
