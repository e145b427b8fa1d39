"""The services whose configuration can be shown and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aerobee.broker.config import BrokerConfig
from aerobee.nameserver.config import NameserverConfig
from aerobee.runtime.config_check import unknown_keys
from aerobee.runtime.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """One service, as its command makes it."""

    name: str
    """Of its command, too."""
    config: type[Any]
    environment_prefix: str


SERVICES = (
    ServiceKind("nameserver", NameserverConfig, "AEROBEE_NAMESERVER"),
    ServiceKind("broker", BrokerConfig, "AEROBEE_BROKER"),
)


def guess_service(name: str | None, text: str, file_name: str) -> ServiceKind:
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
            "its keys do not say whose file this is; give --service "
            + " or --service ".join(kind.name for kind in least)
        )
    return (named or least)[0]


def environment_of(environment: Mapping[str, str], kind: ServiceKind) -> dict[str, str]:
    """Without the one variable under the prefix that is no key."""
    own = f"{kind.environment_prefix}_CONFIG"
    return {name: text for name, text in environment.items() if name != own}
