"""`aerobee broker`: one broker in the foreground, and what one asks of a running one."""

from __future__ import annotations

from collections.abc import Callable

import click

from aerobee.broker.config import BrokerConfig
from aerobee.cli.config_command import ConfigGroup
from aerobee.cli.event_loop import run
from aerobee.cli.output import json_option, print_json, say
from aerobee.cli.target import Target, target_options
from aerobee.runtime.config import Loaded


def _run(loaded: Loaded[BrokerConfig], on_hangup: Callable[[], None] | None) -> int:
    from aerobee.broker.app import run_broker

    return run_broker(loaded.config, on_hangup=on_hangup)


broker = ConfigGroup(
    "broker",
    BrokerConfig,
    environment_prefix="AEROBEE_BROKER",
    run=_run,
    help="Run one broker until SIGTERM or Ctrl-C. It serves from its own store while the "
    "nameserver or etcd are away.",
)


@broker.command()
@click.option(
    "--broker",
    "address",
    metavar="HOST:PORT",
    default="127.0.0.1:10911",
    show_default=True,
    help="The broker that is to be stopped; it is asked itself, not a nameserver.",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    default=15_000,
    show_default=True,
    help="For all of it, also for a replica that is about to be in sync.",
)
@json_option
def drain(address: str, timeout_ms: int, as_json: bool) -> None:
    """Make a broker one that can be stopped without a pause: hand its group over.

    A master of a group of several replicas hands over to one that is in sync, and this returns when
    that one acts and the former master follows it. Where there is nothing to hand over, it returns
    at once. What follows is SIGTERM.

    Exit code 4: nobody could take over in time. The broker can be stopped all the same and nothing
    is lost, but its group takes no messages until a replica in sync is back.
    """
    from aerobee.cli.drain import drain_broker

    outcome = run(lambda: drain_broker(address, timeout_ms=timeout_ms))
    if as_json:
        print_json(outcome.document())
    else:
        say(f"{address}: {outcome}")


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
        say(
            f"{broker}: replica {done.master_id} is master in epoch {done.epoch}; writes paused "
            f"for {done.paused_ms} ms"
        )

    run(main)
