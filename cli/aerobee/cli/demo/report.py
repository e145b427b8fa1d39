"""What the demo has to say at the end: verdicts, repetitions, rates, ownership, lag.

Every number is counted from what consumers wrote down or asked from the brokers; this file only
puts them into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aerobee.cli.demo.bookings import Booked, booking_lines
from aerobee.cli.demo.proof import Verdict
from aerobee.cli.demo.refunds import Refunded


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many messages one process handled in how many seconds."""

    who: str
    messages: int
    elapsed_s: float

    @property
    def per_second(self) -> float:
        return self.messages / self.elapsed_s if self.elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One queue of a group: who holds it, and how far it is."""

    group: str
    queue: str
    holder: str
    committed: int
    end: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that the report needs."""

    verdicts: dict[str, Verdict]
    """By group."""
    sent: int
    paces: Sequence[Pace]
    holdings: Sequence[Holding]
    """Before the consumers were stopped."""
    lag_after_close: dict[str, int | None]
    """By group, after the remaining consumers had committed and left."""
    killed: str
    commit_interval_ms: int
    takeover_s: float | None
    """From the kill to the first message of a queue that the killed consumer had held."""
    refunded: Refunded
    retried_batches: int
    booked: Booked | None = None
    """With transactions."""
    killed_master: str | None = None
    """The broker that was killed, with replicas."""

    @property
    def is_proven(self) -> bool:
        return (
            all(verdict.is_proven for verdict in self.verdicts.values())
            and not any(lag != 0 for lag in self.lag_after_close.values())
            and self.refunded.is_proven
            and (self.booked is None or self.booked.is_proven)
        )


def print_report(console: Console, outcome: Outcome) -> None:
    """The whole report; the last line is the verdict."""
    _print_table(
        console,
        "Rates",
        ("", "messages", "seconds", "per second"),
        [
            (pace.who, f"{pace.messages:,}", f"{pace.elapsed_s:.1f}", f"{pace.per_second:,.0f}")
            for pace in outcome.paces
        ],
    )
    _print_table(
        console,
        "Queues, just before the consumers were stopped",
        ("group", "queue", "held by", "committed", "end", "lag"),
        [
            (
                holding.group,
                holding.queue,
                holding.holder,
                f"{holding.committed:,}",
                f"{holding.end:,}",
                f"{holding.lag:,}",
            )
            for holding in outcome.holdings
        ],
    )
    for line in event_lines(outcome):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for group, verdict in outcome.verdicts.items():
        lag = outcome.lag_after_close[group]
        for line in verdict_lines(group, verdict, lag, outcome):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in refund_lines(outcome.refunded):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in [] if outcome.booked is None else booking_lines(outcome.booked):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(conclusion(outcome), soft_wrap=True)


def event_lines(outcome: Outcome) -> list[str]:
    """What happened on the way that explains the figures."""
    lines = []
    if outcome.takeover_s is None:
        lines.append(f"{outcome.killed} was killed; no other consumer had to continue its queues")
    else:
        lines.append(
            f"{outcome.killed} was killed; others continued its queues "
            f"{outcome.takeover_s:.1f} s later, when its session had ended"
        )
    if outcome.killed_master is not None:
        lines.append(f"{outcome.killed_master}, a master, was killed; a slave took over")
    if outcome.retried_batches:
        lines.append(f"the producer sent {outcome.retried_batches:,} batches more than once")
    return lines


def verdict_lines(group: str, verdict: Verdict, lag: int | None, outcome: Outcome) -> list[str]:
    """What one group saw, in sentences."""
    lines = [
        f"{group}: saw {verdict.seen:,} of {verdict.expected:,} flights in "
        f"{verdict.sightings:,} deliveries; missing {verdict.missing:,}, "
        f"not meant for it {verdict.unexpected:,}, altered {verdict.altered:,}; "
        f"lag after closing {'not known' if lag is None else f'{lag:,}'}"
    ]
    if verdict.missing:
        lines.append(f"  for example missing: {', '.join(verdict.missing_examples)}")
    lines.append(f"  {verdict.repeated:,} came twice{':' if verdict.repeated else ''}")
    for (first, later), count in sorted(verdict.redelivered.items()):
        lines.append(f"    {count:,} by {first} and then {later}: {_why(first, later, outcome)}")
    if verdict.stored_twice:
        lines.append(
            f"    {verdict.stored_twice:,} are stored twice: the producer sent them again because "
            "it got no acknowledgement"
        )
    return lines


def refund_lines(refunded: Refunded) -> list[str]:
    """What became of the cancelled flights, and of the one that failed."""
    lines = [
        f"{refunded.group}: handled {refunded.handled:,} of {refunded.sent:,} cancelled flights; "
        f"one failed {refunded.attempts} times, was a dead letter, was sent again and is "
        f"{'handled' if refunded.is_proven else 'not handled'}",
        f"  it failed with {refunded.reason}",
    ]
    if refunded.repeated:
        lines.append(f"  {refunded.repeated:,} came twice")
    return lines


def conclusion(outcome: Outcome) -> Text:
    """One line."""
    if outcome.is_proven:
        killed = outcome.killed
        if outcome.killed_master is not None:
            killed = f"the master {outcome.killed_master} and {killed}"
        was = "was" if outcome.killed_master is None else "were"
        return Text(
            f"PROVEN: none of {outcome.sent:,} flights is missing, although {killed} "
            f"{was} killed with kill -9",
            style="bold green",
        )
    return Text("NOT PROVEN: see above", style="bold red")


def _why(first: str, later: str, outcome: Outcome) -> str:
    if first == outcome.killed:
        return (
            f"{first} had handled them, and was killed before its next commit (it commits every "
            f"{outcome.commit_interval_ms} ms)"
        )
    if first == later:
        return f"{first} gave the queue back before a commit and got it again"
    return "the queue moved between living members before a commit"


def _print_table(
    console: Console, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    texts = {"", "group", "queue", "held by"}
    for header in headers:
        table.add_column(header, justify="left" if header in texts else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
