"""The judge: a history and the logs that are left, in; violations, out. Pure.

What always holds for a cluster that keeps its promises: every acknowledged message is in the log
of the present master exactly once, at the offset that its acknowledgement named, in its lane's
order; one that was to arrive later is there once as well, in its queue and not before its time.
One that failed comes again once for each attempt, and is one dead letter if it fails for ever.
Consumers saw all of them and nothing that is not in that log; committed offsets never went back;
replicas are equal byte by byte as far as they are confirmed. Each is one function here, and each
finds what it looks for in a doctored history (test_checker.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.failover.history import (
    RETRIES_MAX,
    History,
    Lane,
    Place,
    failures_of,
    is_failing,
    read_body,
)

EXAMPLES_MAX = 3


class Kind(StrEnum):
    """What was broken."""

    LOST = "lost"
    MOVED = "moved"  # acknowledged at another offset than where it lies
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    EARLY = "early"  # it was to arrive later
    RETRIED = "retried"  # it failed, and did not come again as often as it should
    DEAD_LETTERS = "dead letters"  # not one of what fails for ever, or any of another message
    INVENTED = "invented"  # in the log, but nobody sent it
    GAP = "gap"  # a queue's offsets do not follow each other
    NOT_DELIVERED = "not delivered"
    SEEN_AND_CUT = "seen and cut"  # delivered, but not what the log has there
    OFFSET_BACK = "offset back"
    OFFSET_AHEAD = "offset ahead"  # committed beyond what was delivered before it
    REPLICAS_DIFFER = "replicas differ"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise, with where it was broken."""

    kind: Kind
    where: str


@dataclass(frozen=True, slots=True)
class Stored:
    """One message of the final log, in the log's order."""

    place: Place
    body: bytes
    stored_ms: int


@dataclass(frozen=True, slots=True)
class Failed:
    """What the final log has of messages that failed: the attempts with which each came again, and
    the dead letters."""

    attempts: Sequence[tuple[tuple[Lane, int], int]] = ()
    dead_letters: Sequence[tuple[Lane, int]] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """All that is wrong; an empty one is what every run must end with."""

    violations: tuple[Violation, ...]

    def count(self, kind: Kind) -> int:
        return sum(1 for one in self.violations if one.kind is kind)

    def __str__(self) -> str:
        if not self.violations:
            return "nothing was lost, doubled, reordered or moved back"
        lines = []
        for kind, count in Counter(one.kind for one in self.violations).items():
            examples = [one.where for one in self.violations if one.kind is kind][:EXAMPLES_MAX]
            lines.append(f"{count} {kind}: {'; '.join(examples)}")
        return "\n".join(lines)


def judge(
    history: History,
    stored: Sequence[Stored],
    replicas: Mapping[str, bytes],
    *,
    failed: Failed | None = None,
    may_lose: Sequence[tuple[float, float]] = (),
) -> Verdict:
    """Judges one run.

    Args:
        history: what the clients saw; all sends ended, all consumers caught up.
        stored: the messages of the present master's log, in its order.
        replicas: each replica's log up to the confirmed end, by name.
        failed: what came again and what is dead; None: nobody failed.
        may_lose: times in which a master that replicates asynchronously was cut off: what it
            acknowledged then may be lost, and nothing else. All other promises hold all the same.
    """
    found: list[Violation] = []
    found += _of_the_queues(stored)
    found += _of_the_order(history, stored)
    found += _of_the_acknowledged(history, stored, may_lose)
    found += _of_the_deliveries(history, stored)
    found += _of_the_offsets(history)
    found += _of_the_replicas(replicas)
    if failed is not None:
        found += _of_the_failed(history, failed, may_miss=bool(may_lose))
    return Verdict(tuple(found))


def lost(history: History, stored: Sequence[Stored]) -> list[tuple[Lane, int]]:
    """The acknowledged messages that are not in the log."""
    present = {read_body(one.body) for one in stored}
    return [
        (one.lane, one.number)
        for one in history.acknowledged
        if (one.lane, one.number) not in present
    ]


def _of_the_queues(stored: Sequence[Stored]) -> Iterable[Violation]:
    """In the log's order each queue's offsets count up by one."""
    following: dict[int, int] = {}
    for one in stored:
        queue_id, offset = one.place.queue_id, one.place.offset
        expected = following.get(queue_id, offset)
        if offset != expected:
            yield Violation(Kind.GAP, f"queue {queue_id}: {offset} follows {expected - 1}")
        following[queue_id] = offset + 1


def _of_the_order(history: History, stored: Sequence[Stored]) -> Iterable[Violation]:
    """Each lane's messages lie in its queue once, in the order of sending or not before they are
    due."""
    newest: dict[Lane, int] = {}
    seen: set[tuple[Lane, int]] = set()
    for one in stored:
        lane, number = read_body(one.body)
        where = f"{lane.producer} {number} at queue {one.place.queue_id} offset {one.place.offset}"
        if number >= history.attempted.get(lane, 0) or lane.queue_id != one.place.queue_id:
            yield Violation(Kind.INVENTED, where)
        due_ms = history.due_ms.get((lane, number))
        if (lane, number) in seen:
            yield Violation(Kind.DUPLICATED, where)
        elif due_ms is not None:
            if one.stored_ms < due_ms:
                yield Violation(Kind.EARLY, f"{where}, by {due_ms - one.stored_ms} ms")
        elif number < newest.get(lane, -1):
            yield Violation(Kind.REORDERED, f"{where}, behind {newest[lane]}")
        seen.add((lane, number))
        newest[lane] = max(number, newest.get(lane, -1))


