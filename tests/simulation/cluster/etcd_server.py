"""A linearizable store with leases and watches, like etcd, for one broker group.

Its content survives restarts; leases restart with it, as etcd extends them. A request is executed
atomically on arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.nameserver.log_reach import named_in_sync, noted
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    DurableLog,
    DurableLogs,
    ReplicaSet,
)
from tests.simulation.cluster.kernel import Kernel, Place, Process
from tests.simulation.cluster.network import Stream

if TYPE_CHECKING:
    from tests.simulation.cluster.world import World

GROUP = "group"

Stored = BrokerRecord | ReplicaSet
Key = BrokerKey | str


class Content(NamedTuple):
    """The result of a linearizable read of everything."""

    revision: int
    group: ReplicaSet | None
    brokers: dict[int, BrokerRecord]
    durable: dict[int, DurableLogs]


class EtcdState:
    """The content of etcd's disk."""

    __slots__ = ("brokers", "durable", "group", "leases", "next_lease", "revision")

    def __init__(self) -> None:
        self.revision = 1
        self.next_lease = 1
        self.group: ReplicaSet | None = None
        self.brokers: dict[int, BrokerRecord] = {}
        self.durable: dict[int, DurableLogs] = {}
        self.leases: dict[int, tuple[float, float]] = {}
        """Lease -> its end by etcd's clock, and its duration."""


class EtcdServer(Process):
    """One run of etcd; calls arrive as events."""

    __slots__ = ("_kernel", "_state", "_watchers", "_world")

    def __init__(self, world: World, place: Place, state: EtcdState) -> None:
        super().__init__(place)
        self._world = world
        self._kernel: Kernel = world.kernel
        self._state = state
        self._watchers: list[Stream] = []
        now_s = self._kernel.clock_s(place)
        for lease_id, (_, duration_s) in state.leases.items():
            state.leases[lease_id] = now_s + duration_s, duration_s
            self._kernel.after(duration_s, self, EtcdServer.expire, lease_id)

    # ------------------------------------------------------------------------------ requests

    def request(self, source: Place, answer: Callable[..., None], token: object, call: Any) -> None:
        """Execute `call` and post its result back."""
        result = call(self)
        self._world.network.post(self.place, source, answer, token, result)

    def read(self) -> Content:
        state = self._state
        return Content(state.revision, state.group, dict(state.brokers), dict(state.durable))

    def grant(self, duration_s: float) -> int:
        state = self._state
        lease_id = state.next_lease
        state.next_lease += 1
        state.leases[lease_id] = self._kernel.clock_s(self.place) + duration_s, duration_s
        self._kernel.after(duration_s, self, EtcdServer.expire, lease_id)
        return lease_id

    def keep_alive(self, lease_id: int) -> bool:
        lease = self._state.leases.get(lease_id)
        if lease is None:
            return False
        _, duration_s = lease
        now_s = self._kernel.clock_s(self.place)
        self._state.leases[lease_id] = now_s + duration_s, duration_s
        return True

    def note_durable(self, broker_id: int, log: DurableLog) -> None:
        """How far a registered replica's log is durable; read and written atomically, like the
        compare-and-swap of the real nameserver."""
        state = self._state
        record = state.brokers.get(broker_id)
        if record is not None and record.instance == log.told_by:
            before = state.durable.get(broker_id, DurableLogs())
            named = named_in_sync(state.group, record.key)
            state.durable[broker_id] = noted(before, log, named)

    def revoke(self, lease_id: int) -> bool:
        self._end_lease(lease_id)
        return True

    def transaction(
        self, expects: Mapping[Key, int], puts: tuple[Stored, ...]
    ) -> tuple[bool, Content]:
        """Whether all keys had the expected revisions (0: absent), and their values then."""
        state = self._state
        for key, revision in expects.items():
            present = state.group if isinstance(key, str) else state.brokers.get(key.broker_id)
            if revision != (0 if present is None else present.revision):
                return False, self.read()
        for value in puts:
            if isinstance(value, BrokerRecord) and value.lease_id not in state.leases:
                return False, self.read()
        state.revision += 1
        for value in puts:
            if isinstance(value, ReplicaSet):
                former = state.group
                state.group = group = replace(value, revision=state.revision)
                self._world.checks.group_changed(former, group, state.brokers)
                self._tell(GROUP, group)
            else:
                record = replace(value, revision=state.revision)
                state.brokers[record.key.broker_id] = record
                self._tell(record.key, record)
        return True, self.read()

    def watch(self, stream: Stream) -> None:
        """From now on every change goes down the stream, after the present content."""
        self._watchers.append(stream)
        stream.send(self, self._world.on_watch_snapshot, self.read())

    # ------------------------------------------------------------------------------ leases

    def expire(self, lease_id: int) -> None:
        """A lease's time may be up."""
        lease = self._state.leases.get(lease_id)
        if lease is None:
            return
        left_s = lease[0] - self._kernel.clock_s(self.place)
        if left_s > 1e-9:
            self._kernel.after(left_s, self, EtcdServer.expire, lease_id)
        else:
            self._end_lease(lease_id)

    def _end_lease(self, lease_id: int) -> None:
        state = self._state
        if state.leases.pop(lease_id, None) is None:
            return
        gone = [record for record in state.brokers.values() if record.lease_id == lease_id]
        for record in gone:
            state.revision += 1
            del state.brokers[record.key.broker_id]
            self._world.note("etcd: registration of %s %s ends", record.key.broker_id, record)
            self._tell(record.key, None)

    def _tell(self, key: Key, value: Stored | None) -> None:
        self._watchers = [stream for stream in self._watchers if stream.is_open(self)]
        for stream in self._watchers:
            stream.send(self, self._world.on_watch_event, key, value, self._state.revision)

    def stream_ended(self, stream: object) -> None:
        """Its watcher is gone; `_tell` drops it."""
