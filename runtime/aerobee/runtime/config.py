"""A service's configuration: a frozen dataclass, filled from file, environment and flags.

Owns: merging sources and converting values; the dataclass itself decides which values are allowed,
in `__post_init__` (see `require`). Later sources win: defaults, TOML file, environment, flags. An
unknown key is an error that names the nearest known one, because a misspelt option that is silently
ignored can cost someone a night.

A key is a field's path joined by dots (`flush.mode`). In the file, sections are tables; in the
environment the key is upper case, joined by `_`, after the service's prefix
(`AEROBEE_BROKER_FLUSH_MODE`). Types: int, float, bool, str, StrEnum, Path, tuple[T, ...], T | None,
and nested dataclasses. Environment and flag values are text; tuples are comma-separated there.

A field's metadata may add to this: `{"key": False}`: the program fills it, and it has no key;
`{"change": Change.LIVE}`: when a changed value takes effect; `{"environment": "AEROBEE_X"}`: a
variable shared by several services; the service's own takes precedence.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from aerobee.runtime.errors import InvalidArgument

DEFAULT_ORIGIN = "default"
FLAG_ORIGIN = "flag"

T = TypeVar("T")

# Kubernetes sets these for every Service, whether wanted or not: AEROBEE_BROKER_SERVICE_HOST,
# AEROBEE_BROKER_PORT_10911_TCP_ADDR. They are not spelling mistakes.
_KUBERNETES_LINK = re.compile(r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP).*)?)")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class Change(StrEnum):
    """When a changed value of a key takes effect."""

    LIVE = "live"  # SIGHUP: the file is read again
    RESTART = "restart"  # the next start; the default for a key
    NEVER = "never"  # it must stay as it was when the data was created


@dataclass(frozen=True, slots=True)
class Key:
    """One settable value of a configuration class."""

    name: str
    """Dotted path, for example `flush.mode`."""
    annotation: Any
    """The field's type, resolved."""
    default: object
    """Its default, or dataclasses.MISSING if it is required."""
    change: Change = Change.RESTART
    """When a changed value takes effect."""
    shared_variable: str = ""
    """An environment variable, shared by several services, that also sets it."""

    def environment_name(self, prefix: str) -> str:
        return f"{prefix}_{self.name.replace('.', '_')}".upper()

    def flag_name(self) -> str:
        return "--" + self.name.replace(".", "-").replace("_", "-")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A configuration and where each of its values came from."""

    config: T
    origins: Mapping[str, str]
    """Key -> `default`, the file's path, the environment variable's name, or the flag's name."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as given by a source."""

    value: object
    origin: str
    is_text: bool


class RefusedConfig(InvalidArgument):
    """Values that a configuration class rejects."""

    def __init__(self, sentence: str, keys: Sequence[str], given: Mapping[str, Given]) -> None:
        """`keys`: the keys that were set and that the message is about."""
        origins = ", ".join(f"{name} is set by {given[name].origin}" for name in keys)
        super().__init__(f"{sentence}; {origins}" if origins else sentence)
        self.sentence = sentence
        self.keys = tuple(keys)


def require(condition: bool, message: str, value: object) -> None:
    """For `__post_init__`: raises InvalidArgument that says what is wrong with `value`."""
    if not condition:
        raise InvalidArgument(f"{message} (it is {value!r})")


def keys_of(kind: type[Any]) -> tuple[Key, ...]:
    """All settable values of a configuration class, depth first, in field order."""
    return tuple(_walk(kind, ""))


