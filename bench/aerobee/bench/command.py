"""`aerobee bench`: measure this machine with a cluster of its own."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import uvloop
from rich.console import Console

from aerobee.bench import (
    brokers,
    cold_read,
    commits,
    delay,
    failover,
    filters,
    growth,
    idle_polls,
    index,
    replication_cluster,
    suite,
)
from aerobee.bench.audit import messages_speed, store_speed
from aerobee.bench.peer_names import PEER_NAMES, REMOTING, REMOTING_ALONE, V2, V2_ALONE
from aerobee.bench.report import Report
from aerobee.cli.failures import EnvironmentFailure
from aerobee.runtime.freed_memory import keep_freed_memory

if TYPE_CHECKING:
    from peers.table import Comparison

Run = Callable[[Report, suite.Load, suite.Say], Awaitable[None]]
RUNS: dict[str, Run] = {
    "produce": suite.run_produce,
    "consume": suite.run_consume,
    "latency": suite.run_latency,
    "recovery": suite.run_recovery,
    "many-queues": suite.run_many_queues,
    "index": index.run_index,
    "filters": filters.run_filters,
    "cold": cold_read.run_cold,
    "replication": replication_cluster.run_replication,
    "failover": failover.run_failover,
    "commits": commits.run_commits,
    "delay": delay.run_delay,
    "idle-polls": idle_polls.run_idle_polls,
    "brokers": brokers.run_brokers,
    "growth": growth.run_growth,
    "audit": store_speed.run_audit_stores,
    "audit-messages": messages_speed.run_audit_messages,
}
PEERS_ROUNDS = 3
COMPARED = ("peers", "v2", "remoting")
NAMES = textwrap.fill(
    f"WHAT is one of {', '.join(RUNS)}; all of these; or peers, which measures the named PEERS "
    f"beside Aerobee ({', '.join(PEER_NAMES)}; all but the last four by default); or v2, Apache "
    f"RocketMQ 5's gRPC API ({', '.join(V2)}; all by default), with Apache's proxy beside ours if "
    f"it is there; or remoting, RocketMQ's older protocol ({', '.join(REMOTING)}; both by "
    "default), with Apache's broker beside ours. "
    "Programs are fetched from their registries, only with --fetch.",
    78,
    break_on_hyphens=False,
)


@click.command(epilog=f"\b\n{NAMES}")
@click.argument(
    "what", metavar="[WHAT]", type=click.Choice([*RUNS, "all", *COMPARED]), default="all"
)
@click.argument("peers", metavar="[PEERS]...", type=click.Choice(PEER_NAMES), nargs=-1)
@click.option(
    "--body-bytes",
    type=click.IntRange(16, 4 << 20),
    default=1024,
    show_default=True,
    help="The size of each message body.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0.001, 100),
    default=1.0,
    help="Multiplies the load.  [default: 1]",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1_000),
    help="How often `failover` kills a master.  [default: 10]  Of `peers`: turns.  [default: 3]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--markdown", is_flag=True, help="Of `peers`: print the table for a page.")
@click.option("--fetch", is_flag=True, help="Of `peers`: fetch and build what is not there yet.")
def bench(
    what: str,
    peers: tuple[str, ...],
    body_bytes: int,
    scale: float,
    rounds: int | None,
    as_json: bool,
    markdown: bool,
    fetch: bool,
) -> None:
    """Measure produce, consume, latency, recovery and replication against a bare gRPC stream.

    Starts its own clusters in temporary folders, and stops them. The figures of one run are
    comparable with each other; across machines and times, only their ratios are.
    """
    keep_freed_memory()
    if what in COMPARED:
        comparison = _compare(
            what,
            tuple(dict.fromkeys(peers)),
            body_bytes=body_bytes,
            rounds=rounds or PEERS_ROUNDS,
            scale=scale,
            fetch=fetch,
        )
        _show(comparison, as_json=as_json, markdown=markdown)
        return
    if peers or markdown or fetch:
        raise click.UsageError(
            "PEERS, --markdown and --fetch are for `aerobee bench peers`, v2, remoting"
        )
    load = suite.Load(body_bytes=body_bytes).scaled(scale)
    if rounds is not None:
        load = replace(load, rounds=rounds)
    report = Report(f"{body_bytes}-byte bodies, one producer, one broker, one consumer")
    progress = Console(stderr=True)

    async def measure() -> None:
        for name in RUNS if what == "all" else (what,):
            with progress.status(name) as status:

                def say(step: str, *, name: str = name) -> None:
                    if progress.is_terminal:
                        status.update(f"{name}: {step}")
                    else:
                        print(f"{name}: {step}", file=sys.stderr, flush=True)

                await RUNS[name](report, load, say)

    uvloop.run(measure())
    if as_json:
        print(report.as_json())
    else:
        report.print_table(Console(width=150))


def _compare(
    what: str, peers: tuple[str, ...], *, body_bytes: int, rounds: int, scale: float, fetch: bool
) -> Comparison:
    of_one_protocol = {"v2": V2, "remoting": REMOTING}
    if others := set(peers) - set(of_one_protocol.get(what, PEER_NAMES)):
        raise click.UsageError(f"{min(others)} is for `aerobee bench peers`")
    try:
        from peers.rocketmq import RocketmqPrograms
        from peers.run import compare
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "peers":
            raise
        # The programs that load them, in three languages, are useless for operating a cluster.
        raise EnvironmentFailure(
            f"`aerobee bench {what}` needs a checkout (there: uv run aerobee bench {what}): the "
            "installed package has none of the programs that load other systems"
        ) from None
    needs_none = what == "v2" or (what == "remoting" and peers == REMOTING_ALONE)
    alone = needs_none and not fetch and not RocketmqPrograms().folder.exists()
    if what == "peers":
        default = tuple(name for name in PEER_NAMES if name not in (*V2[1:], *REMOTING))
    elif what == "remoting":
        default = REMOTING
    else:
        default = V2_ALONE if alone else V2
    measured = compare(
        peers or default,
        body_bytes=body_bytes,
        rounds=rounds,
        scale=scale,
        fetch=fetch,
        alone=alone,
        say=lambda step: print(step, file=sys.stderr, flush=True),
    )
    return uvloop.run(measured)


def _show(comparison: Comparison, *, as_json: bool, markdown: bool) -> None:
    if as_json:
        print(comparison.as_json())
    elif markdown:
        print(comparison.as_markdown())
    else:
        comparison.print_table(Console(width=150))
