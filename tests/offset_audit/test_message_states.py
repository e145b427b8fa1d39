"""The states of messages are an algebra: each message sent is in exactly one, whatever happened to
it, and the sums match. A model moves single messages; the audit gets only what brokers tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aerobee.offset_audit.checks.data.waiting import failed_by_group
from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.local_frame import LocalEngine
from aerobee.offset_audit.tables import STATES
from tests.offset_audit.table_builders import BROKER, CLUSTER, TableRows, as_rows, frame

RETRY, DEAD = "%RETRY%g", "%DLQ%g"
COUNTED = ("finished", "unread", "waiting", "again", "dead", "resent")

Step = tuple[str, int, int]
STEPS = st.tuples(
    st.sampled_from(["send", "commit", "fail", "deliver", "bury", "resend", "return", "reset"]),
    st.integers(0, 2),
    st.integers(0, 5),
)


@dataclass
class Queue:
    """Numbers of messages by offset, and the group's progress."""

    topic: str
    queue_id: int
    messages: list[int] = field(default_factory=list)
    committed: int = 0
    sent_back: set[int] = field(default_factory=set)
    """Offsets of messages that failed, and whose copies count instead."""

    @property
    def open(self) -> list[int]:
        """Offsets of messages that a member may have in its hands."""
        ahead = range(self.committed, len(self.messages))
        return [offset for offset in ahead if offset not in self.sent_back]


class World:
    """One group on three queues of a topic."""

    def __init__(self, *, has_resets: bool) -> None:
        self._has_resets = has_resets
        self.queues = [Queue("t", queue_id) for queue_id in range(3)]
        self.retry = Queue(RETRY, 0)
        self.waiting: list[int] = []
        self.dead: list[int] = []
        """By offset in the dead-letter topic; those that were sent again stay there."""
        self.left_dead: set[int] = set()
        self.resent: list[int] = []
        self.sent = 0
        self.journal: list[dict[str, Any]] = []

    def do(self, step: Step) -> None:
        what, which, number = step
        queue = [*self.queues, self.retry][which if what != "fail" else (which + number) % 4]
        if what == "send":
            self.queues[which].messages.append(self.sent)
            self.sent += 1
        elif what == "commit":
            queue = [*self.queues, self.retry][(which + number) % 4]
            queue.committed = min(len(queue.messages), queue.committed + number)
        elif what == "fail" and queue.open:
            self.waiting.append(self._failed(queue, number))
        elif what == "bury" and self.retry.open:
            self.dead.append(self._failed(self.retry, number))
        elif what == "deliver" and self.waiting:
            self.retry.messages.append(self.waiting.pop(number % len(self.waiting)))
        elif what in ("resend", "return"):
            self._resend(what, number)
        elif what == "reset" and self._has_resets:
            self._reset(self.queues[which], number)

    def _note(self, kind: str, queue: Queue, offset: int) -> None:
        at = len(self.journal) + 1
        place = {"topic": queue.topic, "queue_id": queue.queue_id, "offset": offset}
        self.journal.append({"kind": kind, "journal_offset": at, "timestamp_ms": at, **place})

    def _failed(self, queue: Queue, number: int) -> int:
        offset = queue.open[number % len(queue.open)]
        queue.sent_back.add(offset)
        self._note("sentBack", queue, offset)
        return queue.messages[offset]

    def _resend(self, what: str, number: int) -> None:
        letters = [at for at in range(len(self.dead)) if at not in self.left_dead]
        if not letters:
            return
        at = letters[number % len(letters)]
        self.left_dead.add(at)
        self._note("resent" if what == "resend" else "returned", Queue(DEAD, 0), at)
        (self.resent if what == "resend" else self.retry.messages).append(self.dead[at])

    def _reset(self, queue: Queue, number: int) -> None:
        queue.committed = min(queue.committed, number)
        queue.sent_back = {each for each in queue.sent_back if each < queue.committed}
        self._note("reset", queue, queue.committed)

    # ------------------------------------------------------------------ what is true

    def copies(self) -> dict[int, list[str]]:
        """Where the copies of each message are that failed."""
        letters = [one for at, one in enumerate(self.dead) if at not in self.left_dead]
        again = [self.retry.messages[offset] for offset in self.retry.open]
        found: dict[int, list[str]] = {}
        places = {"waiting": self.waiting, "again": again, "dead": letters, "resent": self.resent}
        for state, messages in places.items():
            for one in messages:
                found.setdefault(one, []).append(state)
        return found

    def states(self) -> list[str]:
        """The one state of each message; only without resets is it the only one."""
        copies = self.copies()
        found = []
        for queue in self.queues:
            for offset, message in enumerate(queue.messages):
                if offset in queue.sent_back:
                    found += copies.get(message, ["finished"])
                else:
                    found.append("unread" if offset >= queue.committed else "finished")
        return found

    # ------------------------------------------------------------------ what is told

    def told(self) -> Any:
        """The audit's row; None if nothing failed, or nothing of it is left."""
        engine, rows = LocalEngine(), TableRows()
        for one in self.journal:
            rows.add("journal", group="g", **one)
        if self.waiting:
            rows.add("waiting", topic=RETRY, kind="DELAY", messages=len(self.waiting))
        if self.dead:
            rows.add("queues", topic=DEAD, min_offset=0, max_offset=len(self.dead))
        progress = [
            {
                **{"cluster": CLUSTER, "broker_name": BROKER, "group": "g"},
                **{"topic": queue.topic, "queue_id": queue.queue_id},
                **{"committed_offset": queue.committed, "max_offset": len(queue.messages)},
                "lag": len(queue.messages) - queue.committed,
            }
            for queue in (*self.queues, self.retry)
        ]
        names = names_of(STATES)
        table = frame(engine, STATES, [{n: one.get(n) for n in names} for one in progress])
        found = as_rows(failed_by_group(rows.tables(engine), table, knows_waiting=True))
        assert len(found) <= 1
        return found[0] if found else None


def lived(steps: Sequence[Step], *, has_resets: bool) -> World:
    world = World(has_resets=has_resets)
    for step in steps:
        world.do(step)
    return world


@given(st.lists(STEPS, max_size=60))
def test_each_message_is_in_exactly_one_state(steps: list[Step]) -> None:
    world = lived(steps, has_resets=False)
    true = Counter(world.states())
    assert true.total() == world.sent
    row = world.told()
    if row is None:
        assert not any(true[state] for state in ("waiting", "again", "dead", "resent"))
        return
    assert {state: row[state] for state in COUNTED} == {state: true[state] for state in COUNTED}
    assert row.sent == world.sent
    assert row.twice == 0


@given(st.lists(STEPS, max_size=60))
def test_after_resets_sums_match_and_nothing_is_told_that_is_not_known(steps: list[Step]) -> None:
    world = lived(steps, has_resets=True)
    row = world.told()
    if row is None:
        return
    places = Counter(state for copies in world.copies().values() for state in copies)
    for state in ("waiting", "again", "dead", "resent"):
        assert row[state] == places[state]
    unread = sum(len(queue.open) for queue in world.queues)
    assert row.unread == unread
    assert (row.finished is None) == (row.twice is None)
    if row.finished is not None:
        assert sum(row[state] for state in COUNTED) - row.twice == row.sent == world.sent
        assert row.finished >= 0
        assert row.twice >= 0
        assert row.finished == Counter(world.states())["finished"]
