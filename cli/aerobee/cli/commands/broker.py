"""`aerobee broker`: one broker in the foreground, and requests to a running one."""

from __future__ import annotations

from collections.abc import Callable

import click

from aerobee.broker.config import BrokerConfig
from aerobee.cli.completion import broker_names
from aerobee.cli.config_command import ConfigGroup
from aerobee.cli.event_loop import run
from aerobee.cli.options import json_option, timeout_option
from aerobee.cli.output import print_json, say
from aerobee.cli.target import Target, connection_options
from aerobee.cli.tls_options import tls_options
from aerobee.rpc.tls_config import TlsConfig
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
    "nameserver or etcd is away.",
)


@broker.command()
@click.option(
    "--broker",
    "address",
    metavar="HOST:PORT",
    default="127.0.0.1:10911",
    show_default=True,
    help="The broker to prepare; the command asks the broker itself, not a nameserver.",
)
@timeout_option(
    15_000, "How long the whole command may take, including the wait for a replica to get in sync."
)
@json_option
@tls_options
def drain(address: str, timeout_ms: int, as_json: bool, tls: TlsConfig | bool) -> None:
    """Hand a broker's group over before the broker is stopped.

    A master hands over to a replica in sync; the command returns once that replica is master and
    the former master follows it. Without anything to hand over it returns at once. Then stop the
    broker with SIGTERM.

    Exit code 4: no replica could take over in time. The broker can still be stopped and nothing is
    lost, but its group takes no messages until a replica in sync is back.
    """
    from aerobee.cli.drain import drain_broker
    from aerobee.rpc.tls import dialled_tls

    dialled = dialled_tls(tls)
    outcome = run(lambda: drain_broker(address, timeout_ms=timeout_ms, tls=dialled))
    if as_json:
        print_json(outcome.document())
    else:
        say(f"{address}: {outcome}")


@broker.command()
@click.argument("broker", shell_complete=broker_names)
@click.option("--to", "successor_id", type=click.IntRange(min=0), help="Id of the next master.")
@timeout_option(10_000, "How long the hand-over may take.")
@json_option
@connection_options
def handover(
    target: Target, broker: str, successor_id: int | None, timeout_ms: int, as_json: bool
) -> None:
    """Make another replica of the broker group BROKER its master.

    Writes pause until that replica has the whole log; nothing is lost. Without --to the present
    master chooses one of the replicas in sync.
    """
    done = target.administer(
        lambda admin: admin.brokers.hand_over(
            broker, successor_id=successor_id, timeout=timeout_ms / 1_000
        )
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
    else:
        say(
            f"{broker}: replica {done.master_id} is master in epoch {done.epoch}; writes paused "
            f"for {done.paused_ms} ms"
        )
