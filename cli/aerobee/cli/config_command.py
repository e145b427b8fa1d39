"""A service's command, made from its configuration class: one flag for every key.

So a key that a service gains is a flag, an environment variable and a line of the TOML file without
anything written here; what the help says about it is the sentence below the field in its class.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import os
import textwrap
import typing
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import click

from aerobee.runtime.config import Key, Loaded, keys_of, load_config
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import LogFormat, LogLevel, configure_logging

T = TypeVar("T")


class ConfigCommand(click.Command):
    """A command whose options are the keys of a configuration class."""

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        environment_prefix: str,
        run: Callable[[Loaded[T]], int],
        help: str,
        **attributes: Any,
    ) -> None:
        """`run` takes the loaded configuration and gives the exit code; the rest is click's."""
        keys = keys_of(kind)
        self._kind = kind
        self._key_by_parameter = {_parameter(key): key for key in keys}

        def callback(config: Path | None, log_format: str, log_level: str, **flags: Any) -> None:
            if click.get_current_context().invoked_subcommand is not None:
                return
            overrides = {self._key_by_parameter[name].name: text for name, text in flags.items()}
            try:
                loaded = load_config(
                    kind,
                    environment_prefix=environment_prefix,
                    file=config,
                    environment=_without(os.environ, environment_prefix),
                    overrides=overrides,
                )
            except InvalidArgument as error:
                raise click.UsageError(str(error)) from error
            configure_logging(log_format=LogFormat(log_format), level=LogLevel(log_level))
            if code := run(loaded):
                raise click.exceptions.Exit(code)

        super().__init__(
            name,
            callback=callback,
            params=[*_common_options(environment_prefix), *(_option(key) for key in keys)],
            help=f"{help}\n\nEach option is also a key of the --config file (`a.b = ...`) and an "
            f"environment variable {environment_prefix}_A_B; flags win over the environment, the "
            "environment wins over the file.",
            **attributes,
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Adds each field's own sentence, which is read from the source only for the help."""
        sentences = field_sentences(self._kind)
        for parameter in self.params:
            key = self._key_by_parameter.get(parameter.name or "")
            if key is not None and isinstance(parameter, click.Option):
                parameter.help = _help(sentences.get(key.name, ""), key)
        super().format_options(ctx, formatter)


class ConfigGroup(ConfigCommand, click.Group):
    """The same, with commands below it: without one of them, the service runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, invoke_without_command=True, **kwargs)


def field_sentences(kind: type[Any], prefix: str = "") -> dict[str, str]:
    """Dotted key -> what the source says of the field: the text below it, or its comment."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except OSError:
        return {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    lines = source.splitlines()
    found: dict[str, str] = {}
    for statement, below in itertools.pairwise([*definition.body, ast.Pass()]):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            found[prefix + statement.target.id] = " ".join(text.value.split())
        else:
            comment = lines[(statement.end_lineno or 1) - 1].partition("  # ")[2]
            found[prefix + statement.target.id] = comment
    annotations = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(annotations[field.name]):
            section = typing.cast("type[Any]", annotations[field.name])
            found.update(field_sentences(section, f"{prefix}{field.name}."))
    return found


def _common_options(environment_prefix: str) -> list[click.Parameter]:
    return [
        click.Option(
            ["--config"],
            type=click.Path(dir_okay=False, path_type=Path),
            envvar=f"{environment_prefix}_CONFIG",
            help="TOML file with any of the keys below.",
        ),
        click.Option(
            ["--log-format"],
            type=click.Choice([member.value for member in LogFormat]),
            default=LogFormat.TEXT.value,
            envvar="AEROBEE_LOG_FORMAT",
            show_default=True,
        ),
        click.Option(
            ["--log-level"],
            type=click.Choice([member.value for member in LogLevel]),
            default=LogLevel.INFO.value,
            envvar="AEROBEE_LOG_LEVEL",
            show_default=True,
        ),
    ]


def _option(key: Key) -> click.Option:
    """Text in, converted by the configuration itself, so that all sources obey one rule."""
    return click.Option([key.flag_name(), _parameter(key)], metavar=_metavar(key))


def _help(sentence: str, key: Key) -> str:
    default = "required" if key.default is dataclasses.MISSING else _shown(key.default)
    return f"{sentence}  [{default}]" if default else sentence


def _parameter(key: Key) -> str:
    return "key_" + key.name.replace(".", "__")


def _metavar(key: Key) -> str:
    names = {int: "INTEGER", float: "NUMBER", bool: "true|false", Path: "PATH", str: "TEXT"}
    if isinstance(key.annotation, type) and issubclass(key.annotation, StrEnum):
        return "|".join(member.value for member in key.annotation)
    return names.get(key.annotation, "TEXT")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"default: {','.join(str(item) for item in value)}" if value else ""
    if isinstance(value, bool):
        return "default: true" if value else "default: false"
    return "" if value is None else f"default: {value}"


def _without(environment: os._Environ[str], prefix: str) -> dict[str, str]:
    """The environment without the one variable under the prefix that is no key."""
    return {name: text for name, text in environment.items() if name != f"{prefix}_CONFIG"}
