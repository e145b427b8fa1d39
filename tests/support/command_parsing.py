"""Command lines of `aerobee`, parsed by its own commands but not run."""

from __future__ import annotations

from collections.abc import Sequence

import click

from aerobee.cli.__main__ import main


def parsed(words: Sequence[str]) -> click.Context:
    """The context of the innermost command that `aerobee WORDS` names.

    Raises:
        click.ClickException: the program would refuse it.
    """
    command: click.Command = main
    context = command.make_context("aerobee", list(words))
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return context
        name, found, rest = command.resolve_command(context, rest)
        assert name is not None
        assert found is not None
        command = found
        context = command.make_context(name, rest, parent=context)
    return context
