"""A queue that POP consumes, with a log in memory and a clock that tests set."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.entries import Begun, PopEntry
from aerobee.broker.pop.journal_state import apply_entries
from aerobee.broker.pop.lanes import lane_of
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.requests import Delivery, Handled, Move, Poll, PopLimits, Read
from aerobee.broker.pop.standing import Standing
from aerobee.broker.pop.waits import Unsure

KEY = GroupQueue("billing", "orders", 3)
HELD_MS = 60_000


class PoppedQueue:
    """Messages are strings; the part before ":" is the message group, and before "/" the original
    topic. `entries` is its journal."""

    def __init__(
        self,
        *messages: str,
        is_ordered: bool = False,
        limits: PopLimits | None = None,
        begin: int = 0,
    ) -> None:
        self.messages = list(messages)
        self.now_ms = 1_000
        self.wanted: set[str] | None = None
        self.failures: dict[int, int] = {}
        self.silent: set[str] = set()
        """Clients that are no longer alive."""
        self.entries: list[PopEntry] = [Begun(KEY, begin, 0, self.now_ms)]
        self.moves: list[Move] = []
        self._is_ordered = is_ordered
        self._limits = limits or PopLimits()
        self.fail_over()

    def fail_over(self) -> None:
        """Another master continues from the journal."""
        queues: dict[GroupQueue, Standing] = {}
        apply_entries(queues, self.entries)
        self.state = QueueState(
            KEY,
            queues[KEY],
            self.now_ms,
            is_ordered=self._is_ordered,
            held_until_ms=self._held_until_ms,
            unsure=Unsure(),
            limits=self._limits,
        )

    def _held_until_ms(self, client_id: str, taken_ms: int) -> int:
        return 0 if client_id in self.silent else max(self.now_ms, taken_ms) + HELD_MS

    def receive(
        self,
        count: int = 32,
        *,
        client_id: str = "ada",
        invisible_ms: int | None = 30_000,
        attempt_id: str = "",
        attempts_max: int = 17,
        topic: str = "",
        takes_runs: bool = False,
    ) -> list[Delivery]:
        """What one poll gets, requested as a broker does: repeatedly until it has enough."""
        found: list[Delivery] = []
        while len(found) < count:
            poll = Poll(
                client_id,
                count - len(found),
                invisible_ms,
                attempt_id,
                attempts_max,
                topic,
                takes_runs=takes_runs,
            )
            if again := self.state.repeated(poll, self.now_ms):
                return again
            has_nothing = self.state.has_nothing(len(self.messages), self.now_ms)
            wanted = self.state.wants(poll, self.now_ms)
            self.moves += wanted.moves
            end = max(wanted.begin, min(len(self.messages), wanted.begin + max(0, wanted.room)))
            offsets = [*wanted.again, *range(wanted.begin, end)]
            origins = self._origins(offsets)
            passed = {
                each: self.lane(each)
                for each in offsets
                if self._passes(each) and (not topic or origins.get(each, topic) == topic)
            }
            origins = origins if topic else {}
            read = Read(passed, wanted.again, wanted.begin, end, origins, self.failures)
            taken = self.state.take(poll, read, self.now_ms)
            self.entries += taken.entries
            assert not (has_nothing and (taken.deliveries or taken.entries or wanted.moves))
            found += taken.deliveries
            if not offsets:
                if wanted.refusal is not None and not found:
                    raise wanted.refusal
                break
        return found

    def lane(self, offset: int) -> int:
        return lane_of(self.messages[offset].partition(":")[0].encode())

    def _origins(self, offsets: Sequence[int]) -> dict[int, str]:
        texts = {each: self.messages[each] for each in offsets}
        return {each: text.partition("/")[0] for each, text in texts.items() if "/" in text}

    def _passes(self, offset: int) -> bool:
        return self.wanted is None or self.messages[offset] in self.wanted

    def offsets(self, count: int = 32, **named: object) -> list[int]:
        """The offsets that a poll gets."""
        return [each.offset for each in self.receive(count, **named)]  # type: ignore[arg-type]

    def acknowledge(self, *deliveries: Delivery) -> list[Handled]:
        handles = [(each.offset, each.serial) for each in deliveries]
        result = self.state.acknowledge(handles, self.now_ms)
        self.add(result.entries)
        return result.handled

    def change(self, delivery: Delivery, invisible_ms: int, *, is_counted: bool = True) -> Delivery:
        """Returns the delivery that replaces it."""
        changed = self.state.change(
            delivery.offset, delivery.serial, invisible_ms, self.now_ms, is_counted=is_counted
        )
        assert changed.delivery is not None, changed
        self.add(changed.entries)
        return changed.delivery

    def add(self, entries: Sequence[PopEntry]) -> None:
        self.entries += entries
