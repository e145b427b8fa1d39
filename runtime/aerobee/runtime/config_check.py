"""Whether a service would accept a configuration: reports everything that is wrong with it at once.

Owns: finding all faults. `load_config` stops at the first one, as a starting service must; here a
rejected value is recorded and set back to its default, and the check continues. Each fault knows
its keys, and thus its lines in the file.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from aerobee.runtime.config import (
    Given,
    Key,
    RefusedConfig,
    build,
    convert,
    flatten,
    from_environment,
    keys_of,
    nearest,
)
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.machine import UsableMemory
from aerobee.runtime.toml_lines import lines_of

T = TypeVar("T")

# Stands in for a required key that only a flag will give; its value matters to no rule.
_STAND_INS: dict[Any, object] = {Path: Path(), str: "unset", int: 0}


@dataclass(frozen=True, slots=True)
class Risk:
    """Allowed settings with consequences that may surprise."""

    keys: tuple[str, ...]
    sentence: str
    """What may happen, and what to do about it."""


@runtime_checkable
class HasRisks(Protocol):
    """A configuration that knows which of its settings are risky, alone or together."""

    def risks(self) -> list[Risk]: ...


@runtime_checkable
class HasDerived(Protocol):
    """A configuration that derives settings that were not given from the process's memory."""

    def derived(self, memory: UsableMemory) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark about a file."""

    keys: tuple[str, ...]
    sentence: str
    line: int
    """The line in the file, counted from 1; 0: the problem is not in the file."""


@dataclass(frozen=True, slots=True)
class Checked(Generic[T]):
    """The result of checking a configuration."""

    errors: tuple[Finding, ...]
    """Reasons why a service would not start, in line order."""
    warnings: tuple[Finding, ...]
    """Settings with which it would start, but that deserve attention."""
    keys: tuple[str, ...]
    """The keys that the file sets."""
    derived: tuple[str, ...] = ()
    """The values of settings that depend on the process's memory."""


def check_config(
    kind: type[T],
    text: str,
    *,
    environment_prefix: str,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    memory: UsableMemory | None = None,
) -> Checked[T]:
    """Check the text of a file as a service of `kind` would, with its environment and flags, and
    with this memory, if known.

    Raises:
        InvalidArgument: the text is not TOML.
    """
    return _Check(kind, text, environment_prefix).run(environment or {}, overrides or {}, memory)


def unknown_keys(kind: type[Any], text: str) -> int:
    """How many keys of the text do not belong to `kind`; for guessing whose file it is.

    Raises:
        InvalidArgument: the text is not TOML.
    """
    keys = {key.name: key for key in keys_of(kind)}
    return sum(name not in keys for name, _ in flatten(_parse(text), "", keys))


class _Check(Generic[T]):
    def __init__(self, kind: type[T], text: str, environment_prefix: str) -> None:
        self._kind = kind
        self._document = _parse(text)
        self._lines = lines_of(text)
        self._prefix = environment_prefix
        self._keys = {key.name: key for key in keys_of(kind)}
        self._given: dict[str, Given] = {}
        self._errors: list[Finding] = []
        self._warnings: list[Finding] = []

    def run(
        self,
        environment: Mapping[str, str],
        overrides: Mapping[str, str],
        memory: UsableMemory | None,
    ) -> Checked[T]:
        self._given.update(self._from_file())
        in_file = tuple(self._given)
        try:
            self._given.update(from_environment(self._keys, self._prefix, environment))
        except InvalidArgument as error:
            self._error((), str(error))
        for name, value in overrides.items():
            if name in self._keys:
                self._given[name] = Given(value, "--set", is_text=True)
            else:
                self._error((), f"unknown key {name!r} of --set{nearest(name, self._keys)}")
        self._convert_all()
        self._stand_in()
        config = self._build()
        if isinstance(config, HasRisks):
            for risk in config.risks():
                self._warnings.append(self._finding(risk.keys, risk.sentence))
        derived: list[str] = []
        if memory is not None and isinstance(config, HasDerived):
            derived = config.derived(memory)
        return Checked(_sorted(self._errors), _sorted(self._warnings), in_file, tuple(derived))

    def _from_file(self) -> Iterator[tuple[str, Given]]:
        for name, value in flatten(self._document, "", self._keys):
            if name in self._keys:
                yield name, Given(value, "the file", is_text=False)
            else:
                self._error((name,), f"unknown key {name!r}{nearest(name, self._keys)}")

    def _convert_all(self) -> None:
        for name, given in list(self._given.items()):
            try:
                convert(self._keys[name], given)
            except InvalidArgument as error:
                del self._given[name]
                self._error((name,), str(error))

    def _stand_in(self) -> None:
        for key in self._missing():
            self._warnings.append(
                Finding(
                    (key.name,),
                    f"{key.name} is not set here: give it as {key.flag_name()} or as "
                    f"{key.environment_name(self._prefix)}",
                    0,
                )
            )
            self._given[key.name] = Given(_STAND_INS[key.annotation], "default", is_text=False)

    def _missing(self) -> list[Key]:
        return [
            key
            for key in self._keys.values()
            if key.default is dataclasses.MISSING and key.name not in self._given
        ]

    def _build(self) -> T | None:
        """The best configuration that can be built; each round records one rejection."""
        while True:
            try:
                return build(self._kind, "", self._keys, self._given)
            except RefusedConfig as error:
                in_file = all(name in self._lines for name in error.keys)
                self._error(error.keys, error.sentence if in_file else str(error))
                if not error.keys:
                    return None  # unclear which value to set back
                for name in error.keys:
                    del self._given[name]
                if self._missing():
                    return None

    def _error(self, keys: tuple[str, ...], sentence: str) -> None:
        self._errors.append(self._finding(keys, sentence))

    def _finding(self, keys: tuple[str, ...], sentence: str) -> Finding:
        lines = [self._lines[name] for name in keys if name in self._lines]
        return Finding(keys, sentence, max(lines, default=0))


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: finding.line))


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"this is not valid TOML: {error}") from error
