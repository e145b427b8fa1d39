"""All long campaigns, one after the other: `make proof`.

Each is a target of the Makefile, and can be run alone. A campaign that fails does not keep the
others from running; the end tells which failed, and the exit code is 1 then.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Campaign:
    """A target of the Makefile, and about how long it takes on two cores."""

    target: str
    minutes: int
    what: str


CAMPAIGNS = (
    Campaign("search", 20, "property tests with random examples, twenty times as many"),
    Campaign("mutants", 5, "known errors in a copy of the product, each caught by its tests"),
    Campaign("power-cuts", 25, "100,000 lives of a store, each ended by a power failure"),
    Campaign("simulation", 65, "200,000 lives of a replicated cluster in virtual time"),
    Campaign("timer-simulation", 20, "100,000 lives of a broker's timers, over logs that are cut"),
    Campaign("send-back-simulation", 12, "100,000 lives of messages that fail and come again"),
    Campaign("pop-simulation", 15, "100,000 lives of messages that are received by POP"),
    Campaign("torture", 15, "200 rounds of kill -9 under load with synchronous flush"),
    Campaign("failover", 30, "100 fail-overs of real processes under load"),
    Campaign(
        "fuzz", 15, "mutated byte streams against the gRPC server, odd requests of Apache's API"
    ),
    Campaign("fuzz-ports", 45, "fuzzed requests and HTTP/2 attacks against all ports of clusters"),
    Campaign("soak", 31, "the gRPC core at half load, among clients that cancel, hang, are killed"),
    Campaign("clients-test", 8, "gRPC clients of five languages against our server, and back"),
    Campaign(
        "apache-test", 25, "a folder goes from Apache's broker to ours and back, with kill -9"
    ),
    Campaign("long", 15, "tests of minutes, of which the suite has a shorter form"),
    Campaign(
        "audit-proof", 6, "audits of damaged stores and of a busy cluster, once on Spark, too"
    ),
    Campaign("audit-damages", 12, "1,000 random damages of stores, each found or harmless"),
    Campaign("audit-motion", 15, "100 audits of a healthy cluster that is never at rest"),
    Campaign("k8s-test", 25, "the manifests on a real API server, the pods in containers"),
    Campaign("procedures", 20, "every page of docs/operations, carried out"),
)


def run_all(campaigns: Sequence[Campaign], run: Callable[[str], int]) -> int:
    """Run each target with `run`, which returns an exit code. 0 if all succeeded, else 1."""
    total = sum(campaign.minutes for campaign in campaigns)
    print(f"{len(campaigns)} campaigns, about {total} minutes on two cores:")
    for campaign in campaigns:
        print(f"  make {campaign.target:<16} about {campaign.minutes:>3} min   {campaign.what}")
    results = []
    for campaign in campaigns:
        print(f"\n=== make {campaign.target}: about {campaign.minutes} min", flush=True)
        began = time.monotonic()
        status = run(campaign.target)
        results.append((campaign, status, (time.monotonic() - began) / 60))
    print("\n=== all campaigns have run")
    for campaign, status, minutes in results:
        ending = "passed" if status == 0 else f"FAILED, exit code {status}"
        print(f"  make {campaign.target:<16} {minutes:>6.1f} min   {ending}")
    return int(any(status != 0 for _, status, _ in results))


def make(target: str) -> int:
    return subprocess.call(["make", "--no-print-directory", target], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(run_all(CAMPAIGNS, make))