def load_config(
    kind: type[T],
    *,
    environment_prefix: str,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Loaded[T]:
    """Build `kind` from its defaults, `file`, `environment` and `overrides`; later ones win.

    Args:
        environment_prefix: for example `AEROBEE_BROKER`, without the last underscore.
        environment: usually os.environ; None reads nothing.
        overrides: dotted key -> text or a value of the field's type; None values are skipped, so
            that a command line can hand over all of its options.

    Raises:
        InvalidArgument: a file that cannot be read or parsed, an unknown key, a value of the wrong
            type, a missing value, or one that the dataclass refuses.
    """
    keys = {key.name: key for key in keys_of(kind)}
    given: dict[str, Given] = {}
    if file is not None:
        given.update(_from_file(keys, file))
    if environment is not None:
        given.update(from_environment(keys, environment_prefix, environment))
    for name, value in (overrides or {}).items():
        if value is not None:
            key = _known(keys, name, "the command line")
            given[name] = Given(value, key.flag_name(), isinstance(value, str))
    _check_complete(keys, given, environment_prefix)
    config = build(kind, "", keys, given)
    origins = {name: given[name].origin if name in given else DEFAULT_ORIGIN for name in keys}
    return Loaded(config, origins)


def _walk(kind: type[Any], prefix: str, base: object | None = None) -> Iterator[Key]:
    """The keys below `prefix`; `base` is a section's default, which supplies their defaults."""
    annotations = typing.get_type_hints(kind)
    for field in _settable_fields(kind):
        name = prefix + field.name
        annotation = annotations[field.name]
        default = _default_of(field) if base is None else getattr(base, field.name)
        if dataclasses.is_dataclass(annotation):
            section = typing.cast("type[Any]", annotation)
            section_base = None if default is dataclasses.MISSING else default
            yield from _walk(section, name + ".", section_base)
        else:
            more = field.metadata
            change = more.get("change", Change.RESTART)
            yield Key(name, annotation, default, change, more.get("environment", ""))


def _settable_fields(kind: type[Any]) -> Iterator[dataclasses.Field[Any]]:
    return (field for field in dataclasses.fields(kind) if field.metadata.get("key", True))


def _default_of(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _from_file(keys: Mapping[str, Key], file: Path) -> Iterator[tuple[str, Given]]:
    import tomllib  # Clients have settings but no such files.

    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InvalidArgument(
            f"cannot read the configuration file {file}: {error.strerror}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{file} is not valid TOML: {error}") from error
    for name, value in flatten(document, "", keys):
        _known(keys, name, str(file))
        yield name, Given(value, str(file), is_text=False)


def flatten(
    table: Mapping[str, Any], prefix: str, keys: Mapping[str, Key]
) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        path = prefix + name
        if isinstance(value, dict) and path not in keys:
            if not any(known.startswith(path + ".") for known in keys):
                yield path, value
            yield from flatten(value, path + ".", keys)
        else:
            yield path, value


def from_environment(
    keys: Mapping[str, Key], prefix: str, environment: Mapping[str, str]
) -> Iterator[tuple[str, Given]]:
    by_variable = {key.environment_name(prefix): key for key in keys.values()}
    assert len(by_variable) == len(keys), "two keys share one environment variable"
    for common in (key for key in keys.values() if key.shared_variable in environment):
        text = environment[common.shared_variable]
        yield common.name, Given(text, common.shared_variable, is_text=True)
    for variable, text in environment.items():
        if not variable.startswith(prefix.upper() + "_"):
            continue
        key = by_variable.get(variable)
        if key is not None:
            yield key.name, Given(text, variable, is_text=True)
        elif _KUBERNETES_LINK.fullmatch(variable[len(prefix) + 1 :]) is None:
            raise InvalidArgument(
                f"unknown environment variable {variable}{nearest(variable, by_variable)}"
            )


def _known(keys: Mapping[str, Key], name: str, where: str) -> Key:
    key = keys.get(name)
    if key is None:
        raise InvalidArgument(f"unknown key {name!r} in {where}{nearest(name, keys)}")
    return key


def nearest(name: str, known: Mapping[str, object]) -> str:
    import difflib

    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if not matches:
        # A right name in the wrong section does not resemble the full key.
        last = name.rpartition(".")[2]
        matches = [key for key in known if key.rpartition(".")[2] == last]
    return f"; did you mean {matches[0]!r}?" if matches else f"; known are: {', '.join(known)}"


def _check_complete(keys: Mapping[str, Key], given: Mapping[str, Given], prefix: str) -> None:
    for key in keys.values():
        if key.default is dataclasses.MISSING and key.name not in given:
            raise InvalidArgument(
                f"{key.name} is not set: give it as {key.flag_name()}, as "
                f"{key.environment_name(prefix)} or in the configuration file"
            )


def build(kind: type[T], prefix: str, keys: Mapping[str, Key], given: Mapping[str, Given]) -> T:
    """One dataclass from the keys' defaults and the given values; sections first."""
    annotations = typing.get_type_hints(kind)
    arguments: dict[str, object] = {}
    for field in _settable_fields(kind):
        name = prefix + field.name
        annotation = annotations[field.name]
        if dataclasses.is_dataclass(annotation):
            section = typing.cast("type[Any]", annotation)
            arguments[field.name] = build(section, name + ".", keys, given)
        else:
            key = keys[name]
            arguments[field.name] = convert(key, given[name]) if name in given else key.default
    try:
        return kind(**arguments)
    except (ValueError, InvalidArgument) as error:
        raise RefusedConfig(str(error), _named(str(error), prefix, given), given) from error


def _named(message: str, prefix: str, given: Mapping[str, Given]) -> list[str]:
    """The keys of a section that a message mentions; for keys further down, and at the top, only
    whole paths count, because many sections have a `listen`."""
    begin = r"\b" if prefix else r"(?<![\w.])"
    return [
        name
        for name in given
        if name.startswith(prefix)
        and re.search(rf"{begin}{re.escape(name.removeprefix(prefix))}\b", message)
    ]


def convert(key: Key, given: Given) -> object:
    try:
        return _convert_to(key.annotation, given.value, given.is_text)
    except ValueError as error:
        raise InvalidArgument(
            f"{key.name} cannot be {given.value!r} (set by {given.origin}): {error}"
        ) from None


def _convert_to(annotation: Any, value: object, is_text: bool) -> object:
    """`value` as `annotation`; raises ValueError with what was expected."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(annotation) if part is not types.NoneType]
        return None if value is None else _convert_to(inner[0], value, is_text)
    if origin is tuple:
        return _convert_tuple(typing.get_args(annotation), value, is_text)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return _convert_enum(annotation, value)
    if annotation is Path and isinstance(value, str | Path):
        return Path(value).expanduser()
    if is_text and isinstance(value, str):
        return _parse_text(annotation, value)
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is annotation:
        return value
    raise ValueError(f"expected {_type_name(annotation)}, not {type(value).__name__}")


def _convert_tuple(parts: Sequence[Any], value: object, is_text: bool) -> tuple[object, ...]:
    if len(parts) != 2 or parts[1] is not Ellipsis:
        raise TypeError("configuration tuples are written tuple[T, ...]")
    if isinstance(value, str) and is_text:
        value = [item.strip() for item in value.split(",") if item.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of {_type_name(parts[0])}")
    return tuple(_convert_to(parts[0], item, is_text) for item in value)


def _convert_enum(annotation: type[StrEnum], value: object) -> StrEnum:
    if isinstance(value, str):
        for member in annotation:
            if value.casefold() in (member.value.casefold(), member.name.casefold()):
                return member
    raise ValueError(f"expected one of {', '.join(member.value for member in annotation)}")


def _parse_text(annotation: Any, text: str) -> object:
    if annotation is str:
        return text
    if annotation is bool:
        if text.casefold() in _TRUE:
            return True
        if text.casefold() in _FALSE:
            return False
        raise ValueError("expected true or false")
    if annotation in (int, float):
        try:
            return annotation(text)
        except ValueError:
            raise ValueError(f"expected {_type_name(annotation)}") from None
    raise TypeError(f"{annotation!r} is not a type that configurations can have")


def _type_name(annotation: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))
