"""`aerobee config`: what can be set, and whether a file is right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from aerobee.cli.failures import NEGATIVE
from aerobee.cli.output import counted, json_option, print_json, remark, say
from aerobee.cli.service_kinds import SERVICES, ServiceKind, environment_of, guess_service
from aerobee.cli.settings import parse_settings
from aerobee.runtime.config_check import Checked, Finding, check_config
from aerobee.runtime.errors import InvalidArgument


@click.group()
def config() -> None:
    """Show what services can be told, and check their files."""


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--service",
    type=click.Choice([service.name for service in SERVICES]),
    help="Whose file it is; without, its keys say so.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="What the service gets as a flag, which wins over the file; may be repeated.",
)
@click.option("--strict", is_flag=True, help="Warnings fail the check, too.")
@json_option
def check(
    file: Path, service: str | None, settings: tuple[str, ...], strict: bool, as_json: bool
) -> None:
    """Say everything that is wrong with FILE, each with its line.

    The service's environment variables count as they would for the service. Nothing is opened,
    resolved or connected to. Exit codes: 0 the service takes it, 1 it does not.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {file}: {error}") from error
    overrides = parse_settings(settings, option="--set")
    try:
        kind = guess_service(service, text, file.name)
        checked: Checked[Any] = check_config(
            kind.config,
            text,
            environment_prefix=kind.environment_prefix,
            environment=environment_of(os.environ, kind),
            overrides=overrides,
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
def reference() -> None:
    """Print the page docs/configuration.md: every key of every service."""
    from aerobee.cli.config_reference import render_reference

    say(render_reference(SERVICES), keep="\n", nl=False)


def _print(file: Path, kind: ServiceKind, checked: Checked[Any]) -> None:
    for word, findings in (("error", checked.errors), ("warning", checked.warnings)):
        for finding in findings:
            where = f"{file}:{finding.line}" if finding.line else str(file)
            tell = remark if word == "error" else say
            tell(f"{where}: {word}: {finding.sentence}")
    if not checked.errors:
        say(f"{file}: the {kind.name} takes it ({counted(len(checked.keys), 'key')})")


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
    }
