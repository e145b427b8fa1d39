"""A client's defaults, and checks of what it is given: the same for all clients, and for the
commands.

Environment: AEROBEE_NAMESERVER and AEROBEE_CLUSTER. Credentials and TLS have their own variables
(docs/access.md, docs/tls.md).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TypeVar

from aerobee.runtime.errors import InvalidArgument

NAMESERVER_DEFAULT = "127.0.0.1:8081"
CLUSTER_DEFAULT = "aerobee"

C = TypeVar("C")


def nameservers_or_default(nameservers: str | Sequence[str] | None) -> str | tuple[str, ...]:
    """The given ones; else those of AEROBEE_NAMESERVER; else this machine's."""
    if nameservers is None:
        return os.environ.get("AEROBEE_NAMESERVER") or NAMESERVER_DEFAULT
    return nameservers if isinstance(nameservers, str) else tuple(nameservers)


def cluster_or_default(cluster: str | None) -> str:
    """The given one; else that of AEROBEE_CLUSTER; else `aerobee`."""
    if cluster is None:
        return os.environ.get("AEROBEE_CLUSTER") or CLUSTER_DEFAULT
    return cluster


def config_or_default(config: C | None, kind: type[C]) -> C:
    """The given one; else a client's default settings.

    >>> config_or_default("sync", dict)
    Traceback (most recent call last):
    ...
    aerobee.errors.InvalidArgument: config must be a dict, not a str
    """
    if config is None:
        return kind()
    if not isinstance(config, kind):
        raise InvalidArgument(f"config must be a {kind.__name__}, not a {type(config).__name__}")
    return config


def milliseconds(timeout: float) -> int:
    """A time in seconds as given by users, at least 1 ms.

    >>> milliseconds(2.5)
    2500
    >>> milliseconds(-1)
    Traceback (most recent call last):
    ...
    aerobee.errors.InvalidArgument: timeout must be a number of seconds, not -1
    """
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not math.isfinite(timeout) or timeout < 0:
        raise InvalidArgument(f"timeout must be a number of seconds, not {timeout!r}")
    return max(1, round(timeout * 1_000))


def check_whole_number(name: str, value: object, *, minimum: int) -> None:
    """Raises InvalidArgument unless the setting is an int of at least `minimum`: something that is
    not a number is as wrong as one out of range.

    >>> check_whole_number("linger_ms", "5", minimum=0)
    Traceback (most recent call last):
    ...
    aerobee.errors.InvalidArgument: linger_ms must be a whole number, not '5'
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} must be a whole number, not {value!r}")
    if value < minimum:
        raise InvalidArgument(f"{name} must be at least {minimum}, not {value}")
