"""The queues read from one broker group, and the replica from which each is read.

Owns: a fetcher per replica and the place of every queue. A queue stays where it is read without
trouble until it is sent elsewhere, its replica is gone, or the master is available again; a replica
that failed is avoided for a while that grows with its failures.
Invariants: a queue is with at most one fetcher, and continues at its own fetch offset wherever it
is moved; frames of the place it left are ignored. Nothing here decides what is consumed: reading
from a slave is subject to the same lease and deadline as reading from a master.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.methods import PULL_STREAM
from aerobee.cluster_view.route import Endpoint, MessageQueue
from aerobee.consumer_client.background_tasks import BackgroundTasks, wait_event
from aerobee.consumer_client.fetcher import Fetcher
from aerobee.consumer_client.group_route import GroupRoute
from aerobee.consumer_client.lease_table import QueueKey
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.consumer_client.owned_queue import OwnedQueue
from aerobee.consumer_client.pull_frames import Pulled, read_pull_frame
from aerobee.runtime import errors
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

ELSEWHERE = (
    errors.ReplicaBehind,
    errors.NotMaster,
    errors.StaleEpoch,
    errors.ShuttingDown,
    errors.StoreFailed,
)
"""For a single queue's subscription: another replica may serve it."""

REFRESH_INTERVAL_S = 0.5
"""How often a nameserver is asked while a queue has no place, in case the watch is broken."""


@dataclass(slots=True, eq=False)
class _Reading:
    owned: OwnedQueue
    place: int | None = None
    suggested: int | None = None
    failures: int = 0
    due_s: float = 0.0
    """Not placed before this time."""
    avoided: dict[int, float] = field(default_factory=dict)
    """Replicas that refused this queue, and until when to avoid them."""


@dataclass(slots=True)
class _Trouble:
    """A replica whose stream broke."""

    failures: int = 0
    until_s: float = 0.0


