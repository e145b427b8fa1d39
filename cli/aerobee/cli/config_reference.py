"""Every key of every service, in Markdown; docs/configuration.md has it in parts.

Owns: the layout. Everything that it says of a key is written beside its field, so the page cannot
say more or less than the services; a test fails when it must be generated again.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aerobee.broker.config import BrokerConfig
from aerobee.cli.field_texts import FieldText, field_texts, unit_of
from aerobee.nameserver.config import NameserverConfig
from aerobee.runtime.config import Change, Key, keys_of

_HEAD = """\
# Configuration

Every setting of the nameserver and the broker. Settings of clients are in
[producing](producing.md#settings) and [consuming](consumer-groups.md#settings), those of
`aerobee audit` in [the audit's page](audit.md).

Set a key in a TOML file (`--config FILE`), where its sections are tables, as an environment
variable, or as a flag. Flags take precedence over the environment, the environment over the file,
and the file over the defaults. A key that does not exist is an error that names the nearest one.

| | nameserver | broker |
|---|---|---|
| `log.level` as a flag | `--log-level` | `--log-level` |
| in the environment | `AEROBEE_NAMESERVER_LOG_LEVEL` | `AEROBEE_BROKER_LOG_LEVEL` |
| the file itself | `AEROBEE_NAMESERVER_CONFIG` | `AEROBEE_BROKER_CONFIG` |

Write lists with commas in flags and variables, and as arrays in the file.

The column **changes** says when a new value takes effect. `live`: when SIGHUP makes the process
read its file again ([logs](logs.md#changing-the-level-while-a-service-runs)). `restart`: at the
next start. `never`: the value must stay what it was when the store folder was created.

Check a file before a service reads it. The check reports everything that is wrong, with line
numbers, and settings that are risky together:

```console
$ printf 'cluster = "aerobee"\\nlog.level = "warning"\\n' > nameserver.toml
$ aerobee config check nameserver.toml --service nameserver
nameserver.toml: the nameserver accepts it (2 keys)
```

`--set KEY=VALUE` adds a flag that the service gets. The check also reads the service's environment
variables, so in a pod it sees what the service sees. The exit code is 0 if the service accepts the
file, 1 if not; with `--strict`, warnings count as errors.

`aerobee config reference` prints all settings, from the source of the services. To change a text,
change it there.
"""

_TABLE = (
    "| key | default | unit | changes | what it is | what it costs |\n|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """A service whose configuration can be shown and checked."""

    name: str
    """Also of its command."""
    config: type[Any]
    environment_prefix: str


SERVICES = (
    ServiceKind("nameserver", NameserverConfig, "AEROBEE_NAMESERVER"),
    ServiceKind("broker", BrokerConfig, "AEROBEE_BROKER"),
)


def render_reference(services: Sequence[ServiceKind]) -> str:
    """The whole page."""
    return _HEAD + "".join(_service(service) for service in services)


def _service(service: ServiceKind) -> str:
    texts = field_texts(service.config)
    parts = [f"\n## {service.name.capitalize()}\n"]
    for section, kind, keys in _sections(service.config):
        if section:
            parts.append(f"\n### {service.name.capitalize()}: `{section}`\n")
        parts.append(f"\n{_about(kind)}\n\n{_TABLE}")
        parts += [_row(key, texts.get(key.name, FieldText())) for key in keys]
    return "".join(parts)


def _sections(kind: type[Any], prefix: str = "") -> Iterator[tuple[str, type[Any], list[Key]]]:
    """Each section with its own keys, in the order of the fields; sections inside come after."""
    own = [key for key in keys_of(kind) if "." not in key.name]
    named = [dataclasses.replace(key, name=prefix + key.name) for key in own]
    yield prefix.removesuffix("."), kind, named
    annotations = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(annotations[field.name]) and field.metadata.get("key", True):
            section = typing.cast("type[Any]", annotations[field.name])
            yield from _sections(section, f"{prefix}{field.name}.")


def _about(kind: type[Any]) -> str:
    """The first paragraph of a class's docstring."""
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def _row(key: Key, text: FieldText) -> str:
    cells = (
        f"`{key.name}`",
        _default(key.default),
        unit_of(key, text),
        key.change.value if key.change is not Change.LIVE else "**live**",
        text.sentence,
        text.costs,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(value: object) -> str:
    """A default as a file would have it; of the machine's address nothing."""
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(_default(item) for item in value)
    if value is None or value == "":
        return ""
    return f"`{value}`" if isinstance(value, str) else str(value)
