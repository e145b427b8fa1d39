"""`aerobee config`: what can be set, and whether a file is right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from aerobee.cli.config_command import without_file_variable
from aerobee.cli.config_reference import SERVICES, ServiceKind, render_reference
from aerobee.cli.failures import NEGATIVE
from aerobee.cli.options import json_option, settings_option
from aerobee.cli.output import counted, print_json, remark, say
from aerobee.runtime.config_check import Checked, Finding, check_config, unknown_keys
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.machine import usable_memory


@click.group()
def config() -> None:
    """Check the configuration files of services, and list every setting."""


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--service",
    type=click.Choice([service.name for service in SERVICES]),
    help="The service that the file is for.  [default: what its keys say]",
)
@settings_option(
    "--set",
    "settings",
    help="A setting that the service gets as a flag, which wins over the file; repeatable.",
)
@click.option("--strict", is_flag=True, help="Warnings also fail the check.")
@json_option
def check(
    file: Path, service: str | None, settings: dict[str, str], strict: bool, as_json: bool
) -> None:
    """Report everything that is wrong with FILE, with line numbers.

    The service's environment variables count as they do for the service, and so does the memory
    that this process may use. The check opens, resolves and contacts nothing. Exit code 0: the
    service accepts the file; 1: it does not.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {file}: {error}") from error
    try:
        kind = _guess_service(service, text, file.name)
        checked: Checked[Any] = check_config(
            kind.config,
            text,
            environment_prefix=kind.environment_prefix,
            environment=without_file_variable(os.environ, kind.environment_prefix),
            overrides=settings,
            memory=usable_memory(),
        )
    except InvalidArgument as error:
        remark(f"{file}: {error}")
        raise click.exceptions.Exit(NEGATIVE) from error
    if as_json:
        print_json(_document(kind, checked))
    else:
        _print(file, kind, checked)
    if checked.errors or (strict and checked.warnings):
        raise click.exceptions.Exit(NEGATIVE)


@config.command()
@click.option(
    "--commands", "of_commands", is_flag=True, help="Print all commands and their options instead."
)
def reference(of_commands: bool) -> None:
    """Print all keys of all services, with what they cost, in Markdown."""
    if of_commands:
        from aerobee.cli.cli_reference import cli_reference

        root = click.get_current_context().find_root().command
        say(cli_reference(root), keep="\n", nl=False)
        return
    say(render_reference(SERVICES), keep="\n", nl=False)


def _guess_service(name: str | None, text: str, file_name: str) -> ServiceKind:
    """The service of that name; without one, the only one that knows most keys of the text, or
    else the one that the file is named after.

    Raises:
        InvalidArgument: the text is not TOML, or could be of several services.
    """
    if name is not None:
        return next(kind for kind in SERVICES if kind.name == name)
    unknown = {kind.name: unknown_keys(kind.config, text) for kind in SERVICES}
    least = [kind for kind in SERVICES if unknown[kind.name] == min(unknown.values())]
    named = [kind for kind in least if kind.name in file_name.lower()]
    if len(least) > 1 and len(named) != 1:
        raise InvalidArgument(
            "its keys fit several services; give --service "
            + " or --service ".join(kind.name for kind in least)
        )
    return (named or least)[0]


def _print(file: Path, kind: ServiceKind, checked: Checked[Any]) -> None:
    for word, findings in (("error", checked.errors), ("warning", checked.warnings)):
        for finding in findings:
            where = f"{file}:{finding.line}" if finding.line else str(file)
            told = f"{where}: {word}: {finding.sentence}"
            if word == "error":
                remark(told, always=True)
            else:
                say(told)
    if not checked.errors:
        say(f"{file}: the {kind.name} accepts it ({counted(len(checked.keys), 'key')})")
        for sentence in checked.derived:
            say(sentence)


def _document(kind: ServiceKind, checked: Checked[Any]) -> dict[str, object]:
    def listed(findings: tuple[Finding, ...]) -> list[dict[str, object]]:
        return [
            {"line": each.line, "keys": list(each.keys), "sentence": each.sentence}
            for each in findings
        ]

    return {
        "service": kind.name,
        "errors": listed(checked.errors),
        "warnings": listed(checked.warnings),
        "derived": list(checked.derived),
    }
