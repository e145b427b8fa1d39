"""A service's command, made from its configuration class: one flag for every key.

So a key that a service gains is a flag, an environment variable and a line of the TOML file without
anything written here; what the help says about it is the sentence below the field in its class.

SIGHUP reads the configuration again, and what is live takes effect. A file that does not load
changes nothing; keys that need a restart are named, and stay as they are.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import reduce
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import click

from aerobee.cli.field_texts import FieldText, field_texts
from aerobee.runtime.config import Change, Key, Loaded, keys_of, load_config
from aerobee.runtime.config_check import Risk
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import LogConfig, configure_logging, log_event

log = logging.getLogger(__name__)


class ServiceConfig(Protocol):
    """What the configurations of all services have."""

    @property
    def log(self) -> LogConfig: ...

    def risks(self) -> list[Risk]: ...


T = TypeVar("T", bound=ServiceConfig)


class ConfigCommand(click.Command):
    """A command whose options are the keys of a configuration class."""

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        environment_prefix: str,
        run: Callable[[Loaded[T], Callable[[], None] | None], int],
        help: str,
        **attributes: Any,
    ) -> None:
        """`run` takes the loaded configuration and what SIGHUP is to call, if anything; it gives
        the exit code. The rest is click's."""
        keys = keys_of(kind)
        self._kind = kind
        self._key_by_parameter = {_parameter(key): key for key in keys}

        def callback(config: Path | None, **flags: Any) -> None:
            if click.get_current_context().invoked_subcommand is not None:
                return
            _fill_standard_files()
            overrides = {self._key_by_parameter[name].name: text for name, text in flags.items()}

            def load() -> Loaded[T]:
                return load_config(
                    kind,
                    environment_prefix=environment_prefix,
                    file=config,
                    environment=without_file_variable(os.environ, environment_prefix),
                    overrides=overrides,
                )

            try:
                loaded = load()
            except InvalidArgument as error:
                raise click.UsageError(str(error)) from error
            configure_logging(loaded.config.log)
            for risk in loaded.config.risks():
                log_event(log, "risky settings", level=logging.WARNING, why=risk.sentence)
            # A terminal that is closed sends SIGHUP, too, and means that all shall end. There is no
            # standard input for Python where it was closed at the start.
            on_terminal = sys.stdin is not None and sys.stdin.isatty()
            reload = Reload(loaded, load) if config and not on_terminal else None
            if code := run(loaded, reload):
                raise click.exceptions.Exit(code)

        super().__init__(
            name,
            callback=callback,
            params=[*_common_options(environment_prefix), *(_option(key) for key in keys)],
            help=f"{help}\n\nEach option is also a key in the --config file (`a.b = ...`) and an "
            f"environment variable {environment_prefix}_A_B. Flags win over the environment, which "
            "wins over the file.",
            **attributes,
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Adds each field's own sentence, which is read from the source only for the help."""
        texts = field_texts(self._kind)
        for parameter in self.params:
            key = self._key_by_parameter.get(parameter.name or "")
            if key is not None and isinstance(parameter, click.Option):
                parameter.help = _help(texts.get(key.name, FieldText()).sentence, key)
        super().format_options(ctx, formatter)


class ConfigGroup(ConfigCommand, click.Group):
    """The same, with commands below it: without one of them, the service runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, invoke_without_command=True, **kwargs)


def _common_options(environment_prefix: str) -> list[click.Parameter]:
    return [
        click.Option(
            ["--config"],
            type=click.Path(dir_okay=False, path_type=Path),
            envvar=f"{environment_prefix}_CONFIG",
            help="A TOML file with any of the keys below; SIGHUP makes the service read it again.",
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


def _fill_standard_files() -> None:
    """Opens the null device for each one that was closed. Otherwise a socket gets its number:
    prints would go into the socket, and the event loop would refuse to close it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, this one


def without_file_variable(environment: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The environment without the one variable under the prefix that is no key: the file's."""
    return {name: text for name, text in environment.items() if name != f"{prefix}_CONFIG"}


class Reload(Generic[T]):
    """Call it to read the configuration again; from one thread at a time."""

    def __init__(self, loaded: Loaded[T], load: Callable[[], Loaded[T]]) -> None:
        self._started = self._live = loaded.config
        self._load = load

    def __call__(self) -> None:
        try:
            found = self._load().config
        except InvalidArgument as error:
            log_event(
                log,
                "configuration refused; the present one stays",
                level=logging.ERROR,
                reason=error,
            )
            return
        waiting = _changed(self._started, found, live=False)
        changed = _changed(self._live, found, live=True)
        # The live keys are those of the log.
        configure_logging(found.log)
        self._live = found
        log_event(
            log,
            "configuration read again",
            level=logging.WARNING if waiting else logging.INFO,
            changed=changed,
            restart_needed_for=waiting,
        )


def _changed(before: ServiceConfig, after: ServiceConfig, *, live: bool) -> list[str]:
    """The keys that differ, of those that are live or of those that are not."""
    return [
        key.name
        for key in keys_of(type(after))
        if (key.change is Change.LIVE) == live
        and _value(before, key.name) != _value(after, key.name)
    ]


def _value(config: object, key: str) -> object:
    return reduce(getattr, key.split("."), config)