def _of_the_acknowledged(
    history: History, stored: Sequence[Stored], may_lose: Sequence[tuple[float, float]]
) -> Iterable[Violation]:
    offsets: dict[tuple[Lane, int], set[int]] = {}
    for one in stored:
        offsets.setdefault(read_body(one.body), set()).add(one.place.offset)
    for ack in history.acknowledged:
        at = offsets.get((ack.lane, ack.number))
        where = f"{ack.lane.producer} {ack.number}, acknowledged at queue {ack.lane.queue_id} "
        where += f"offset {ack.offset} at {ack.acknowledged_s:.3f} s"
        if at is None:
            if not any(begin <= ack.acknowledged_s <= end for begin, end in may_lose):
                yield Violation(Kind.LOST, where)
        elif ack.offset not in at and (ack.lane, ack.number) not in history.due_ms:
            yield Violation(Kind.MOVED, f"{where}, lies at {sorted(at)}")


def _of_the_deliveries(history: History, stored: Sequence[Stored]) -> Iterable[Violation]:
    """Consumers see what is in the log, all of it, and nothing that was cut from it."""
    bodies = {one.place: one.body for one in stored}
    delivered: set[Place] = set()
    for one in history.delivered:
        delivered.add(one.place)
        if bodies.get(one.place) != one.body:
            there = bodies.get(one.place, b"nothing")[:40]
            yield Violation(
                Kind.SEEN_AND_CUT,
                f"{one.place}: {one.body[:40]!r} at {one.at_s:.3f} s; the log has {there!r}",
            )
    for place in bodies.keys() - delivered:
        yield Violation(Kind.NOT_DELIVERED, f"{place}: {bodies[place][:40]!r}")


def _of_the_offsets(history: History) -> Iterable[Violation]:
    """No answer is before an earlier one: of one broker, and of whoever is master."""
    newest: dict[tuple[str, int], int] = {}
    for one in sorted(history.committed, key=lambda one: one.at_s):
        judges = [f"broker {one.answered_by}"] + (["the master"] if one.by_master else [])
        for who in judges:
            before = newest.get((who, one.queue_id), -1)
            if one.offset < before:
                yield Violation(
                    Kind.OFFSET_BACK,
                    f"queue {one.queue_id}: {who} told {before}, then {one.offset} "
                    f"(by broker {one.answered_by} at {one.at_s:.3f} s)",
                )
            newest[who, one.queue_id] = max(before, one.offset)
    yield from _ahead(history)


def _ahead(history: History) -> Iterable[Violation]:
    """Nobody commits what no listener was given: at the end, the offset is at most one after the
    newest delivery."""
    delivered_end: dict[int, int] = {}
    for one in history.delivered:
        queue_id = one.place.queue_id
        delivered_end[queue_id] = max(one.place.offset + 1, delivered_end.get(queue_id, 0))
    for told in history.committed:
        if told.offset > delivered_end.get(told.queue_id, 0):
            yield Violation(
                Kind.OFFSET_AHEAD,
                f"queue {told.queue_id}: {told.offset} is committed, delivered was up to "
                f"{delivered_end.get(told.queue_id, 0)}",
            )


def _of_the_failed(history: History, failed: Failed, *, may_miss: bool) -> Iterable[Violation]:
    """`may_miss`: a master that was cut off may have taken with it that a message failed."""
    came: dict[tuple[Lane, int], list[int]] = {}
    for name, times in failed.attempts:
        came.setdefault(name, []).append(times)
    dead = Counter(failed.dead_letters)
    names = {(one.lane, one.number) for one in history.acknowledged if is_failing(one.lane)}
    for name in sorted(names | came.keys() | dead.keys()):
        lane, number = name
        attempts, failures = sorted(came.get(name, [])), failures_of(number)
        where = f"{lane.producer} {number}, which fails {failures} times, came {attempts}"
        is_for_ever = failures > RETRIES_MAX
        is_right = attempts == list(range(1, len(attempts) + 1))
        if is_for_ever:
            is_right = is_right and len(attempts) >= RETRIES_MAX
        else:
            is_right = is_right and len(attempts) == failures
        is_missing = may_miss and len(set(attempts)) == len(attempts) <= failures
        if not is_right and not is_missing:
            yield Violation(Kind.RETRIED, where)
        expected = 1 if is_for_ever else 0
        if dead[name] != expected and not (may_miss and dead[name] < expected):
            yield Violation(Kind.DEAD_LETTERS, f"{where}: {dead[name]} dead letters")


def _of_the_replicas(replicas: Mapping[str, bytes]) -> Iterable[Violation]:
    names = sorted(replicas)
    for name in names[1:]:
        one, other = replicas[names[0]], replicas[name]
        if one == other:
            continue
        at = next(
            (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
            min(len(one), len(other)),
        )
        yield Violation(
            Kind.REPLICAS_DIFFER,
            f"{names[0]} ({len(one)} bytes) and {name} ({len(other)} bytes) from byte {at} on",
        )
