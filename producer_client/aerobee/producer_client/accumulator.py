"""Messages of one broker, gathered into batches and taken out in order of arrival. Pure.

Owns: the batches that are not yet written to the broker. A batch is open while messages may join
it, and sealed when it is full, when it is taken, or when a later batch of the same lane begins: so
the messages of a lane leave in the order in which they were added.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.delayed_records import TIMER_TOPIC

RECORD_OVERHEAD_BYTES = 160
"""A generous estimate for a record without body and properties; only limits depend on it."""


class EncodedBatch(NamedTuple):
    """A batch as records."""

    parts: Sequence[bytes]
    """The records once they are joined."""
    sizes: Sequence[int]
    """Bytes of each record."""
    store_host_ipv6: bool


Lane = tuple[MessageQueue, int | None]
"""Messages that can share a batch: those of a queue without a delay, those with the same delay
level, or those with a time; see `Batch.level`."""
HALF_LEVEL: Final = -1
"""The `Batch.level` of a half message."""


class Batch:
    """Messages of one queue that are stored together or not at all."""

    __slots__ = (
        "attempts",
        "block",
        "bodies",
        "born_timestamp_ms",
        "deadline_s",
        "encoded",
        "failures",
        "failures_counted",
        "flags",
        "has_turn",
        "is_outcome_unknown",
        "is_pinned",
        "is_sealed",
        "is_unnamed",
        "last_error",
        "leaves_at",
        "level",
        "opened_s",
        "producer_id",
        "producer_sequence",
        "properties",
        "queue",
        "sent_s",
        "size",
        "skip_wait",
        "timeout_ms",
        "unconfirmed",
        "waiters",
    )

    def __init__(
        self,
        queue: MessageQueue,
        *,
        opened_s: float,
        born_timestamp_ms: int,
        timeout_ms: int,
        deadline_s: float | None = None,
        is_pinned: bool = False,
        skip_wait: bool = False,
        level: int | None = None,
    ) -> None:
        """`deadline_s`: when its time is over; by default `timeout_ms` after it was opened."""
        self.queue = queue
        self.level = level
        """None: no delay; 0: at the times of its messages; HALF_LEVEL: when its transaction is
        committed; else the delay level."""
        self.opened_s = opened_s
        self.born_timestamp_ms = born_timestamp_ms
        self.timeout_ms = timeout_ms
        self.deadline_s = opened_s + timeout_ms / 1_000 if deadline_s is None else deadline_s
        self.is_pinned = is_pinned
        """The queue was chosen by the caller or by a sharding key: no retry elsewhere."""
        self.skip_wait = skip_wait
        self.is_sealed = False
        self.size = 0
        """The accounted size: bodies, properties and an allowance per record."""
        self.bodies: Sequence[bytes] = []
        self.properties: Sequence[bytes] = []
        self.is_unnamed = False
        """Its messages have no unique keys yet, so their properties are incomplete."""
        self.flags: dict[int, int] = {}
        """Application flags by index, where they are not 0."""
        self.waiters: list[Any] = []
        """One per message: the future that gets the result; None without one."""
        self.block: Any = None
        """Notified about the batch as a whole, instead of `waiters`."""
        self.encoded: EncodedBatch | None = None
        self.attempts = 0
        """How often the batch was written to a broker."""
        self.failures = 0
        """How often it came back."""
        self.failures_counted = 0
        """Those that count towards the limit of retries; see retry.py."""
        self.last_error: AerobeeError | None = None
        """Why it last came back."""
        self.is_outcome_unknown = False
        """A broker may have stored it without being able to say so."""
        self.unconfirmed: Any = None
        """The receipt of a broker that stored it but could not confirm it as promised."""
        self.producer_id = 0
        """Together with `producer_sequence`, identifies it to brokers on its queue; 0: not
        numbered."""
        self.producer_sequence = 0
        self.has_turn = False
        """It was written to its queue, or may be; see turns.py."""
        self.sent_s = 0.0
        self.leaves_at = 0
        """Once it has this many messages, it leaves without waiting for more of this turn."""

    def may_join(self, *, size: int, size_max: int, timeout_ms: int, skip_wait: bool) -> bool:
        """Whether a message of `size` may join: there is room, and it has the same options."""
        return (
            not self.is_sealed
            and self.size + size <= size_max
            and self.timeout_ms == timeout_ms
            and self.skip_wait == skip_wait
        )

    def add(self, body: bytes, properties: bytes, flag: int, size: int, waiter: Any) -> None:
        """Add one more message, of `size` bytes as the budget counts them."""
        if flag:
            self.flags[len(self.bodies)] = flag
        self.bodies.append(body)  # type: ignore[attr-defined]
        self.properties.append(properties)  # type: ignore[attr-defined]
        self.waiters.append(waiter)
        self.size += size

    def name(self, ids: Sequence[str]) -> None:
        """Give each message its unique key: all at once, at half the cost of one by one."""
        self.properties = with_unique_keys(ids, self.properties)
        self.is_unnamed = False

    def split(self, count: int) -> Batch:
        """Keeps the first `count` messages; the others are the returned batch, not yet sent and
        without numbers. The caller must notify `block`."""
        rest = Batch(
            self.queue,
            opened_s=self.opened_s,
            born_timestamp_ms=self.born_timestamp_ms,
            timeout_ms=self.timeout_ms,
            deadline_s=self.deadline_s,
            is_pinned=self.is_pinned,
            skip_wait=self.skip_wait,
            level=self.level,
        )
        rest.is_sealed = True
        rest.size = self.size - self.size * count // len(self)
        self.size -= rest.size
        self.bodies, rest.bodies = self.bodies[:count], self.bodies[count:]
        self.properties, rest.properties = self.properties[:count], self.properties[count:]
        self.waiters, rest.waiters = self.waiters[:count], self.waiters[count:]
        flags, self.flags = self.flags, {}
        for index, flag in flags.items():
            if index < count:
                self.flags[index] = flag
            else:
                rest.flags[index - count] = flag
        self.encoded = None
        return rest

    @property
    def lane(self) -> Lane:
        return self.queue, self.level

    @property
    def numbered_in(self) -> MessageQueue:
        """The queue on which brokers know it by its number: where it is first stored.

        For delayed messages that is a queue of a system topic, shared by all topics. The broker
        decides which one, since a level that is too high means the highest. So everything that
        waits at a broker group shares numbers: no queue can have one twice.
        """
        if self.level is None:
            return self.queue
        return MessageQueue(TIMER_TOPIC, self.queue.broker_name, 0)

    @property
    def is_half(self) -> bool:
        """It is the message of a transaction, alone in its batch."""
        return self.level == HALF_LEVEL

    @property
    def is_recognised(self) -> bool:
        """Whether its broker recognises it when it is sent again: by its number, or by its id."""
        return self.producer_id != 0 or self.is_half

    @property
    def must_stay(self) -> bool:
        """Whether only its own queue can tell if it is stored."""
        return self.is_pinned or (self.is_outcome_unknown and self.is_recognised)

    def __len__(self) -> int:
        return len(self.bodies)

    def __repr__(self) -> str:
        return f"Batch({self.queue}, {len(self.bodies)} messages, {self.size} bytes)"


def with_unique_keys(ids: Sequence[str], properties: Iterable[bytes]) -> list[bytes]:
    """The properties of as many messages, each after its unique key."""
    return [
        f"UNIQ_KEY\x01{unique_key}\x02".encode() + encoded
        for unique_key, encoded in zip(ids, properties, strict=True)
    ]


def _always(batch: Batch) -> bool:
    return True


class Accumulator:
    """The batches of one broker that wait to be written."""

    def __init__(self, *, linger_ms: int, batch_bytes_max: int) -> None:
        self._linger_s = linger_ms / 1_000
        self._batch_bytes_max = batch_bytes_max
        self._pending: deque[Batch] = deque()
        self._open: dict[Lane, Batch] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._pending)

    def open_batch(self, queue: MessageQueue, level: int | None = None) -> Batch | None:
        """The batch of a queue, and of one kind of delay, that messages may still join."""
        return self._open.get((queue, level))

    def open(self, batch: Batch) -> None:
        """A new batch that messages may join; seals the lane's earlier one."""
        self.seal(batch.lane)
        self._open[batch.lane] = batch
        self._pending.append(batch)

    def append(self, batch: Batch) -> None:
        """Add a complete batch."""
        self.seal(batch.lane)
        batch.is_sealed = True
        self._pending.append(batch)

    def put_back(self, batches: Sequence[Batch]) -> None:
        """Put back batches that were taken and must be sent again, before all that wait."""
        self._pending.extendleft(reversed(batches))

    def seal(self, lane: Lane) -> None:
        """No more messages join the lane's open batch."""
        batch = self._open.pop(lane, None)
        if batch is not None:
            batch.is_sealed = True

    def flush(self) -> None:
        """Everything that waits is due now."""
        for lane in list(self._open):
            self.seal(lane)

    def is_due(self, batch: Batch, now_s: float) -> bool:
        """Whether the batch is to be written: complete, full, or old enough."""
        return (
            batch.is_sealed
            or batch.size >= self._batch_bytes_max
            or now_s - batch.opened_s >= self._linger_s
        )

    def next_due_s(self, now_s: float) -> float | None:
        """When the next batch becomes due; None if there is none."""
        return min(
            (
                batch.opened_s + self._linger_s
                for batch in self._pending
                if not self.is_due(batch, now_s)
            ),
            default=None,
        )

    def take(
        self, now_s: float, *, bytes_max: int, claim: Callable[[Batch], bool] = _always
    ) -> list[Batch]:
        """Due batches in order, up to `bytes_max` together, but at least one if any is due. Those
        for which `claim` is False stay, and more messages may join them."""
        taken: list[Batch] = []
        kept: list[Batch] = []
        size = 0
        while self._pending:
            batch = self._pending[0]
            if not self.is_due(batch, now_s):
                kept.append(self._pending.popleft())
                continue
            if taken and size + batch.size > bytes_max:
                break
            if not claim(batch):
                kept.append(self._pending.popleft())
                continue
            self._pending.popleft()
            if not batch.is_sealed:
                self.seal(batch.lane)
            taken.append(batch)
            size += batch.size
        self._pending.extendleft(reversed(kept))
        return taken

    def remove(self, batch: Batch) -> bool:
        """Takes one batch out, for example because its time is over."""
        try:
            self._pending.remove(batch)
        except ValueError:
            return False
        if not batch.is_sealed:
            self.seal(batch.lane)
        return True

    def drain(self) -> list[Batch]:
        """All batches in order; nothing remains."""
        self.flush()
        drained = list(self._pending)
        self._pending.clear()
        return drained
