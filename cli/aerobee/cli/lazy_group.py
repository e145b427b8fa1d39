"""Command groups that import a command only when it is called.

Invariants: listing commands and their one-line help imports none of them; every failure that a user
can cause leaves the root as one sentence and an exit code of `failures`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from aerobee.cli.failures import BROKEN_PIPE, INTERRUPTED, failure_from


class LazyCommand(NamedTuple):
    """Where a command is, and its help line, which must not need the import."""

    name: str
    target: str
    short_help: str

    def load(self) -> click.Command:
        module_name, attribute = self.target.split(":")
        command = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(command, click.Command), self.target
        return command


class LazyGroup(click.Group):
    """A group whose members are named by import path."""

    def __init__(
        self, *args: Any, lazy_commands: Sequence[LazyCommand] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy_commands = {command.name: command for command in lazy_commands}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Lazy ones in the order given, then those added in the usual way."""
        return [*self._lazy_commands, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self._lazy_commands.get(cmd_name)
        return lazy.load() if lazy is not None else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(command.name, command.short_help) for command in self._lazy_commands.values()]
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            assert command is not None
            rows.append((name, command.get_short_help_str()))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class RootGroup(LazyGroup):
    """The outermost group: the border between errors and what the user sees of them."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output has enough, as `head` does. Nothing may be flushed to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE)
        except click.ClickException:
            raise
        except Exception as error:
            failure = failure_from(error)
            if failure is None:
                raise
            raise failure from error
