"""`aerobee demo`: the demo on a cluster of its own, in a temporary folder."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console

from aerobee.cli.demo.flights import Flight, flights_archive, read_flights
from aerobee.cli.demo.settings import TRANSACTION_SETTINGS, DemoSettings
from aerobee.cli.event_loop import run
from aerobee.cli.failures import FAILED
from aerobee.cli.local_cluster.child import ChildEnded
from aerobee.cli.local_cluster.cluster import running_cluster
from aerobee.cli.local_cluster.plan import REPLICAS_MAX, ClusterPlan
from aerobee.cli.local_cluster.ports import free_ports
from aerobee.runtime.clock import SystemClock, system_random

CLUSTER = "demo"
SEGMENT_BYTES = 64 * 1024 * 1024
"""Small: the demo writes some 40 MB to each broker, and temporary folders may be in memory."""


@click.command()
@click.option(
    "--flights",
    "flights_max",
    type=click.IntRange(min=1_000),
    help="Send only this many flights.  [default: all 336,776]",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, REPLICAS_MAX),
    default=1,
    show_default=True,
    help="Processes in each broker group; with more than one, a master is also killed.",
)
@click.option(
    "--transactions",
    is_flag=True,
    help="Also book flights in transactions, with a producer that is killed.",
)
@click.option("--keep", is_flag=True, help="Keep the folder with the stores, notes and logs.")
def demo(flights_max: int | None, replicas: int, transactions: bool, keep: bool) -> None:
    """Send real events through a real cluster, kill a consumer, and prove that nothing is missing.

    The cluster has two broker groups. One producer sends; three consumers share one group, and one
    of them is killed halfway; a second group reads two carriers by tag. A third group fails at one
    message until it is a dead letter, which is then sent again. Takes about a minute.
    """
    settings = DemoSettings(flights_max=flights_max, replicas=replicas, transactions=transactions)
    console = Console()
    with _folder(keep, console) as folder:
        proven = run(lambda: _demo(settings, folder, console))
    if not proven:
        raise click.exceptions.Exit(FAILED)


async def _demo(settings: DemoSettings, folder: Path, console: Console) -> bool:
    clock, chance = SystemClock(), system_random()
    started_s = clock.monotonic_s()
    plan = ClusterPlan(
        data=folder / "cluster",
        cluster=CLUSTER,
        ports=free_ports(brokers=settings.brokers, replicas=settings.replicas, chance=chance),
        broker_settings={
            "store.segment_bytes": str(SEGMENT_BYTES),
            **({"replication.mode": "sync_master"} if settings.replicas > 1 else {}),
            **(TRANSACTION_SETTINGS if settings.transactions else {}),
        },
    )

    def on_ended(ended: ChildEnded) -> None:
        console.print(ended.sentence(), style="red", markup=False, soft_wrap=True)

    async with running_cluster(
        plan, clock=clock, chance=chance, on_started=lambda _: None, on_ended=on_ended
    ) as cluster:
        flights = await asyncio.to_thread(_load, settings)
        await cluster.wait_serving()
        # What needs gRPC is imported after `wait_serving`, which prepares for it.
        from aerobee.cli.demo.killing import BrokerKilling
        from aerobee.cli.demo.report import print_report
        from aerobee.cli.demo.story import Stage, play

        console.print(
            f"{len(flights):,} flights; a cluster of {settings.brokers} broker groups serves "
            f"after {clock.monotonic_s() - started_s:.1f} s in {plan.data}",
            soft_wrap=True,
            highlight=False,
        )
        outcome = await play(
            Stage(
                settings=settings,
                flights=flights,
                nameserver=plan.nameserver_address,
                cluster=plan.cluster,
                folder=folder,
                console=console,
                clock=clock,
                broker_killing=BrokerKilling(cluster) if settings.replicas > 1 else None,
            )
        )
    print_report(console, outcome)
    console.print(f"the whole demo took {clock.monotonic_s() - started_s:.0f} s", highlight=False)
    return outcome.is_proven


def _load(settings: DemoSettings) -> list[Flight]:
    flights = list(read_flights(flights_archive()))
    return flights if settings.flights_max is None else flights[: settings.flights_max]


@contextlib.contextmanager
def _folder(keep: bool, console: Console) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aerobee-demo-"))
    try:
        yield folder
    finally:
        if keep:
            console.print(f"kept: {folder}", soft_wrap=True, highlight=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)
