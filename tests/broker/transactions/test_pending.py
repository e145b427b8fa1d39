"""PURE: what waits is what the two topics say, in whatever order they are read, and whoever begins
to read where they are said to be done knows the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.transactions.pending import PendingHalves, TransactionName
from aerobee.store.format.transaction_records import HalfMessage, Outcome

NAMES = [TransactionName(topic, f"T-{number}") for topic in ("a", "b") for number in range(3)]
ENDS = (Outcome.COMMITTED, Outcome.ROLLED_BACK, Outcome.SET_ASIDE, Outcome.UNKNOWN)


@dataclass
class Log:
    """The two topics as a broker writes them, and what that means."""

    halves: list[HalfMessage] = field(default_factory=list)
    ops: list[tuple[list[int], Outcome]] = field(default_factory=list)
    open: dict[TransactionName, list[int]] = field(default_factory=dict)
    """All records of each open transaction that no op message names; the last one counts."""
    ended: dict[TransactionName, Outcome] = field(default_factory=dict)

    def send(self, name: TransactionName, *, checks: int = 0) -> None:
        self.halves.append(
            HalfMessage(
                len(self.halves),
                100 * len(self.halves),
                100,
                name.transaction_id,
                "p",
                name.topic,
                0,
                1,
                1,
                checks,
                checks > 0,
            )
        )
        self.open.setdefault(name, []).append(len(self.halves) - 1)

    def check(self, name: TransactionName, *, dies: bool) -> None:
        """`dies`: between the copy and the op message."""
        if name not in self.open:
            return
        older = list(self.open[name])
        self.send(name, checks=self.halves[older[-1]].checks + 1)
        if not dies:
            self.ops.append((older, Outcome.CHECKED))
            self.open[name] = self.open[name][-1:]

    def end(self, name: TransactionName, outcome: Outcome) -> None:
        if name in self.open:
            self.ops.append((self.open.pop(name), outcome))
            self.ended[name] = outcome


acts = st.lists(
    st.tuples(
        st.sampled_from(["send", "check", "die", "end"]),
        st.sampled_from(NAMES),
        st.sampled_from(ENDS),
    ),
    max_size=40,
)


def log_of(acts: list[tuple[str, TransactionName, Outcome]]) -> Log:
    log = Log()
    for act, name, outcome in acts:
        if act == "send":
            log.send(name)
        elif act == "end":
            log.end(name, outcome)
        else:
            log.check(name, dies=act == "die")
    return log


def read(pending: PendingHalves, log: Log, turns: list[bool]) -> None:
    """All of it, a half message or an op message at each turn."""
    for is_half in [*turns, *[True] * len(log.halves), *[False] * len(log.ops)]:
        if is_half and pending.next_half < len(log.halves):
            pending.read_half(log.halves[pending.next_half])
        elif not is_half and pending.next_op < len(log.ops):
            pending.read_op(pending.next_op, *log.ops[pending.next_op])


def check(pending: PendingHalves, log: Log) -> None:
    assert pending.names == log.open.keys()
    assert len(pending) == len(log.open)
    assert dict(pending.by_topic) == Counter(name.topic for name in log.open)
    for name, offsets in log.open.items():
        assert pending.of(name)[-1].offset == offsets[-1]
    waiting = pending.all_offsets()
    assert waiting == sorted(waiting)
    assert [half.offset for half in pending] == waiting
    oldest = min(waiting, default=len(log.halves))
    assert pending.half_progress == oldest
    # What is said to be done must not be needed.
    for offsets, _ in log.ops[: pending.op_progress]:
        assert max(offsets) < pending.half_progress


@given(acts, st.lists(st.booleans(), max_size=80))
def test_every_order_of_reading_tells_the_same(
    acts: list[tuple[str, TransactionName, Outcome]], turns: list[bool]
) -> None:
    log = log_of(acts)
    pending = PendingHalves()
    read(pending, log, turns)
    check(pending, log)
    for name, offsets in log.open.items():
        assert set(pending.offsets(name)) == set(offsets), "an op message must name all of them"
    for name, outcome in log.ended.items():
        if name not in log.open:
            ended = pending.ended(name)
            assert ended is not None
            assert ended.outcome is outcome


@given(acts, acts, st.lists(st.booleans(), max_size=80), st.lists(st.booleans(), max_size=80))
def test_who_begins_at_the_progress_knows_what_waits(
    acts: list[tuple[str, TransactionName, Outcome]],
    more: list[tuple[str, TransactionName, Outcome]],
    turns: list[bool],
    again: list[bool],
) -> None:
    before = PendingHalves()
    read(before, log_of(acts), turns)
    log = log_of(acts + more)
    after = PendingHalves(next_half=before.half_progress, next_op=before.op_progress)
    read(after, log, again)
    check(after, log)
