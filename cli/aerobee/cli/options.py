"""Options that several commands have, each made once.

Nothing that cannot be undone happens without `--yes`: a person at a terminal is asked, and a
program is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from aerobee.cli.moments import parse_patience_ms
from aerobee.cli.output import QUIET

JSON_FORMAT = "aerobee.cli.json_format"
"""In the meta data of click's context: --json was given."""

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
always_json_option = click.option(
    "--json", is_flag=True, expose_value=False, help="As without it: the output is always JSON."
)
wide_option = click.option(
    "--wide", is_flag=True, help="Show all columns, even if the terminal is too narrow for them."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would change, and change nothing."
)
yes_option = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal."
)


def _be_quiet(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[QUIET] = value


quiet_option = click.Option(
    ["--quiet"],
    is_flag=True,
    expose_value=False,
    callback=_be_quiet,
    help="Print only the answer and errors: no remarks, no progress.",
)
"""All commands have it, but services, whose log is theirs to configure: see `lazy_group`."""


def timeout_option(
    default_ms: int, help: str, *, has_former: bool = True
) -> Callable[[Command], Command]:
    """Adds --timeout (parameter `timeout_ms`), and --timeout-ms as its hidden former spelling."""
    return duration_option("--timeout", default_ms, help, has_former=has_former)


def duration_option(
    name: str, default_ms: int, help: str, *, min_ms: int = 1, has_former: bool = True
) -> Callable[[Command], Command]:
    """Adds an option such as `--timeout 5s`, or `5` (its parameter has `_ms` at the end), and, if
    there was one, a hidden one in milliseconds, its former spelling."""
    parameter = f"{name.removeprefix('--').replace('-', '_')}_ms"

    def parsed(context: click.Context, _parameter: click.Parameter, text: str) -> int:
        if (former := context.meta.get(parameter)) is not None:
            return int(former)
        try:
            value_ms = parse_patience_ms(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        if value_ms < min_ms:
            raise click.BadParameter(f"{text!r} is less than {min_ms} ms")
        return value_ms

    def keep(context: click.Context, _parameter: click.Parameter, value: int | None) -> None:
        context.meta[parameter] = value

    def add(command: Command) -> Command:
        if has_former:
            command = click.option(
                f"{name}-ms",
                f"{parameter}_former",
                type=click.IntRange(min=min_ms),
                hidden=True,
                expose_value=False,
                is_eager=True,
                callback=keep,
            )(command)
        return click.option(
            name,
            parameter,
            metavar="TIME",
            default=f"{default_ms // 1_000}s" if default_ms % 1_000 == 0 else f"{default_ms}ms",
            show_default=True,
            callback=parsed,
            help=help,
        )(command)

    return add


def _keep_json_format(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[JSON_FORMAT] = value


json_format_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_keep_json_format,
    help="As --format json.",
)
"""For commands whose answer has a --format: the callback of that must be `chosen_format`."""


def chosen_format(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Of --format and --json, whichever was given."""
    if not context.meta.get(JSON_FORMAT):
        return value
    source = context.get_parameter_source(str(parameter.name))
    if source is ParameterSource.COMMANDLINE and value != "json":
        raise click.UsageError(f"--json means --format json: leave out --format {value}", context)
    return "json"


def format_option(help: str) -> Callable[[Command], Command]:
    """Adds --format (parameter `line_format`), text or json."""
    return click.option(
        "--format",
        "line_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        callback=chosen_format,
        help=help,
    )


def settings_option(
    *names: str, metavar: str = "KEY=VALUE", help: str
) -> Callable[[Command], Command]:
    """Adds a repeatable option whose values the command gets as one dict, no key twice."""
    return click.option(*names, multiple=True, metavar=metavar, callback=_settings, help=help)


def _settings(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(
                f"{parameter.opts[0]} takes {parameter.metavar}, not {text!r}", context
            )
        if key.strip() in settings:
            raise click.UsageError(f"{parameter.opts[0]} gives {key.strip()!r} twice", context)
        settings[key.strip()] = value.strip()
    return settings


def confirm(question: str, *, yes: bool, before: Callable[[], object] | None = None) -> None:
    """Return if it is meant; `yes` is what `yes_option` gave. `before` is called before a person is
    asked: it raises if there is nothing to ask about.

    Raises:
        click.Abort: the person said no.
        click.UsageError: there is no terminal and no --yes (exit code 2).
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(f'no terminal to ask "{question}": give --yes to confirm')
    if before is not None:
        before()
    click.confirm(question, abort=True, err=True)