class GroupReads:
    """All reads from one broker group; call `run`."""

    def __init__(
        self,
        connection: ClusterConnection,
        queue: MessageQueue,
        *,
        group: str,
        client_id: str,
        options: ConsumerConfig,
        tasks: BackgroundTasks,
        on_result: Callable[[OwnedQueue, Pulled], None],
        on_refused: Callable[[OwnedQueue, errors.AerobeeError], None],
    ) -> None:
        """`queue` is one of the group's, to find its route. Neither callback may block.
        `on_result`: messages, or an offset that the master corrected. `on_refused`: a replica ended
        the queue's subscription, which is retried unless the queue is removed."""
        self.route = GroupRoute(connection.routes, queue.topic, queue.broker_name)
        self._connection = connection
        self._on_result = on_result
        self._on_refused = on_refused
        self._group = group
        self._client_id = client_id
        self._options = options
        self._tasks = tasks
        self._readings: dict[OwnedQueue, _Reading] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._troubles: dict[int, _Trouble] = {}
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"GroupReads({self.route.broker_name}, queues={len(self._readings)})"

    # ------------------------------------------------------------------------------ queues

    def add(self, owned: OwnedQueue) -> None:
        """Read a queue from its fetch offset on."""
        reading = self._readings[owned] = _Reading(owned)
        self._place(reading)

    def remove(self, owned: OwnedQueue) -> None:
        """Stop reading it."""
        reading = self._readings.pop(owned, None)
        if reading is not None:
            self._leave(reading)

    def refresh_credit(self, owned: OwnedQueue) -> None:
        """The queue may have room again."""
        reading = self._readings.get(owned)
        if reading is not None and reading.place is not None:
            self._fetchers[reading.place].refresh_credit(owned)

    def place_of(self, owned: OwnedQueue) -> int | None:
        """The broker id of the replica from which it is read now."""
        reading = self._readings.get(owned)
        return None if reading is None else reading.place

    def on_confirmed(self) -> None:
        """The master knows our leases: it may be used at once."""
        for reading in self._readings.values():
            reading.due_s = 0.0
        self._wake.set()

    # ------------------------------------------------------------------------------ placing

    async def run(self) -> None:
        """Keep every queue in its place, whatever changes; never returns."""
        async with asyncio.TaskGroup() as tasks:
            name = f"reads:{self.route.broker_name}"
            tasks.create_task(self._refresh_route(), name=f"{name}:route")
            with self.route.telling(self._wake.set):
                while True:
                    self._wake.clear()
                    due_s = self._place_all()
                    left_s = None if due_s is None else due_s - self._now_s()
                    await wait_event(self._wake, left_s)

    def _place_all(self) -> float | None:
        """Returns the time when there may be more to do; None: when something happens."""
        due: list[float] = []
        for reading in list(self._readings.values()):
            due_s = self._place(reading)
            if due_s is not None:
                due.append(due_s)
        return min(due, default=None)

    def _place(self, reading: _Reading) -> float | None:
        """Put a queue where it is to be read; returns when to check it again, if that is known."""
        now_s = self._now_s()
        if reading.place is None and reading.due_s > now_s:
            return reading.due_s
        avoided = self._avoided(reading, now_s)
        assignment = reading.owned.assignment
        replicas = self.route.replicas()
        chosen = choose(
            replicas,
            QueueKey(assignment.queue.topic, assignment.queue.queue_id),
            suggested=reading.suggested,
            may_ask_master=assignment.trust.is_confirmed,
            avoided=avoided,
        )
        if reading.place is None:
            if chosen is not None:
                self._move(reading, chosen.broker_id)
        elif should_move(replicas, reading.place, chosen, suggested=reading.suggested):
            assert chosen is not None
            self._leave(reading)
            self._move(reading, chosen.broker_id)
        return min(avoided.values(), default=None)

    def _avoided(self, reading: _Reading, now_s: float) -> dict[int, float]:
        reading.avoided = {each: until for each, until in reading.avoided.items() if until > now_s}
        avoided = dict(reading.avoided)
        for broker_id, trouble in self._troubles.items():
            if trouble.until_s > now_s:
                avoided[broker_id] = max(trouble.until_s, avoided.get(broker_id, 0.0))
        return avoided

    def _move(self, reading: _Reading, broker_id: int) -> None:
        log_event(
            log,
            "reading",
            level=logging.DEBUG,
            group=self._group,
            queue=reading.owned.assignment.queue,
            broker_id=broker_id,
            offset=reading.owned.fetch_offset,
        )
        reading.place = broker_id
        self._fetcher(broker_id).add(reading.owned)

    def _leave(self, reading: _Reading) -> None:
        if reading.place is not None:
            self._fetchers[reading.place].remove(reading.owned)
            reading.place = None

    def _fetcher(self, broker_id: int) -> Fetcher:
        known = self._fetchers.get(broker_id)
        if known is not None:
            return known
        fetcher = Fetcher(
            group=self._group,
            client_id=self._client_id,
            options=self._options,
            on_result=partial(self._on_fetched, broker_id),
            on_ended=partial(self._on_fetch_ended, broker_id),
        )
        name = f"fetcher:{self.route.broker_name}:{broker_id}"
        self._tasks.create_task(self._fetch(broker_id, fetcher), name=name)
        self._fetchers[broker_id] = fetcher
        return fetcher

    async def _fetch(self, broker_id: int, fetcher: Fetcher) -> None:
        """Fetch over a stream while there are queues; never returns."""
        while True:
            await fetcher.wait_for_queues()
            try:
                address = self._address(broker_id)
                await fetcher.fetch(
                    self._connection.channels.open_stream(
                        address, PULL_STREAM, parse=read_pull_frame
                    )
                )
            except errors.AerobeeError as error:
                self._on_broken(broker_id, fetcher.take_all(), error)

    def _address(self, broker_id: int) -> str:
        for replica in self.route.replicas():
            if replica.broker_id == broker_id:
                return replica.address
        raise errors.NoBrokerAvailable(
            f"replica {broker_id} of broker {self.route.broker_name!r} is not alive now"
        )

    async def _refresh_route(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_INTERVAL_S)
            if any(reading.place is None for reading in self._readings.values()):
                await self.route.refresh(self._options.request_timeout_ms)
                self._wake.set()

    def _now_s(self) -> float:
        return self._connection.clock.monotonic_s()

    # ------------------------------------------------------------------------------ fetchers' news

    def _on_fetched(self, broker_id: int, owned: OwnedQueue, pulled: Pulled) -> None:
        reading = self._readings.get(owned)
        if reading is None:
            return
        reading.failures = 0
        trouble = self._troubles.get(broker_id)
        if trouble is not None:
            trouble.failures = 0
        if pulled.result.HasField("suggested_broker_id"):
            self._follow(reading, pulled.result.suggested_broker_id)
        self._on_result(owned, pulled)

    def _follow(self, reading: _Reading, broker_id: int) -> None:
        """The queue is sent elsewhere; the next iteration of `run` moves it."""
        master = self.route.master()
        is_back = master is not None and master.broker_id == broker_id
        suggested = None if is_back else broker_id
        if suggested != reading.suggested:
            reading.suggested = suggested
            self._wake.set()

    def _on_fetch_ended(
        self, broker_id: int, owned: OwnedQueue, error: errors.AerobeeError
    ) -> None:
        reading = self._readings.get(owned)
        if reading is None:
            return
        reading.place = None
        delay_s = self._options.backoff.delay_s(reading.failures, self._connection.random)
        until_s = self._now_s() + delay_s
        reading.failures += 1
        if isinstance(error, ELSEWHERE):
            reading.avoided[broker_id] = until_s
            reading.due_s = 0.0
        else:
            reading.due_s = until_s
        if reading.suggested == broker_id:
            reading.suggested = None
        log_event(
            log,
            "fetching interrupted",
            level=logging.DEBUG,
            group=self._group,
            queue=owned.assignment.queue,
            broker_id=broker_id,
            reason=error,
            retry_s=round(delay_s, 3),
        )
        self._wake.set()
        self._on_refused(owned, error)

    def _on_broken(
        self, broker_id: int, queues: Sequence[OwnedQueue], error: errors.AerobeeError
    ) -> None:
        trouble = self._troubles.setdefault(broker_id, _Trouble())
        delay_s = self._options.backoff.delay_s(trouble.failures, self._connection.random)
        trouble.failures += 1
        trouble.until_s = self._now_s() + delay_s
        for owned in queues:
            reading = self._readings.get(owned)
            if reading is not None:
                reading.place = None
                if reading.suggested == broker_id:
                    reading.suggested = None
        log_event(
            log,
            "pull stream broke",
            level=logging.DEBUG,
            group=self._group,
            broker=self.route.broker_name,
            broker_id=broker_id,
            reason=error,
        )
        self._wake.set()


def choose(
    replicas: Sequence[Endpoint],
    key: QueueKey,
    *,
    suggested: int | None,
    may_ask_master: bool,
    avoided: Collection[int],
) -> Endpoint | None:
    """The replica from which to read the queue; None: none is available now.

    Args:
        replicas: the live ones.
        suggested: the broker id to which the queue's reader was sent, if it was.
        avoided: broker ids that failed recently.
    """
    usable = [
        replica
        for replica in replicas
        if replica.broker_id not in avoided and (may_ask_master or not replica.is_master)
    ]
    for replica in usable:
        if replica.broker_id == suggested:
            return replica
    for replica in usable:
        if replica.is_master:
            return replica
    # The queues of one group are spread over its slaves.
    return usable[key.queue_id % len(usable)] if usable else None


def should_move(
    replicas: Sequence[Endpoint], place: int, chosen: Endpoint | None, *, suggested: int | None
) -> bool:
    """Whether a queue that is read at `place` without trouble should move to `chosen`: it was sent
    there, its place is gone, or the master is available again."""
    if chosen is None or chosen.broker_id == place:
        return False
    is_alive = any(replica.broker_id == place for replica in replicas)
    return not is_alive or chosen.is_master or chosen.broker_id == suggested
