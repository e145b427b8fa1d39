"""`aerobee broker`: one broker in the foreground, and what one asks of a running one."""

from __future__ import annotations

import click

from aerobee.broker.config import BrokerConfig
from aerobee.cli.config_command import ConfigGroup
from aerobee.cli.event_loop import run
from aerobee.cli.output import json_option, print_json
from aerobee.cli.target import Target, target_options
from aerobee.runtime.config import Loaded


def _run(loaded: Loaded[BrokerConfig]) -> int:
    from aerobee.broker.app import run_broker

    return run_broker(loaded.config)


broker = ConfigGroup(
    "broker",
    BrokerConfig,
    environment_prefix="AEROBEE_BROKER",
    run=_run,
    help="Run one broker until SIGTERM or Ctrl-C. It serves from its own store while the "
    "nameserver or etcd are away.",
)


@broker.command()
@click.argument("broker")
@click.option("--to", "successor_id", type=click.IntRange(min=0), help="Id of the next master.")
@click.option("--timeout-ms", type=click.IntRange(min=1), default=10_000, show_default=True)
@json_option
@target_options
def handover(
    target: Target, broker: str, successor_id: int | None, timeout_ms: int, as_json: bool
) -> None:
    """Make another replica of the group BROKER its master.

    Writes pause until that one has everything; nothing is lost. Without --to the present master
    chooses among the replicas in sync.
    """

    async def main() -> None:
        from aerobee.client_core import Admin

        async with target.connect() as connection:
            done = await Admin(connection).hand_over(
                broker, successor_id=successor_id, timeout_ms=timeout_ms
            )
        if as_json:
            print_json(
                {
                    "broker": broker,
                    "masterId": done.master_id,
                    "epoch": done.epoch,
                    "pausedMs": done.paused_ms,
                }
            )
            return
        click.echo(
            f"{broker}: replica {done.master_id} is master in epoch {done.epoch}; writes paused "
            f"for {done.paused_ms} ms"
        )

    run(main)
