"""SIGHUP: the configuration is read again from where it came, and what is live takes effect.

Owns: which configuration counts now. A file that does not load changes nothing; keys that need a
restart are named, and stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import reduce
from typing import Generic, Protocol, TypeVar

from aerobee.runtime.config import Change, Loaded, keys_of
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
                "configuration refused, the present one stays",
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
