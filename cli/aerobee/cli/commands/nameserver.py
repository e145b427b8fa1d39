"""`aerobee nameserver`: one nameserver, in the foreground."""

from __future__ import annotations

from collections.abc import Callable

from aerobee.cli.config_command import ConfigCommand
from aerobee.nameserver.config import NameserverConfig
from aerobee.runtime.config import Loaded


def _run(loaded: Loaded[NameserverConfig], on_hangup: Callable[[], None] | None) -> int:
    from aerobee.nameserver.app import run_nameserver

    return run_nameserver(loaded.config, on_hangup=on_hangup)


nameserver = ConfigCommand(
    "nameserver",
    NameserverConfig,
    environment_prefix="AEROBEE_NAMESERVER",
    run=_run,
    help="Run one nameserver until SIGTERM or Ctrl-C. It stores nothing itself: its state is in "
    "etcd.",
)
