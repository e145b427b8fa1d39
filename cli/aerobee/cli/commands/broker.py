"""`aerobee broker`: one broker, in the foreground."""

from __future__ import annotations

from aerobee.broker.config import BrokerConfig
from aerobee.cli.config_command import ConfigCommand
from aerobee.runtime.config import Loaded


def _run(loaded: Loaded[BrokerConfig]) -> int:
    from aerobee.broker.app import run_broker

    return run_broker(loaded.config)


broker = ConfigCommand(
    "broker",
    BrokerConfig,
    environment_prefix="AEROBEE_BROKER",
    run=_run,
    help="Run one broker until SIGTERM or Ctrl-C. It serves from its own store while the "
    "nameserver or etcd are away.",
)
